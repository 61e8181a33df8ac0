"""Every planted fault is found under its contract, and shrinks to what a person
would call minimal; `WITNESSES` states both."""

from pathlib import Path

import pytest

from kfuzz.contracts.witnesses.functional import WITNESSES
from kfuzz.core.verdict import State
from tests.quality.hunting import hunt

SEED = 1
# A minute on two cores is promised; here two searches share them.
SECONDS = 120.0
VIOLATING = [name for name, witness in WITNESSES.items() if not witness.conforming]


@pytest.mark.parametrize("name", VIOLATING)
def test_it_is_falsified_and_minimal(name: str, tmp_path: Path) -> None:
    witness = WITNESSES[name]
    found = hunt(witness, tmp_path, seed=SEED, seconds=SECONDS)
    assert found, "nothing was found"
    minimum = found[-1]
    assert minimum.signature.contract == witness.contract
    assert minimum.state is State.CONFIRMED
    assert minimum.input_elements <= witness.max_elements, witness.minimal
    assert minimum.nonzero_elements is not None
    assert minimum.nonzero_elements <= witness.max_nonzero, witness.minimal
    assert minimum.explanation is not None
