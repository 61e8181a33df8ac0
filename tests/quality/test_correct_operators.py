"""Correct kernels of operators that libraries ship, by algorithms of their own.

`python -m tests.benchmarks.correct_operators` judges 2,000 cases of each, and of
torch's kernels and those in Triton.
"""

from typing import Final

import pytest

from kfuzz.contracts.binding import BoundKernel
from tests.benchmarks.correct_operators import OTHERS, proven

CASES: Final = 20


@pytest.mark.slow
@pytest.mark.parametrize("kernel", OTHERS, ids=lambda kernel: kernel.name)
def test_nothing_is_found(kernel: BoundKernel) -> None:
    made, is_proven = proven(kernel, False, CASES)
    assert made.findings == {}
    assert is_proven, made
