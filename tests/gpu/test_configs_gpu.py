"""Compiled autotuned kernels, each configuration, and CUDA graphs, on a GPU.

Everything is judged in this process, but for the searches, whose children are
replaced where a capture breaks.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor

from kfuzz.contracts import operators as ops
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.witnesses.classes import configured
from kfuzz.contracts.witnesses.classes import kept as memory
from kfuzz.core.budget import Depth
from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.core.verdict import CaseReport, Kind, Verdict
from kfuzz.evaluation.evaluator import Evaluator
from kfuzz.execution.calls.batches import Overlapping
from kfuzz.execution.calls.results import Invocation
from kfuzz.execution.calls.tuning import CALLS, Measuring
from kfuzz.execution.device.graphs import replayed
from kfuzz.execution.interpreter.watch import Launches, watch
from kfuzz.execution.memory.poison import Poison
from kfuzz.numerics.run import Expected, Run
from tests.helpers.judged_cases import bench_of

pytestmark = pytest.mark.gpu
BLOCKS = (64, 128, 256)
CONFIGS = [triton.Config({"BLOCK": b}) for b in BLOCKS]
# Eight stages of 64 KiB: more shared memory than any device gives a block.
TOO_MUCH = triton.Config({"BLOCK": 128}, num_stages=8, num_warps=8)
MODEST = triton.Config({"BLOCK": 32}, num_stages=2)
DEPTH = 256


@triton.jit
def add_block(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) + BLOCK, mask=at < n)


@triton.jit
def product(a, b, c, k, BLOCK: tl.constexpr):
    """c = a b, of BLOCK x k and k x BLOCK: operands wait in shared memory."""
    rows, depth = tl.arange(0, BLOCK), tl.arange(0, 64)
    left = a + rows[:, None] * k + depth[None, :]
    right = b + depth[:, None] * BLOCK + rows[None, :]
    total = tl.zeros([BLOCK, BLOCK], tl.float32)
    for _ in range(0, k, 64):
        total += tl.dot(tl.load(left), tl.load(right))
        left += 64
        right += 64 * BLOCK
    tl.store(c + rows[:, None] * BLOCK + rows[None, :], total)


def tuned(function: Any, configs: list[Any], **options: Any) -> Any:
    return triton.autotune(configs, key=[], **options)(function)


def launched(
    made: Any, number: int, measuring: Measuring | None = None
) -> tuple[float, Launches]:
    x = torch.zeros(512, device="cuda")
    with watch(config=number, measuring=measuring) as seen:
        made[lambda meta: (triton.cdiv(512, meta["BLOCK"]),)](x, 512)
    return x[0].item(), seen


# Configurations ---------------------------------------------------------------


@pytest.mark.parametrize("number", range(4))
def test_the_number_chooses_and_nothing_is_timed(number: int) -> None:
    made = tuned(add_block, CONFIGS)
    value, seen = launched(made, number)
    assert value == BLOCKS[number % 3], seen
    assert f"BLOCK: {BLOCKS[number % 3]}," in seen.config
    assert seen.configs == 3
    assert made.cache == {}
    assert not hasattr(made, "bench_time"), "it was timed"


def test_a_configuration_that_the_device_refuses_is_passed_over() -> None:
    made = tuned(product, [TOO_MUCH, MODEST])
    a = torch.ones(128, DEPTH, device="cuda")
    c = torch.zeros(128, 128, device="cuda")
    with watch(config=0) as seen:
        made[(1,)](a, a, c, DEPTH)
    assert "BLOCK: 32," in seen.config, f"{seen.config} ran"
    assert c.flatten()[0].item() == DEPTH, c.flatten()[:4].tolist()


def test_measuring_restores_what_is_declared() -> None:
    for options, cold in (({"restore_value": ["x"]}, 64.0), ({}, None)):
        made = tuned(add_block, CONFIGS, **options)
        with Measuring(most=2) as measuring:
            first, _ = launched(made, 0, measuring)
            second, seen = launched(made, 0, measuring)
        expected = cold or CALLS * (64 + 128) + 64
        assert (first, second) == (expected, 64), (options, first, second, seen)
        assert made.cache == {}


def judged(
    function: Callable[..., object],
    case: Case,
    *,
    operator: Operator = ops.relu,
    **claims: object,
) -> tuple[CaseReport, Evaluator]:
    evaluator = bench_of(operator, function, backend="cuda:0", **claims)
    evaluator.captures = True  # though this process is no child
    return evaluator.judge(case, Depth.FULL), evaluator


def case(*shape: int, config: int = 0, family: str = "randn", **scalars: float) -> Case:
    names = tuple(f"d{i}" for i in range(len(shape)))
    spec = TensorSpec(shape, names, "float32", fill=Fill(family, 2))
    return Case({"x": spec}, scalars, config=config)


def test_a_bad_configuration_is_found_and_named() -> None:
    report, _ = judged(
        lambda x, dim=-1: configured.launch(x, dim, configured.tuned_unmasked),
        case(2, 100, dim=-1),
        operator=ops.softmax,
    )
    assert report.failure is not None, report
    assert report.failure.contract == "C-CMP-02", report.failure
    assert "BLOCK: 256" in report.failure.message, report.failure.message


def test_its_good_configuration_conforms() -> None:
    report, _ = judged(
        lambda x, dim=-1: configured.launch(x, dim, configured.tuned_unmasked),
        case(2, 100, config=1, dim=-1),
        operator=ops.softmax,
    )
    assert report.failure is None, report.failure
    assert report.verdicts["C-CMP-02"] is Verdict.CONFORMS


def test_a_missing_restore_is_found_and_its_twin_is_right() -> None:
    for made, fails in ((configured.in_place_unrestored, 1), (configured.in_place, 0)):
        report, _ = judged(
            lambda x, negative_slope=0.01, made=made: configured.leak(
                x, negative_slope, made
            ),
            case(5, 33, negative_slope=0.01),
            operator=ops.leaky_relu,
            inplace="x",
            layouts="contiguous",
        )
        assert bool(report.failure) == bool(fails), report.failure
        if report.failure is not None:
            assert report.failure.contract == "C-CMP-02", report.failure
            assert report.failure.kind is Kind.TUNING_DEPENDENT, report.failure


# Graphs -----------------------------------------------------------------------

ONE = torch.tensor([1.0, -1, 2, -2])
TWO = torch.tensor([-3.0, 3, -4, 4])


def replays(function: Callable[[Tensor], object]) -> tuple[tuple[Run, ...], bool]:
    spec = TensorSpec((4,), ("d0",), "float32", fill=Fill("randn"))
    asked = Invocation(
        function, Case({"x": spec}), {"y": Expected((4,), torch.float32)},
        alignment=16, around=Poison.NAN,
    )  # fmt: skip
    common = Overlapping(asked, torch.device("cuda:0"), Poison.NAN)
    one, two = ONE.cuda(), TWO.cuda()
    return replayed(common, {"x": one}, [{"x": two}, {"x": one}])


def healthy() -> bool:
    """Whether torch allocates, computes and draws as before."""
    x = torch.randn(1000, device="cuda")
    return bool(torch.isfinite(x).all()) and torch.relu(x).sum().item() > 0


def test_replays_give_what_their_data_ask_for() -> None:
    for _ in range(3):
        runs, broken = replays(torch.relu)
        assert not broken
        found = [r.outputs["y"].tolist() for r in runs]
        assert found == [[0, 3, 0, 4], [1, 0, 2, 0]]
    assert healthy()


def test_replays_take_and_give_back_no_memory_in_the_long_run() -> None:
    replays(torch.relu)
    torch.cuda.synchronize()
    before = torch.cuda.memory_reserved()
    for _ in range(20):
        replays(torch.relu)
    extended = torch.cuda.memory_reserved() - before
    assert extended <= 1 << 22, f"{extended} bytes more are reserved"


def host_value(x: Tensor) -> Tensor:
    return torch.relu(x) * 1.0 if float(x.max()) > 0 else torch.zeros_like(x)


def waiting(x: Tensor) -> Tensor:
    y = torch.relu(x)
    torch.cuda.synchronize()
    return y


def by_the_host(x: Tensor) -> Tensor:
    return torch.relu(x.cpu()).to(x.device)


@pytest.mark.parametrize("function", [host_value, waiting, by_the_host])
def test_what_waits_is_not_captured_and_breaks_nothing(
    function: Callable[[Tensor], Tensor],
) -> None:
    assert replays(function) == ((), False)
    assert healthy()
    report, evaluator = judged(function, case(4, 8))
    assert report.failure is None, report.failure
    assert not evaluator.spent


def test_what_the_next_replay_finds_unclean_is_charged() -> None:
    kept: dict[object, memory.Pair] = {}
    report, evaluator = judged(lambda x: memory.in_turn(kept, x, own=False), case(4, 8))
    assert report.failure is not None, report
    assert report.failure.contract == "K-REF-01", report.failure
    assert report.failure.kind is Kind.STALE_RESULT
    assert "CUDA graph" in report.failure.message
    kept.clear()
    report, evaluator = judged(lambda x: memory.in_turn(kept, x, own=True), case(4, 8))
    assert report.failure is None, report.failure
    assert not evaluator.spent


def test_a_kept_value_of_the_first_data_is_charged() -> None:
    kept: dict[object, Tensor] = {}

    def memo(x: Tensor) -> Tensor:
        kept.setdefault(x.shape, torch.relu(x))
        return kept[x.shape].clone()

    report, _ = judged(memo, case(4, 8))
    assert report.failure is not None, report
    assert report.failure.contract == "K-REF-01", report.failure


def test_autotuned_and_in_place_kernels_are_captured() -> None:
    def leak(x: Tensor) -> Tensor:
        return configured.leak(x, 0.5, configured.in_place)

    report, evaluator = judged(
        leak,
        case(5, 33, family="negative"),
        operator=ops.leaky_relu.fixed(negative_slope=0.5),
        inplace="x",
        layouts="contiguous",
    )
    assert report.failure is None, report.failure
    assert not evaluator.spent
    assert evaluator.captures
