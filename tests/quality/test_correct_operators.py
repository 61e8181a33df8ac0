"""Correct kernels of operators that libraries ship, by algorithms of their own.

`python -m tests.benchmarks.correct_operators` judges 2,000 cases of each, and of
torch's kernels and those in Triton.
"""

from typing import Final

import pytest

from kfuzz.contracts.witnesses.roster import everywhere
from tests.benchmarks.correct_operators import proven

CASES: Final = 20
NAMES: Final = [
    name
    for name, witness in everywhere().items()
    if witness.conforming
    and witness.module.startswith("shipped.")
    and witness.backends == ("cpu",)
]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_found(name: str) -> None:
    made, is_proven = proven(everywhere()[name], CASES)
    assert made.findings == {}
    assert is_proven, made
