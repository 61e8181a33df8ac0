"""Plain loops over Hypothesis: draw, call, compare with torch in float64."""

import contextlib
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import torch
from hypothesis import given, seed
from hypothesis import strategies as st
from torch import Tensor

from kfuzz.contracts.binding import BoundKernel
from tests.benchmarks.peers import numpy_arrays
from tests.benchmarks.peers.budgeted import UNLIMITED, Drawn, generating, warm_up
from tests.benchmarks.peers.drawn import Limits, inputs_of, sizes_of
from tests.benchmarks.peers.subject import Subject


@dataclass(frozen=True)
class Looped:
    """What a loop came to.

    Attributes:
        cases: inputs checked.
        seconds: time taken.
        wrong: inputs on which the correct kernel was called wrong.
    """

    cases: int
    seconds: float
    wrong: int


class _Over(Exception):
    """Ends a test of Hypothesis's."""


def _loop(
    subject: Subject,
    device: torch.device,
    inputs: st.SearchStrategy[Drawn],
    seconds: float,
    seed_value: int,
) -> Looped:
    """Check what is drawn until the time is up; then time the same inputs again.

    The second time everything is compiled.
    """
    warm_up()
    first = _pass(subject, device, inputs, seed_value, seconds=seconds)
    return _pass(subject, device, inputs, seed_value, cases=first.cases)


def _pass(
    subject: Subject,
    device: torch.device,
    inputs: st.SearchStrategy[Drawn],
    seed_value: int,
    *,
    cases: int = UNLIMITED,
    seconds: float = math.inf,
) -> Looped:
    done, wrong = 0, 0
    began = time.perf_counter()

    def once(drawn: Drawn) -> None:
        nonlocal done, wrong
        if done >= cases or time.perf_counter() - began > seconds:
            raise _Over
        tensors, dim = [x.to(device) for x in drawn[0]], drawn[1]
        done += 1
        results = subject.call(tensors, dim, 0)
        try:
            numpy_arrays.compare(results, subject.expected(tensors, dim))
        except AssertionError:
            wrong += 1

    with contextlib.suppress(_Over):
        seed(seed_value)(generating(UNLIMITED)(given(inputs)(once)))()
    return Looped(done, time.perf_counter() - began, wrong)


def _generated(
    kernel: BoundKernel,
    device: torch.device,
    limits: Limits,
    seconds: float,
    seed_value: int,
) -> Looped:
    """Draw shape, dtype and a seed; torch's generator makes the values."""
    subject = Subject(kernel)

    @st.composite
    def inputs(draw: st.DrawFn) -> Drawn:
        sizes = draw(sizes_of(subject, limits))
        dtype = draw(st.sampled_from(subject.dtypes))
        random = torch.Generator(device).manual_seed(draw(st.integers(0, 2**32 - 1)))
        tensors: list[Tensor] = [
            torch.randn(
                subject.shape(p, sizes), generator=random, device=device, dtype=dtype
            )
            for p in subject.parameters.values()
        ]
        return tensors, subject.dims(sizes)[-1]

    return _loop(subject, device, inputs(), seconds, seed_value)


def _arrays(
    kernel: BoundKernel,
    device: torch.device,
    limits: Limits,
    seconds: float,
    seed_value: int,
) -> Looped:
    """Draw every array by `hypothesis.extra.numpy`, of numbers up to 100."""
    subject = Subject(kernel)

    def tensors(dtype: torch.dtype, shape: tuple[int, ...]) -> st.SearchStrategy:
        return numpy_arrays.bounded_arrays(dtype, shape)

    drawn = inputs_of(subject, tensors, numpy_arrays.indices, limits)
    return _loop(subject, device, drawn, seconds, seed_value)


Loop = Callable[[BoundKernel, torch.device, Limits, float, int], Looped]

LOOPS: Final[Mapping[str, Loop]] = {
    "Hypothesis, torch's random values": _generated,
    "Hypothesis, its own arrays": _arrays,
}
