"""K-MEM-04 and K-REF-01: what calls share, and what they remember."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import Tensor

import kfuzz
from kfuzz import strategies as ks
from kfuzz.contracts import operators as ops
from kfuzz.core.budget import Depth
from kfuzz.core.recipe import Case, TensorSpec
from kfuzz.core.verdict import CaseReport, Failure, Kind, Verdict
from tests.helpers.judged_cases import bench_of, judged, pinned, row_case, x_case

CASE = x_case("randn", (4, 8))


def attributed(report: CaseReport) -> tuple[str, Kind]:
    assert report.failure is not None, report
    return report.failure.contract, report.failure.kind


def failure(function: Callable[..., object], case: Case = CASE) -> Failure | None:
    return judged(ops.relu, function, case).failure


def pinned_row(data: Tensor) -> Case:
    """A case of a reduction over one row of given values."""
    dtype = str(data.dtype).removeprefix("torch.")
    held = data.view(torch.uint8).numpy().tobytes()
    spec = TensorSpec(tuple(data.shape), ("d0",), dtype, values=held)
    return Case({"x": spec}, {"dim": -1})


def test_a_buffer_that_two_calls_return_is_charged() -> None:
    kept: dict[object, Tensor] = {}

    def static(x: Tensor) -> Tensor:
        y = kept.setdefault(x.shape, torch.empty_like(x))
        return y.copy_(torch.relu(x))

    report = judged(ops.relu, static, CASE)
    assert attributed(report) == ("K-MEM-04", Kind.ALIASES_OUTPUT)
    assert report.failure is not None
    assert report.failure.output == "y"


def test_two_buffers_in_turn_are_charged_too() -> None:
    kept, calls = [torch.empty(4, 8), torch.empty(4, 8)], iter(range(99))

    def alternating(x: Tensor) -> Tensor:
        return kept[next(calls) % 2].copy_(torch.relu(x))

    made = failure(alternating)
    assert made is not None
    assert made.kind is Kind.ALIASES_OUTPUT


def test_returning_the_input_is_charged_without_a_second_call() -> None:
    def unchanged(x: Tensor) -> Tensor:
        return x if bool((x >= 0).all()) else torch.relu(x)

    case = x_case("ones", (4, 8))
    report = judged(ops.relu, unchanged, case)
    assert attributed(report) == ("K-MEM-04", Kind.ALIASES_INPUT)
    assert report.failure is not None
    assert "the input x" in report.failure.message
    assert failure(lambda x: unchanged(x).clone(), case) is None
    assert failure(unchanged, x_case("ones", (0, 8))) is None


def test_a_result_declared_in_place_may_be_its_argument() -> None:
    report = judged(ops.relu, lambda x: x.clamp_(min=0), CASE, inplace="x")
    assert report.failure is None
    assert report.verdicts["K-MEM-04"] is Verdict.CONFORMS
    assert report.verdicts["K-REF-01"] is Verdict.CONFORMS


def slices(x: Tensor) -> Tensor:
    wide = torch.empty(x.shape[0], 2 * x.shape[1])
    return wide[:, ::2].copy_(torch.relu(x))


def columns_in_turn() -> Callable[[Tensor], Tensor]:
    """A large buffer whose columns are handed out one after the other."""
    buffer, calls = torch.empty(4, 8, 64), iter(range(64))
    return lambda x: buffer[:, :, next(calls)].copy_(torch.relu(x))


def workspace() -> Callable[[Tensor], Tensor]:
    kept: dict[object, Tensor] = {}

    def with_workspace(x: Tensor) -> Tensor:
        space = kept.setdefault(x.shape, torch.empty_like(x))
        torch.clamp(x, min=0, out=space)
        return space.clone()

    return with_workspace


def drawing(x: Tensor) -> Tensor:
    """Uses the generator, for nothing that the result shows."""
    order = torch.randperm(x.shape[0])
    y = torch.empty_like(x)
    y[order] = torch.relu(x[order])
    return y


@pytest.mark.parametrize(
    "function",
    [slices, columns_in_turn(), workspace(), drawing],
    ids=["slices", "columns", "workspace", "generator"],
)
def test_a_correct_kernel_with_memory_of_its_own_is_not(
    function: Callable[[Tensor], Tensor],
) -> None:
    report = judged(ops.relu, function, CASE)
    assert report.failure is None
    assert report.verdicts["K-MEM-04"] is Verdict.CONFORMS
    assert report.verdicts["K-REF-01"] is Verdict.CONFORMS


def memo(key: Callable[[Tensor], object]) -> Callable[[Tensor], Tensor]:
    kept: dict[object, Tensor] = {}
    return lambda x: kept.setdefault(key(x), torch.relu(x)).clone()


@pytest.mark.parametrize(
    ("key", "why"),
    [
        (lambda x: (x.data_ptr(), x.shape), "at other addresses"),
        (lambda x: id(x), "at other addresses"),
        (lambda x: x.shape, "the first call with these shapes"),
    ],
)
def test_a_memo_is_stale_whatever_its_key(
    key: Callable[[Tensor], object], why: str
) -> None:
    for case in (CASE, x_case("ones", (1,))):
        report = judged(ops.relu, memo(key), case)
        assert attributed(report) == ("K-REF-01", Kind.STALE_RESULT)
        assert report.failure is not None
        assert why in report.failure.message


def remembers(function: Callable[..., Tensor], case: Case) -> Verdict:
    """Return what K-REF-01 alone says of a sum: other classes see faults of values."""
    report = judged(ops.sum, function, case, classes={"K-REF-01"})
    return report.verdicts["K-REF-01"]


def test_a_result_that_comes_again_by_rounding_is_no_memory() -> None:
    """2556 + 1 and 2554 + 1 are 2556 in float16, and only the first is right."""
    data = torch.tensor([2047.0, 507, 0, 1, 1, 0, 0, 0], dtype=torch.float16)
    case = pinned_row(data)

    def one_too_many(x: Tensor, *, dim: int) -> Tensor:
        return (x.sum(dim, dtype=torch.float32) + 1).half()

    assert remembers(one_too_many, case) is Verdict.CONFORMS


def test_a_memo_that_looks_at_some_elements_is_stale() -> None:
    for key in (
        lambda x: (x.shape, float(x.flatten()[0]), float(x.flatten()[-1])),
        lambda x: (x.shape, round(float(x.sum()), 3)),
    ):
        report = judged(ops.relu, memo(key), CASE)
        assert attributed(report) == ("K-REF-01", Kind.STALE_RESULT)
        assert report.failure is not None
        assert "an earlier call, from which only" in report.failure.message


def test_a_memo_filled_by_an_earlier_case_is_named_as_such() -> None:
    """Then the base run is wrong already; elsewhere it is right."""
    evaluator = bench_of(ops.relu, memo(lambda x: (x.data_ptr(), x.shape)))
    evaluator.judge(CASE, Depth.BASE)
    report = evaluator.judge(x_case("randn", (4, 8), seed=4), Depth.SEARCH)
    assert attributed(report) == ("K-REF-01", Kind.STALE_RESULT)


def test_state_that_calls_leave_behind_is_charged() -> None:
    sums = torch.zeros(4, 8)

    def accumulating(x: Tensor) -> Tensor:
        return sums.add_(torch.relu(x)).clone()

    made = failure(accumulating)
    assert made is not None
    assert made.kind is Kind.STALE_RESULT
    assert "right the first time" in made.message


@pytest.mark.parametrize("shape", [(1,), (4, 8)])
@pytest.mark.parametrize(
    ("wrong", "family"),
    [
        (torch.zeros_like, "negative"),
        (torch.abs, "ones"),
        (lambda x: torch.where(x > 0.5, 0.0, torch.relu(x)), "negative"),
    ],
)
def test_a_wrong_value_of_the_second_data_alone_is_not_staleness(
    wrong: Callable[[Tensor], Tensor], family: str, shape: tuple[int, ...]
) -> None:
    """The base run conforms by luck; the case says nothing about memory."""
    report = judged(ops.relu, wrong, x_case(family, shape))
    assert report.failure is None
    assert Verdict.VIOLATES not in report.verdicts.values()


def order_of_the_generator(x: Tensor, dim: int) -> Tensor:
    total = torch.zeros(x.shape[0])
    for i in torch.randperm(x.shape[1]):
        total = total + x[:, i]
    return total


def test_bits_that_follow_the_seed_are_charged_within_the_tolerance() -> None:
    case = row_case("randn", (4, 64))
    report = judged(ops.sum, order_of_the_generator, case)
    assert attributed(report) == ("K-REF-01", Kind.SEED_DEPENDENT)
    assert report.ratio < 1
    free = judged(ops.sum, order_of_the_generator, case, determinism="none")
    assert free.failure is None


def test_bits_that_differ_at_every_call_do_not_follow_the_seed() -> None:
    calls = iter(range(999))

    def unsteady(x: Tensor, dim: int) -> Tensor:
        return x.roll(next(calls) % 61, dim).cumsum(dim)[:, -1]

    report = judged(ops.sum, unsteady, row_case("randn", (4, 64)))
    assert report.failure is None


def dropping(whose: str) -> Callable[..., Tensor]:
    """Return a dropout whose mask follows the address of something, or the seed."""

    def dropout(x: Tensor, p: float = 0.0, seed: int = 0) -> Tensor:
        y, seeds = torch.empty_like(x), torch.full((1,), seed)
        places = {"input": x, "result": y, "buffer": seeds}
        generator = torch.Generator()
        made = places[whose].data_ptr() >> 4 if whose in places else seed
        generator.manual_seed(made)
        kept = torch.rand(x.shape, generator=generator) >= p
        return y.copy_(torch.where(kept, x / (1 - p), torch.zeros_like(x)))

    return dropout


DROPPED = replace(x_case("ramp", (8, 64)), scalars={"p": 0.5, "seed": 12345})


@pytest.mark.parametrize("whose", ["input", "result", "buffer"])
def test_a_choice_that_follows_an_address_is_charged(whose: str) -> None:
    """Every mask is a right one; which it is depends on where something lies."""
    # An allocator may give the second call the memory of the first one.
    reports = (judged(ops.dropout, dropping(whose), DROPPED) for _ in range(8))
    report = next(r for r in reports if r.failure is not None)
    # Which further call met another address first is the allocator's choice, too.
    contract, kind = attributed(report)
    assert contract == "K-REF-01"
    assert kind in (Kind.STALE_RESULT, Kind.SEED_DEPENDENT)
    free = judged(ops.dropout, dropping(whose), DROPPED, determinism="none")
    assert free.failure is None


def test_a_choice_that_follows_the_arguments_alone_is_not() -> None:
    report = judged(ops.dropout, dropping("seed"), DROPPED)
    assert report.failure is None
    assert report.verdicts["K-REF-01"] is Verdict.CONFORMS


def test_the_generators_of_the_process_are_left_as_they_were() -> None:
    torch.manual_seed(7)
    before = torch.get_rng_state()
    judged(ops.relu, drawing, CASE)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_stride_of_zero_is_overwritten_as_well() -> None:
    case = x_case("randn", (4, 8), strides=(0, 2), offset=3)
    assert failure(torch.relu, case) is None
    made = failure(memo(lambda x: x.data_ptr()), case)
    assert made is not None
    assert made.kind is Kind.STALE_RESULT


def test_a_kernel_that_reshapes_its_argument_is_not_called_again() -> None:
    report = judged(ops.relu, lambda x: torch.relu(x.t_()).t(), CASE)
    assert report.failure is None
    assert "K-REF-01" not in report.verdicts


def parts_summed(x: Tensor, ends: list[int]) -> Tensor:
    return torch.stack([x[a:b].sum(0) for a, b in pairwise(ends)])


PARTS = kfuzz.reference(
    lambda x, offsets: parts_summed(x, offsets.tolist()),
    dict(x=ks.tensors("T D"), offsets=ks.offsets("S", of="T")),
    name="parts",
)
SPANNED = kfuzz.reference(
    lambda x, spans: torch.stack([x[a:b].sum(0) for a, b in spans.tolist()]),
    dict(x=ks.tensors("T D"), spans=ks.spans("B", of="T")),
    name="spanned",
)


@pytest.mark.parametrize("remembers", [True, False])
def test_what_is_remembered_of_offsets_is_charged(remembers: bool) -> None:
    """Sorted again after they were flipped they would be the same ones."""
    kept: dict[int, list[int]] = {}

    def function(x: Tensor, offsets: Tensor) -> Tensor:
        ends = offsets.tolist()
        return parts_summed(
            x, kept.setdefault(id(offsets), ends) if remembers else ends
        )

    x = pinned([[1.0], [2.0], [4.0], [8.0]], "T D")
    case = Case({"x": x, "offsets": pinned([0, 1, 4], "S", below="T")})
    report = judged(PARTS, function, case)
    if remembers:
        assert attributed(report) == ("K-REF-01", Kind.STALE_RESULT)
    else:
        assert report.verdicts["K-REF-01"] is Verdict.CONFORMS


def test_what_is_remembered_of_spans_is_charged() -> None:
    kept: dict[int, list[list[int]]] = {}

    def function(x: Tensor, spans: Tensor) -> Tensor:
        ends = kept.setdefault(id(spans), spans.tolist())
        return torch.stack([x[a:b].sum(0) for a, b in ends])

    x = pinned([[1.0], [2.0], [4.0], [8.0]], "T D")
    case = Case({"x": x, "spans": pinned([[0, 1], [1, 4]], "B ends", below="T")})
    report = judged(SPANNED, function, case)
    assert attributed(report) == ("K-REF-01", Kind.STALE_RESULT)
