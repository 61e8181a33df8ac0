"""K-REF-01's shorter calls: what a longer call leaves behind in the next one."""

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from kfuzz.contracts import operators as ops
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import Failure, Kind, Verdict
from tests.helpers.judged_cases import judged, row_case, x_case

DATA = row_case("randn", (3, 20))


def padded_to(block: int, *, clean: bool) -> Callable[[Tensor, int], Tensor]:
    """Sums over whole blocks of a buffer that is kept for the next call."""
    kept: dict[tuple[int, int], Tensor] = {}

    def padded(x: Tensor, dim: int) -> Tensor:
        rows, n = x.numel() // x.shape[-1], x.shape[-1]
        key = rows, -(-n // block) * block
        buffer = kept.setdefault(key, torch.zeros(key))
        if clean:
            buffer.zero_()
        buffer[:, :n] = x.reshape(rows, n)
        return buffer.sum(-1).reshape(x.shape[:-1])

    return padded


def test_what_a_longer_call_left_in_a_buffer_is_charged() -> None:
    report = judged(ops.sum, padded_to(64, clean=False), DATA)
    failure = report.failure
    assert failure is not None
    assert (failure.contract, failure.kind) == ("K-REF-01", Kind.STALE_RESULT)
    assert "x of [3, 19], not [3, 20]" in failure.message
    assert "other bits after a call on the larger shape" in failure.message


def test_a_kept_buffer_that_each_call_clears_is_not() -> None:
    report = judged(ops.sum, padded_to(64, clean=True), DATA)
    assert report.failure is None
    assert report.verdicts["K-REF-01"] is Verdict.CONFORMS


def attribution(function: Callable[..., object], **claims: object) -> Failure | None:
    return judged(ops.sum, function, DATA, **claims).failure


def test_what_is_wrong_whatever_came_before_is_no_matter_of_history() -> None:
    def wrong_if_odd(x: Tensor, dim: int) -> Tensor:
        return x.sum(dim) + x.shape[-1] % 2

    assert attribution(wrong_if_odd) is None


def test_chance_is_no_matter_of_history() -> None:
    """Wrong at every second shorter call, whatever came before it."""

    def unsteady() -> Callable[[Tensor, int], Tensor]:
        calls = itertools.count()
        return lambda x, dim: x.sum(dim) + (x.shape[-1] == 19) * next(calls)

    assert attribution(unsteady()) is None
    assert attribution(padded_to(64, clean=False), determinism="none") is None


def test_other_bits_alone_are_not_charged() -> None:
    last: list[Tensor] = []

    def order_of_the_last(x: Tensor, dim: int) -> Tensor:
        """Sums in an order that the call before decides; each is admitted."""
        flip = bool(last) and float(last[-1].flatten()[0]) > 0
        last[:] = [x.clone()]
        return (x.flip(dim) if flip else x).cumsum(dim)[..., -1]

    assert attribution(order_of_the_last) is None


def test_a_kernel_that_refuses_the_shorter_shape_is_not_charged() -> None:
    def even(x: Tensor, dim: int) -> Tensor:
        if x.shape[-1] % 2:
            raise ValueError("even sizes only")
        return x.sum(dim)

    assert attribution(even) is None


def inplace(x: Tensor) -> Tensor:
    return x.clamp_(min=0)


def given(x: Tensor, y: Tensor) -> None:
    torch.clamp(x, min=0, out=y)


PLAIN = x_case("randn", (4, 8))
TRANSPOSED = x_case("randn", (4, 8), strides=(1, 4), offset=3)
EXPANDED = x_case("randn", (4, 8), "bfloat16", strides=(0, 2))


@pytest.mark.parametrize(
    ("function", "claims", "case"),
    [
        (torch.relu, {}, PLAIN),
        (torch.relu, {}, TRANSPOSED),
        (torch.relu, {}, EXPANDED),
        (inplace, {"inplace": "x"}, TRANSPOSED),
        (given, {"out": "y"}, PLAIN),
        (given, {"out": "y"}, EXPANDED),
    ],
)
def test_a_right_kernel_gets_the_shorter_call_and_conforms(
    function: Callable[..., object], claims: dict[str, object], case: Case
) -> None:
    seen = set()

    def recorded(x: Tensor, *out: Tensor) -> object:
        seen.add(tuple(x.shape))
        return function(x, *out)

    def named(x: Tensor, y: Tensor) -> object:
        return recorded(x, y)

    made = named if "out" in claims else recorded
    report = judged(ops.relu, made, case, **claims)
    assert report.failure is None
    assert (4, 7) in seen
    assert report.verdicts["K-REF-01"] is Verdict.CONFORMS
