"""Monitored functions: what is seen, what is told, and what callers notice of it."""

import copy
import inspect
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

import kfuzz
from kfuzz.core.errors import BindingError, UsageError
from kfuzz.features.monitor import Violation, references
from kfuzz.features.monitor.runtime import runtime
from tests.helpers import monitors
from tests.helpers.monitors import SECONDS, settled

fresh, quiet = monitors.fresh, monitors.quiet


# Torch's own rounds along other dimensions to 16 bits between its steps.
@kfuzz.monitor("softmax", rate=1.0, intermediates="output")
def conforming(x: Tensor, dim: int = -1) -> Tensor:
    """A kernel."""
    return torch.softmax(x, dim)


def test_a_conforming_kernel_is_checked_and_not_charged() -> None:
    before = settled(conforming)
    for shape in ((4, 8), (1,), (0, 3), (2, 3, 4)):
        for x in (torch.randn(shape), torch.randn(shape).half()):
            conforming(x)
            conforming(x.t() if x.dim() == 2 else x, dim=0)
    counts = settled(conforming)
    assert counts.seen - before.seen == counts.checked - before.checked == 16
    assert (counts.violations, counts.errors) == (before.violations, before.errors)


def test_the_bits_of_the_reference_need_no_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[Violation] = []
    last: list[Tensor] = []
    fault = ""

    def reference(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        return torch.softmax(x * w, -1), x.half()

    @kfuzz.monitor(reference, rate=1.0, name="bits", on_violation=told.append)
    def faulty(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        y, z = reference(x, w)
        before, last[:] = last[:], [y.clone()]
        if fault == "stale":
            y = before[0]
        elif fault == "partly written":
            y[2:] = before[0][2:]
        elif fault == "overwriting":
            x[3] += 1.0
        return y, z

    def called(now: str) -> list[tuple[str, Any]]:
        nonlocal fault
        fault = now
        told.clear()
        faulty(torch.randn(4, 6), torch.randn(6))
        settled(faulty)
        return [(v.contract, v.index) for v in told]

    with monkeypatch.context() as patch:
        patch.setattr(references, "reference_bounds", None)
        assert not called("")
    assert len(called("stale")) == 1
    [(_, index)] = called("partly written")
    assert index[0] >= 2
    assert called("overwriting") == [("K-MEM-03", (3, 0))]
    counts = settled(faulty)
    assert (counts.checked, counts.violations, counts.errors) == (4, 3, 0)


def test_a_tuple_may_stand_for_what_torch_names() -> None:
    @kfuzz.monitor(lambda x: torch.topk(x, 2), rate=1.0, name="pairs")
    def pairs(x: Tensor) -> tuple[Tensor, Tensor]:
        values, places = torch.sort(x, descending=True)
        return values[:2].clone(), places[:2].clone()

    pairs(torch.randn(5))
    counts = settled(pairs)
    assert (counts.checked, counts.violations) == (1, 0)


def test_a_reference_that_overwrites_unnoticed_is_not_held_against_a_kernel() -> None:
    def normal(x: Tensor, mean: Tensor, var: Tensor) -> Tensor:
        return torch.nn.functional.batch_norm(x, mean, var, training=True)

    made = kfuzz.monitor(normal, rate=1.0, name="normal")(normal)
    made(torch.randn(8, 4), torch.zeros(4), torch.ones(4))
    counts = settled(made)
    assert (counts.outside, counts.violations) == (1, 0)


def test_a_wrong_value_is_told_with_its_evidence() -> None:
    told: list[Violation] = []

    @kfuzz.monitor("softmax", rate=1.0, on_violation=told.append)
    def faulty(x: Tensor, dim: int = -1) -> Tensor:
        y = torch.softmax(x, dim)
        y[1, 2] = 0.75
        return y

    x = torch.zeros(2, 4)
    faulty(x, dim=-1)
    assert settled(faulty).violations == 1
    [violation] = told
    assert violation.function == "faulty"
    assert violation.operator == "softmax"
    assert (violation.output, violation.index) == ("y", (1, 2))
    assert violation.actual == 0.75
    assert violation.expected == pytest.approx(0.25)
    assert violation.low is not None
    assert violation.low <= 0.25 <= (violation.high or 0)
    assert violation.scalars == {"dim": -1}
    assert violation.values is not None
    assert torch.equal(violation.values["x"], x)
    assert violation.inputs["x"].zero == 8


@pytest.mark.parametrize("keep", ["summary", "statistics"])
@pytest.mark.parametrize("n", [2, 31, 32])
def test_no_input_leaves_the_monitor_unless_all_is_kept(n: int, keep: str) -> None:
    told: list[Violation] = []

    @kfuzz.monitor("softmax", rate=1.0, on_violation=told.append, keep=keep)
    def faulty(x: Tensor, dim: int = -1) -> Tensor:
        return torch.softmax(x, dim) + 1.0

    x = torch.randn(n)
    faulty(x)
    settled(faulty)
    [violation] = told
    [about] = violation.inputs.values()
    assert violation.values is None
    assert (about.shape, about.nan, about.infinite) == ((n,), 0, 0)
    secret = (violation.actual, violation.index, violation.scalars or None)
    assert (secret == (None, None, None)) == (keep == "statistics")
    if keep == "summary":
        return
    assert "=" not in violation.message
    numbers = {v for v in vars(about).values() if isinstance(v, float)}
    assert not numbers & {float(e) for e in x}
    assert (about.least, about.greatest) == (None, None)
    # A statistic of few is a riddle of few unknowns.
    statistics = (about.mean, about.deviation, about.zero)
    assert (statistics == (None, None, None)) == (n < 32)


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        (lambda y: y.double(), "wrong_dtype"),
        (lambda y: y[:1], "wrong_shape"),
        (lambda y: (y, y), "wrong_type"),
        (lambda y: {"y": y}, "wrong_type"),
        (lambda y: y.to_sparse(), "wrong_type"),
    ],
)
def test_results_of_another_kind_are_violations_and_reach_the_caller(
    result: Callable[[Tensor], Any], kind: str
) -> None:
    told: list[Violation] = []

    @kfuzz.monitor("softmax", rate=1.0, on_violation=told.append)
    def changed(x: Tensor, dim: int = -1) -> Any:
        return result(torch.softmax(x, dim))

    returned = changed(torch.randn(3, 4))
    assert type(returned) is type(result(torch.randn(3, 4)))
    assert settled(changed).errors == 0
    assert [v.kind for v in told] == [kind]


