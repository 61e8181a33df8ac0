"""Every planted fault is found under its contract, and shrinks to what a person
would call minimal; `tests/helpers/minima.py` states it.

KFUZZ_WITNESSES=all pytest tests/quality/test_witnesses_falsified.py hunts all of them;
the default is one of each contract class, every second of them on each push. `kfuzz
calibrate` falsifies all and reduces none.
"""

import os
from pathlib import Path

import pytest
import torch

from kfuzz.contracts.witnesses.roster import everywhere
from kfuzz.core.verdict import State
from tests.helpers.minima import MINIMA
from tests.helpers.tiers import usual
from tests.quality.hunting import hunt

SEED = 1
CASES = 3_000
BACKENDS = {"cpu", "cuda" if torch.cuda.is_available() else "interpret"}
VIOLATING = [
    name
    for name, witness in everywhere().items()
    if not witness.conforming and BACKENDS & set(witness.backends)
]
# Of each class the one with the smallest minimal case.
BY_SIZE = sorted(VIOLATING, key=lambda name: (MINIMA[name].elements, name))
FIRST = {everywhere()[name].contract: name for name in reversed(BY_SIZE)}
EVERY = os.environ.get("KFUZZ_WITNESSES") == "all"
# Half a minute each.
LONG = {"amax_last_chunk_wins", "linear_relu_saturates"}
HUNTED = [
    usual(name, is_usual=name not in LONG and (EVERY or i % 4 == 0))
    for i, name in enumerate(VIOLATING if EVERY else sorted(FIRST.values()))
]


@pytest.mark.parametrize("name", HUNTED)
def test_it_is_falsified_and_minimal(name: str, tmp_path: Path) -> None:
    witness = everywhere()[name]
    found = hunt(witness, tmp_path, seed=SEED, cases=CASES)
    assert found, "nothing was found"
    minimum = found[-1]
    assert minimum.signature.contract == witness.contract
    assert minimum.state is State.CONFIRMED
    least = MINIMA[name]
    assert minimum.input_elements <= least.elements, least.text
    assert minimum.nonzero_elements is not None
    assert minimum.nonzero_elements <= least.nonzero, least.text
    assert minimum.explanation is not None
