"""Correct kernels of operators that libraries ship, by algorithms of their own.

`python -m tests.benchmarks.correct_operators` judges 2,000 cases of each, and of
torch's kernels and those in Triton.
"""

from typing import Final

import pytest

from tests.benchmarks.correct_operators import proven
from tests.helpers.other_algorithms import KERNELS

CASES: Final = 20


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_nothing_is_found(name: str) -> None:
    made, is_proven = proven(KERNELS[name], CASES)
    assert made.findings == {}
    assert is_proven, made