def test_an_input_that_is_overwritten_is_a_violation_unless_declared() -> None:
    told: list[Violation] = []

    def in_place(x: Tensor) -> Tensor:
        return x.relu_()

    undeclared = kfuzz.monitor("relu", rate=1.0, on_violation=told.append)(in_place)
    declared = kfuzz.monitor("relu", rate=1.0, inplace="x")(in_place)
    undeclared(torch.tensor([-1.0, 2.0]))
    declared(torch.tensor([-1.0, 2.0]))
    kept = settled(declared)
    assert (kept.checked, kept.violations) == (1, 0)
    assert [v.contract for v in told] == ["K-MEM-03"]


def test_a_result_in_given_memory_is_judged_there() -> None:
    @kfuzz.monitor("add", rate=1.0, out="y")
    def into(a: Tensor, b: Tensor, y: Tensor) -> None:
        torch.add(a, b, out=y)

    @kfuzz.monitor("add", rate=1.0, out="y")
    def half(a: Tensor, b: Tensor, y: Tensor) -> Tensor:
        y[:1] = (a + b)[:1]
        return y

    a, b = torch.randn(2, 3), torch.randn(2, 3)
    into(a, b, y=torch.zeros(2, 3))
    half(a, b, torch.zeros(2, 3))
    into(a, b, a)  # the caller's doing: no result is defined
    found = settled(into)
    assert (found.checked, found.violations, found.outside) == (1, 0, 1)
    assert settled(half).violations == 1


def linear_and_sum(x: Tensor, weights: list[Tensor], *, bias: float = 0.0) -> Any:
    y = x @ weights[0] + bias
    return {"y": y, "parts": (y.sum(), [y.max()])}


def test_a_plain_reference_judges_nested_arguments_and_results() -> None:
    told: list[Violation] = []

    @kfuzz.monitor(linear_and_sum, rate=1.0)
    def right(x: Tensor, weights: list[Tensor], *, bias: float = 0.0) -> Any:
        return linear_and_sum(x, weights, bias=bias)

    @kfuzz.monitor(linear_and_sum, rate=1.0, on_violation=told.append)
    def wrong(x: Tensor, weights: list[Tensor], *, bias: float = 0.0) -> Any:
        made = linear_and_sum(x, weights, bias=bias)
        return {**made, "parts": (made["parts"][0] * 1.1, made["parts"][1])}

    @kfuzz.monitor(linear_and_sum, rate=1.0, on_violation=told.append)
    def flat(x: Tensor, weights: list[Tensor], *, bias: float = 0.0) -> Any:
        return linear_and_sum(x, weights, bias=bias)["y"]

    for function in (right, wrong, flat):
        function(torch.rand(3, 4), [torch.rand(4, 5)], bias=2.0)
        function(torch.rand(3, 4).half(), [torch.rand(4, 5).half()])
    found = settled(right)
    assert (found.checked, found.violations) == (2, 0)
    kinds = [(v.function, str(v.kind)) for v in told]
    assert kinds == [("wrong", "value")] * 2 + [("flat", "wrong_type")] * 2


