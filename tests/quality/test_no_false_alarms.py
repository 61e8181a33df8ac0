"""Correct kernels and torch's own stay without a finding, every family on.

KFUZZ_CASES=10000 pytest tests/quality/test_no_false_alarms.py runs what a release
needs; the default is what a change can wait for. KFUZZ_SEED chooses the cases.
"""

import os
from pathlib import Path

import pytest

from kfuzz.contracts.witnesses.functional import WITNESSES
from kfuzz.core.event import FindingSaved, KernelFinished, Notice
from kfuzz.core.verdict import Verdict
from tests.quality.hunting import search

CASES = int(os.environ.get("KFUZZ_CASES", "120"))
SEED = int(os.environ.get("KFUZZ_SEED", "1"))
CONFORMING = [name for name, witness in WITNESSES.items() if witness.conforming]
TORCH = [name for name in CONFORMING if name.startswith("torch_")]
TRITON = [name for name in CONFORMING if name.startswith("triton_")]
# Torch's declarations are those of its CPU implementations.
CPU = [*TORCH, "cpu"]
# One run of all of torch's, which are fast; one for each in Triton.
SEARCHES = [CPU, *([name, "auto"] for name in TRITON)]


@pytest.mark.parametrize("search_of", SEARCHES, ids=lambda words: words[0])
def test_no_finding(search_of: list[str], tmp_path: Path) -> None:
    *names, device = search_of
    events = search(names, tmp_path, seed=SEED, cases=CASES, device=device)
    assert [e.finding.id for e in events if isinstance(e, FindingSaved)] == []
    assert list(tmp_path.iterdir()) == []
    finished = [e for e in events if isinstance(e, KernelFinished)]
    assert len(finished) == len(names)
    for kernel in finished:
        assert kernel.cases == CASES
        assert kernel.refusals == ()
        assert kernel.worst_ratio <= 1
        tally = kernel.contracts["K-VAL-01"]
        assert tally.verdict is Verdict.CONFORMS
        # Most cases must say something, or finding nothing would mean nothing.
        assert tally.decided > CASES / 3
    told = [e.message for e in events if isinstance(e, Notice)]
    assert [text for text in told if "could not be judged" in text] == []


def test_every_conforming_witness_is_searched() -> None:
    assert sorted(TORCH + TRITON) == sorted(CONFORMING)
