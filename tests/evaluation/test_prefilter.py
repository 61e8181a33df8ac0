"""The prefilter: right kernels pass with full counts, what is wrong is suspect."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import count
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from torch import Tensor

from kfuzz.contracts import operators as ops
from kfuzz.contracts.binding import BoundKernel, kernel
from kfuzz.contracts.classes import CLASSES
from kfuzz.contracts.witnesses.roster import roster
from kfuzz.contracts.witnesses.witness import Witness
from kfuzz.core.budget import Burst, Depth, SizeBudget
from kfuzz.core.declaration import Declaration
from kfuzz.core.recipe import NOWHERE, Case, Edge, Fill, Plant, TensorSpec
from kfuzz.core.verdict import Verdict
from kfuzz.evaluation.drawing import groups_of, strategy_of
from kfuzz.evaluation.evaluator import Evaluator, setting_of
from kfuzz.evaluation.prefilter import ALWAYS_ON, Prefilter, member_case
from kfuzz.strategies.cases import bursts
from tests.helpers.tiers import sampled

CPU = torch.device("cpu")
BUDGET = SizeBudget(elements=1 << 9, rows=1 << 6)
MEMBERS = 8
NAN32 = 0x7FC00000


NAMES = (f"screened{i}" for i in count())


def bind(call: Callable[..., Any], operator: Any, **claims: Any) -> BoundKernel:
    return kernel(operator, name=next(NAMES), **claims)(call)


def drawn(made: BoundKernel, number_of: int, number: int = 7) -> list[Burst]:
    """Return drawn bursts of a kernel."""
    strategy = strategy_of(made, BUDGET)
    assert strategy is not None
    found: list[Burst] = []

    def keep(burst: Burst) -> None:
        found.append(burst)

    configured = settings(
        max_examples=number_of, database=None, deadline=None, derandomize=False,
        phases=(Phase.generate,), suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    source = bursts(strategy, groups_of(made), members=lambda case: MEMBERS)
    seed(number)(configured(given(source)(keep)))()
    return found


def structure(shape: tuple[int, ...] = (3, 5), **changes: Any) -> Case:
    axes = tuple(f"d{i}" for i in range(len(shape)))
    spec = TensorSpec(shape, axes, "float32", fill=Fill("randn", 2))
    return Case({"x": replace(spec, **changes)})


def suspects(call: Callable[..., Any], burst: Burst, **claims: Any) -> dict[int, str]:
    """Return the suspects of a kernel that is to be relu."""
    made = Prefilter(bind(call, ops.relu, **claims), CPU, frozenset(CLASSES)).screen(
        burst
    )
    assert (made.unsupported, made.error, made.lost) == ("", "", "")
    assert made.passed + len(made.suspects) == burst.members
    return {s.member: s.why for s in made.suspects}


KERNELS: dict[str, Callable[..., Any]] = {
    "relu": torch.relu,
    "softmax": lambda x, dim=-1: torch.softmax(x, dim),
    "sum": lambda x, dim=-1: torch.sum(x, dim),
    "layer_norm": lambda x, weight, bias, eps=1e-5: torch.nn.functional.layer_norm(
        x, (x.shape[-1],), weight, bias, eps
    ),
    "matmul": torch.matmul,
    "add": torch.add,
    "embedding": lambda weight, indices: weight[indices],
    "amax": lambda x, dim=-1: torch.amax(x, dim),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(KERNELS, one_in=2))
def test_a_right_kernel_passes_with_the_counts_of_the_bench(name: str) -> None:
    right = bind(KERNELS[name], getattr(ops, name))
    classes = frozenset(CLASSES)
    fresh = Prefilter(right, CPU, classes)
    evaluator = Evaluator(right, setting_of("cpu", BUDGET, classes))
    screened = 0
    for burst in drawn(right, 12):
        made = fresh.screen(burst)
        assert (made.error, made.lost) == ("", "")
        if made.unsupported:
            continue
        screened += 1
        wrong = {s.member for s in made.suspects}
        conforms: Counter[str] = Counter()
        unsure: Counter[str] = Counter()
        for number in range(burst.members):
            case = member_case(right, burst, number)
            report = evaluator.judge(case, Depth.SEARCH)
            clean = report.failure is None and report.refusal is None
            assert clean == (number not in wrong), (number, made.suspects, report)
            if clean:
                for contract, verdict in report.verdicts.items():
                    conforms[contract] += verdict is Verdict.CONFORMS
                    unsure[contract] += verdict is Verdict.UNDER_SPECIFIED
        held = {n: k for n, k in conforms.items() if n in ALWAYS_ON and k}
        assert dict(made.conforms) == held
        open_ones = {n: k for n, k in unsure.items() if n in ALWAYS_ON and k}
        assert dict(made.undecided) == open_ones
    assert screened >= 6


FAULTS = (
    "input_negated_in_sum", "wrong_dtype_in_sort", "wrong_tail_in_rms_norm",
    "cleaned_in_var",
)  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_what_fails_alone_is_suspect_and_nothing_else(name: str) -> None:
    faulty = planted()[name].load()
    fresh = Prefilter(faulty, CPU, frozenset(CLASSES))
    evaluator = Evaluator(faulty, setting_of("cpu", BUDGET, CLASSES))
    failed = 0
    for burst in drawn(faulty, 6):
        made = fresh.screen(burst)
        assert (made.error, made.lost) == ("", "")
        suspected = {s.member for s in made.suspects}
        for number in range(0 if made.unsupported else burst.members):
            case = member_case(faulty, burst, number)
            report = evaluator.judge(case, Depth.BASE)
            fails = report.failure is not None or report.refusal is not None
            assert fails == (number in suspected), (case, made.suspects, report)
            failed += fails
    assert failed


@cache
def planted() -> dict[str, Witness]:
    """Return the faults planted in torch's implementations."""
    return {entry.witness.kernel: entry.witness for entry in roster("cpu")}