def test_a_reference_that_computes_in_place_is_no_reason_for_a_charge() -> None:
    def add_one(x: Tensor) -> Tensor:
        return x.add_(1.0)

    def kernel(x: Tensor) -> Tensor:
        return x.add_(1.0)

    declared = kfuzz.monitor(add_one, rate=1.0, inplace="x")(kernel)
    silent = kfuzz.monitor(add_one, rate=1.0)(kernel)
    declared(torch.zeros(3))
    silent(torch.zeros(3))
    found = settled(declared)
    assert (found.checked, found.violations) == (1, 0)
    assert settled(silent).violations == 0


class Rows(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(6))
        self.eps = 0.5

    @kfuzz.monitor("rms_norm", rate=1.0)
    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.rms_norm(x, (6,), self.weight, self.eps)


def test_methods_take_weights_and_scalars_from_their_module() -> None:
    module = Rows()
    module(torch.randn(4, 6)).sum().backward()
    found = settled(Rows.forward)
    assert (found.checked, found.violations, found.outside) == (1, 0, 0)


def test_a_module_is_monitored_and_copied_and_pickled_as_before() -> None:
    module = kfuzz.monitor("layer_norm", rate=1.0)(torch.nn.LayerNorm(6, eps=0.25))
    monitor = module.forward.monitor
    x = torch.randn(3, 6)
    twin = copy.deepcopy(module)
    with torch.no_grad():
        twin.weight.mul_(2.0)
    assert torch.equal(twin(x), 2.0 * module(x))
    again = pickle.loads(pickle.dumps(module))
    assert torch.equal(again(x), module(x))
    assert kfuzz.monitor.flush(SECONDS)
    found = monitor.statistics()
    assert (found.checked, found.violations) == (3, 0)


class Softmax(torch.autograd.Function):
    @staticmethod
    @kfuzz.monitor("softmax", rate=1.0)
    def forward(ctx: Any, x: Tensor, dim: int) -> Tensor:
        y = torch.softmax(x, dim)
        ctx.save_for_backward(x, y)
        ctx.dim = dim
        return y

    @staticmethod
    @kfuzz.monitor(
        "softmax.backward",
        rate=1.0,
        arguments=lambda ctx, grad: {
            "x": ctx.saved_tensors[0], "grad_y": grad, "dim": ctx.dim
        },
    )  # fmt: skip
    def backward(ctx: Any, grad: Tensor) -> Any:
        y = ctx.saved_tensors[1]
        factor = 1.0 if grad.shape[0] > 1 else 1.5
        return factor * y * (grad - (grad * y).sum(ctx.dim, keepdim=True)), None


def test_both_halves_of_an_autograd_function_are_judged() -> None:
    for rows in (4, 1):
        x = torch.randn(rows, 5, requires_grad=True)
        Softmax.apply(x, -1).square().sum().backward()
    forward, backward = settled(Softmax.forward), settled(Softmax.backward)
    assert (forward.checked, forward.violations) == (2, 0)
    assert (backward.checked, backward.violations) == (2, 1)


def test_a_bound_kernel_stays_one() -> None:
    bound = kfuzz.kernel(
        kfuzz.contracts.operators.softmax, name="bound", layouts="contiguous"
    )(lambda x, dim=-1: torch.softmax(x, dim))
    monitored = kfuzz.monitor(rate=1.0)(bound)
    assert isinstance(monitored, kfuzz.contracts.BoundKernel)
    x = torch.randn(4, 6)
    assert torch.equal(monitored(x), bound(x))
    monitored(x.t())  # not what it declares: none of its promises
    found = settled(monitored)
    assert (found.checked, found.outside, found.violations) == (1, 1, 0)


def test_the_function_is_what_it_was() -> None:
    assert inspect.signature(conforming) == inspect.signature(
        inspect.unwrap(conforming)
    )
    assert (conforming.__name__, conforming.__doc__) == ("conforming", "A kernel.")
    assert pickle.loads(pickle.dumps(conforming)) is conforming


def test_exceptions_pass_unchanged_and_free_what_was_taken() -> None:
    error = KeyError("its own")

    @kfuzz.monitor("softmax", rate=1.0)
    def raising(x: Tensor, dim: int = -1) -> Tensor:
        raise error

    for _ in range(3):
        with pytest.raises(KeyError) as caught:
            raising(torch.randn(3, 4))
        assert caught.value is error
    found = settled(raising)
    assert (found.raised, found.checked) == (3, 0)

    assert runtime.memory.used == 0


