"""hypothesis-torch: its tensors in the plain loop's place, otherwise the same."""

import hypothesis_torch
import torch
from hypothesis import strategies as st
from torch import Tensor

from tests.benchmarks.peers.budgeted import by_hypothesis
from tests.benchmarks.peers.drawn import inputs_of
from tests.benchmarks.peers.numpy_arrays import (
    NAN_SHARE,
    bounded_number,
    compare,
    indices,
)
from tests.benchmarks.peers.subject import Budget, Found, Subject


def _tensors(
    dtype: torch.dtype,
    shape: tuple[int, ...],
    elements: st.SearchStrategy[float] | None,
) -> st.SearchStrategy[Tensor]:
    # Kernels under test are given plain dense tensors; without elements the library
    # takes every number of the dtype.
    return hypothesis_torch.tensor_strategy(
        dtype,
        shape,
        elements=elements,
        device=torch.device("cpu"),
        requires_grad=False,
        layout=torch.strided,
    )


def any_floats(subject: Subject, budget: Budget, seed: int) -> Found:
    """Search among all numbers of the dtype, as the library does by default."""

    def tensors(dtype: torch.dtype, shape: tuple[int, ...]) -> st.SearchStrategy:
        return _tensors(dtype, shape, None)

    inputs = inputs_of(subject, tensors, indices)
    return by_hypothesis(subject, budget, seed, inputs=inputs, compare=compare)


def within_100(subject: Subject, budget: Budget, seed: int) -> Found:
    """Search among numbers within the bound; some inputs hold NaN besides."""

    def tensors(dtype: torch.dtype, shape: tuple[int, ...]) -> st.SearchStrategy:
        rare = st.integers(1, NAN_SHARE).map(lambda n: n == NAN_SHARE)
        return rare.flatmap(
            lambda nan: _tensors(dtype, shape, bounded_number(dtype, nan=nan))
        )

    inputs = inputs_of(subject, tensors, indices)
    return by_hypothesis(subject, budget, seed, inputs=inputs, compare=compare)