def test_members_lie_beside_pages_each_for_itself() -> None:
    right = bind(torch.relu, ops.relu)
    for edge in (Edge("start"), NOWHERE):
        burst = Burst(replace(structure(), edge=edge), 60)
        edges = [member_case(right, burst, i).edge for i in range(60)]
        assert edges[0] == edge
        sides = Counter(None if e is None else e.side for e in edges)
        assert set(sides) == {"start", "end", ""}
        assert min(sides.values()) >= 8


def test_wrong_values_make_their_member_suspect() -> None:
    def wrong(x: Tensor) -> Tensor:
        out = torch.relu(x)
        return out + 1 if x[0, 0] > 0 else out

    burst = Burst(structure(), 32)
    right = bind(torch.relu, ops.relu)
    evaluator = Evaluator(right, setting_of("cpu", BUDGET, CLASSES))
    values = [evaluator.values(member_case(right, burst, i))["x"] for i in range(32)]
    positive = [i for i, x in enumerate(values) if x[0, 0] > 0]
    assert 0 < len(positive) < 32
    assert suspects(wrong, burst) == dict.fromkeys(positive, "y is wrong")


def test_a_swallowed_nan_is_suspect() -> None:
    def swallow(x: Tensor) -> Tensor:
        return torch.where(x > 0, x, 0.0)

    planted = structure(plants=(Plant((1, 2), NAN32),))
    found = suspects(swallow, Burst(planted, 4))
    assert found[0] == "y is wrong on data that are not finite"


def test_elements_that_are_not_written_are_suspect_under_either_poison() -> None:
    def partial(x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        out[:-1] = torch.relu(x[:-1])
        return out

    # Where NaN is right too, its poison alone would hide what is missing.
    planted = structure(fill=Fill("ones", 2), plants=(Plant((2, 0), NAN32),))
    assert set(suspects(partial, Burst(planted, 6))) == set(range(6))
    whole = structure((1, 3), plants=tuple(Plant((0, i), NAN32) for i in range(3)))

    def nothing(x: Tensor) -> Tensor:
        return torch.empty_like(x)

    found = suspects(nothing, Burst(whole, 8))
    assert set(found) & set(range(1, 8, 2)) == set(range(1, 8, 2))


def test_changed_arguments_and_guard_zones_are_suspect() -> None:
    def changes(x: Tensor) -> Tensor:
        out = torch.relu(x)
        x[0, 0] = 7.0
        return out

    def strays(x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        torch.clamp(x, min=0, out=out)
        whole = out.as_strided((x.numel() + 1,), (1,), out.storage_offset())
        whole[-1] = 3.0
        return out

    why = "memory changed that is not its own"
    every = dict.fromkeys(range(4), why)
    assert suspects(changes, Burst(structure(), 4)) == every
    assert set(suspects(strays, Burst(structure(), 4))) == set(range(4))


def test_raising_and_wrong_metadata_are_suspect() -> None:
    def raises(x: Tensor) -> Tensor:
        if bool(torch.isnan(x).any()):
            raise ValueError("no NaN here")
        return torch.relu(x)

    planted = structure(plants=(Plant((0, 0), NAN32),))
    found = suspects(raises, Burst(planted, 2))
    assert "ValueError: no NaN here" in found[0]

    def halves(x: Tensor) -> Tensor:
        return torch.relu(x).half()

    assert set(suspects(halves, Burst(structure(), 3))) == {0, 1, 2}


def test_in_place_and_destination_kernels_are_screened() -> None:
    def inplace(x: Tensor) -> Tensor:
        return x.clamp_(min=0)

    assert not suspects(inplace, Burst(structure(), 8), inplace="x")

    def given_out(x: Tensor, y: Tensor) -> None:
        torch.clamp(x, min=0, out=y)

    assert not suspects(given_out, Burst(structure(), 8), out="y")

    def forgets(x: Tensor, y: Tensor) -> None:
        torch.clamp(x[:-1], min=0, out=y[:-1])

    assert set(suspects(forgets, Burst(structure(), 8), out="y")) == set(range(8))


@pytest.mark.parametrize("wrong", [False, True])
def test_what_is_not_called_in_time_counts_for_nothing(wrong: bool) -> None:
    def run(x: Tensor) -> Tensor:
        return torch.relu(x) + wrong

    bound = bind(run, ops.relu)
    burst = Burst(structure(), 8, seconds=0.0)
    made = Prefilter(bound, CPU, frozenset(CLASSES)).screen(burst)
    assert (made.passed, len(made.suspects), made.dropped) == (not wrong, wrong, 7)
    assert made.conforms.get("K-VAL-01", 0) == (not wrong)


def test_what_no_burst_can_show_is_declined() -> None:
    right = bind(torch.relu, ops.relu, nonfinite="raise")
    made = Prefilter(right, CPU, frozenset(CLASSES)).screen(Burst(structure(), 4))
    assert made.unsupported
    assert Declaration().nonfinite != "raise"