def test_failing_references_callbacks_and_detectors_never_reach_the_caller() -> None:
    def reference(x: Tensor) -> Tensor:
        raise ValueError("a reference")

    def callback(violation: Violation) -> None:
        raise ValueError("a callback")

    def broken(tensors: Sequence[Tensor]) -> bool:
        raise ValueError("a detector")

    held = kfuzz.monitor(reference, rate=1.0, detectors=[broken])(torch.sin)
    wrong = kfuzz.monitor("relu", rate=1.0, on_violation=callback, name="wrong")(
        lambda x: x + 1.0
    )
    for _ in range(3):
        held(torch.ones(2))
        wrong(torch.ones(2))
    assert settled(held).checked == 0
    assert settled(held).errors >= 3
    found = settled(wrong)
    assert (found.violations, found.errors) == (3, 3)


@pytest.mark.parametrize("make", ["async", "generator", "class", "twice"])
def test_what_has_no_call_to_look_at_is_refused(make: str) -> None:
    async def later() -> None: ...

    def several() -> Iterator[int]:
        yield 1

    given: Any = {
        "async": later, "generator": several, "class": Softmax, "twice": conforming,
    }[make]  # fmt: skip
    with pytest.raises(UsageError):
        kfuzz.monitor("softmax")(given)


def test_a_signature_that_does_not_fit_is_told_at_once() -> None:
    with pytest.raises(BindingError, match="softmax"):
        kfuzz.monitor("softmax", name="f")(lambda a, b, c: a)
    with pytest.raises(UsageError, match="softmax"):
        kfuzz.monitor("sofmax", name="f")(lambda x: x)
    with pytest.raises(BindingError, match="one parameter"):
        kfuzz.monitor(lambda x, y: x + y, inplace=("x", "y"), name="two")(torch.add)
    with pytest.raises(UsageError, match="keep"):
        kfuzz.monitor("softmax", corpus="corpus", keep="summary")


def test_calls_the_contract_does_not_cover_are_counted_apart() -> None:
    conforming_calls = settled(conforming)
    conforming(torch.randn(2, 3, dtype=torch.float64))
    conforming(torch.randn(1, 1, 1, 1, 1))
    with torch.autocast("cpu"):
        conforming(torch.randn(2, 3))
    found = settled(conforming)
    assert found.outside - conforming_calls.outside == 3
    assert found.violations == conforming_calls.violations


def test_new_signatures_are_looked_at_whatever_the_rate() -> None:
    seldom = kfuzz.monitor("relu", rate=0.0, name="seldom")(torch.relu)
    for _ in range(50):
        for n in (3, 4):
            seldom(torch.randn(n))
    found = settled(seldom)
    assert (found.seen, found.sampled, found.checked) == (100, 2, 2)
    seldom(torch.randn(4, 3).t())
    seldom(torch.randn(3).half())
    assert settled(seldom).new_signatures == 4


def test_a_checker_too_slow_drops_calls_and_stays_within_its_bytes() -> None:
    release, most = threading.Event(), 0

    def slow(x: Tensor) -> Tensor:
        release.wait(SECONDS)
        return x.relu()

    capacity = 1 << 16
    kfuzz.monitor.start(ring_bytes=capacity, pending=8)

    function = kfuzz.monitor(slow, rate=1.0, name="slow")(torch.relu)
    x = torch.randn(1024)
    try:
        for _ in range(200):
            assert torch.equal(function(x), x.relu())
            most = max(most, runtime.memory.used)
    finally:
        release.set()
    found = settled(function)
    assert most <= capacity
    assert found.dropped > 150
    assert found.checked + found.dropped == found.sampled == 200
    assert runtime.memory.used == 0


def test_calls_in_many_threads_are_all_counted() -> None:
    shared = kfuzz.monitor("relu", rate=0.1, name="shared")(torch.relu)
    failures: list[BaseException] = []

    def calls(n: int) -> None:
        try:
            for _ in range(200):
                x = torch.randn(n)
                assert torch.equal(shared(x), x.relu())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=calls, args=(n,)) for n in (3, 5, 7, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    found = settled(shared)
    assert (found.seen, found.violations, found.errors) == (800, 0, 0)
    assert found.checked + found.dropped == found.sampled


def test_nothing_is_looked_at_once_stopped() -> None:
    kfuzz.monitor.stop(SECONDS)
    before = conforming.monitor.statistics()
    conforming(torch.randn(7, 3))
    assert conforming.monitor.statistics() == before
    with kfuzz.monitor.running():
        conforming(torch.randn(7, 3))
    assert conforming.monitor.statistics().checked == before.checked + 1


def test_tensors_under_transforms_are_passed_on() -> None:
    x = torch.randn(3, 4)
    assert torch.equal(torch.vmap(conforming)(x), torch.softmax(x, -1))
    grad = torch.func.grad(lambda y: conforming(y).square().sum())
    wanted = torch.func.grad(lambda y: torch.softmax(y, -1).square().sum())
    assert torch.equal(grad(x), wanted(x))
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False):
        conforming(x)
    meta = conforming(torch.randn(2, 2, device="meta"))
    assert meta.device.type == "meta"
    assert settled(conforming).violations == 0
