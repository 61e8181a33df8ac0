"""The plain loop: `hypothesis.extra.numpy`, torch in float64, torch's assert_close."""

from collections.abc import Sequence

import numpy as np
import torch
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import Tensor

from tests.benchmarks.peers.budgeted import by_hypothesis
from tests.benchmarks.peers.drawn import inputs_of
from tests.benchmarks.peers.subject import Budget, Found, Subject

BOUND = 100.0
# One input in so many holds NaN among numbers within the bound.
NAN_SHARE = 8

_NUMPY = {torch.float32: np.float32, torch.float16: np.float16}
_WIDTH = {torch.float32: 32, torch.float16: 16}


def compare(results: Sequence[Tensor], wanted: Sequence[Tensor]) -> None:
    """Compare as torch's tests do, with its default tolerance for the dtype."""
    torch.testing.assert_close(tuple(results), tuple(wanted), equal_nan=True)


def any_number(dtype: torch.dtype) -> st.SearchStrategy[float]:
    """Return every number of a dtype, infinities and NaN included."""
    return st.floats(width=_WIDTH[dtype])


def bounded_number(dtype: torch.dtype, *, nan: bool) -> st.SearchStrategy[float]:
    """Return numbers of either sign up to the bound, NaN too if asked for."""
    numbers = st.floats(-BOUND, BOUND, width=_WIDTH[dtype])
    return numbers | st.just(np.nan) if nan else numbers


def indices(shape: tuple[int, ...], below: int) -> st.SearchStrategy[Tensor]:
    """Return an argument of valid indices."""
    drawn = hnp.arrays(np.int64, shape, elements=st.integers(0, below - 1))
    return drawn.map(torch.from_numpy)


def _arrays(
    dtype: torch.dtype, shape: tuple[int, ...], elements: st.SearchStrategy[float]
) -> st.SearchStrategy[Tensor]:
    drawn = hnp.arrays(_NUMPY[dtype], shape, elements=elements)
    return drawn.map(torch.from_numpy)


def any_floats(subject: Subject, budget: Budget, seed: int) -> Found:
    """Search among all numbers of the dtype."""

    def tensors(dtype: torch.dtype, shape: tuple[int, ...]) -> st.SearchStrategy:
        return _arrays(dtype, shape, any_number(dtype))

    inputs = inputs_of(subject, tensors, indices)
    return by_hypothesis(subject, budget, seed, inputs=inputs, compare=compare)


def within_100(subject: Subject, budget: Budget, seed: int) -> Found:
    """Search among numbers within the bound; some inputs hold NaN besides."""

    def tensors(dtype: torch.dtype, shape: tuple[int, ...]) -> st.SearchStrategy:
        rare = st.integers(1, NAN_SHARE).map(lambda n: n == NAN_SHARE)
        return rare.flatmap(
            lambda nan: _arrays(dtype, shape, bounded_number(dtype, nan=nan))
        )

    inputs = inputs_of(subject, tensors, indices)
    return by_hypothesis(subject, budget, seed, inputs=inputs, compare=compare)
