"""Gradients: what is bound, what is admitted, and how autograd is asked."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import kfuzz
from kfuzz import strategies as ks
from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.binding import REGISTRY, BoundKernel
from kfuzz.contracts.classes import CLASSES
from kfuzz.contracts.gradients.operators import (
    autograd_bound,
    gradients_of,
    vector_jacobian,
)
from kfuzz.contracts.operator import Operator, alone
from kfuzz.contracts.oracle import accept, pose
from kfuzz.contracts.suite import every_contract, find_contract
from kfuzz.contracts.witnesses.backward import gradients
from kfuzz.contracts.witnesses.backward.faults import around, without_strides
from kfuzz.core.budget import Depth
from kfuzz.core.declaration import Declaration
from kfuzz.core.errors import BindingError
from kfuzz.core.finding import Finding, Target, host_fingerprint
from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.core.verdict import CaseReport, Verdict
from kfuzz.engine.scripts import script
from kfuzz.evaluation.evaluator import Evaluator, setting_of
from kfuzz.numerics.acceptance import Problem
from kfuzz.numerics.compare import compare
from kfuzz.numerics.formats import FORMATS
from kfuzz.strategies.parameters import IndexParameter
from tests.helpers.budgets import SIZE_BUDGETS
from tests.helpers.in_process import InProcess, taken_to_minimum
from tests.helpers.judged_cases import pinned as spec
from tests.helpers.kernel_draws import drawn

DIFFERENTIABLE = sorted(n for n, o in ops.OPERATORS.items() if o.gradient)
SIZES = {"B": 2, "H": 4, "G": 2, "S": 3, "T": 5, "D": 4, "E": 4, "C": 4, "L": 3}


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REGISTRY, __name__, [])


def bound(
    operator: Operator, function: Callable[..., Any], **claims: Any
) -> BoundKernel:
    name = f"f{len(REGISTRY[__name__])}"
    made = kernel(operator, name=name, gradients=True, **claims)(function)
    backward: BoundKernel = made.backward  # type: ignore[attr-defined]
    return backward


def bench_of(made: BoundKernel) -> Evaluator:
    return Evaluator(made, setting_of("cpu", SIZE_BUDGETS["cpu"], frozenset(CLASSES)))


def judged(
    made: BoundKernel,
    tensors: dict[str, TensorSpec],
    depth: Depth = Depth.SEARCH,
    **scalars: Any,
) -> CaseReport:
    case = Case(tensors, scalars)
    assert made.operator.accepts(case, made.declaration)
    return bench_of(made).judge(case, depth)


def attributed(report: CaseReport) -> str:
    failure = report.failure
    return "" if failure is None else f"{failure.contract} {failure.detail}".strip()


def example(operator: Operator) -> list[Tensor]:
    """Return small arguments of gradients, float64."""
    random = torch.Generator().manual_seed(0)
    made = []
    for parameter in operator.tensors.values():
        lead = [2, 3] if parameter.variadic else []
        lead = lead[:-1] if parameter.without else lead
        shape = [*lead, *(SIZES.get(n, 4) for n in parameter.names)]
        if isinstance(parameter, IndexParameter):
            made.append(torch.randint(4, shape, generator=random))
        elif parameter.kind == "bool":
            made.append(torch.randint(2, shape, generator=random).bool())
        else:
            x = torch.randn(shape, dtype=torch.float64, generator=random)
            made.append(x.abs() if parameter.role == "variance" else x)
    return made


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_a_rule_gives_the_derivative_of_the_operators_oracle(name: str) -> None:
    forward = getattr(ops, name)
    for made in gradients_of(forward).values():
        scalars = {n: p.default for n, p in made.scalars.items()}
        given = example(made)
        grads = [n for n in made.tensors if n.startswith("grad_")]
        taken = [n for n in made.tensors if n not in grads]
        product = vector_jacobian(
            forward.oracle,
            arguments=len(taken),
            places=range(len(grads)),
            wanted=[taken.index(n[1:]) for n in made.outputs],
        )
        found = made.oracle(*given, **scalars)
        wanted = product(*given, **scalars)
        for y, right in zip(
            [found] if isinstance(found, Tensor) else found, wanted, strict=True
        ):
            assert y.shape == right.shape
            torch.testing.assert_close(y, right, rtol=1e-10, atol=1e-12)


def test_gradients_are_a_kernel_beside_the_forward_one() -> None:
    @kernel(ops.layer_norm, gradients=("weight", "x"), dtypes=("float16", "float32"))
    def norm(x: Tensor, weight: Tensor, eps: float = 1e-5) -> Tensor:
        return functional.layer_norm(x, x.shape[-1:], weight, None, eps)

    backward: BoundKernel = norm.backward  # type: ignore[attr-defined]
    assert [b.name for b in REGISTRY[__name__]] == ["norm", "norm.backward"]
    assert backward.operator.signature_text() == (
        "layer_norm.backward(x, weight, grad_y, *, eps)"
    )
    assert backward.operator.outputs == ("dx", "dweight")
    assert backward.arguments.scalars == ("eps",)
    assert backward.declaration.dtypes == ("float32", "float16")
    x, g = torch.randn(3, 5), torch.randn(3, 5)
    dx, dw = backward(x, torch.ones(5), g, eps=1e-5)
    leaf = x.clone().requires_grad_()
    functional.layer_norm(leaf, (5,)).backward(g)
    torch.testing.assert_close(dx, leaf.grad)
    assert dw.shape == (5,)
    assert not x.requires_grad


def test_two_shapes_of_an_output_are_two_kernels() -> None:
    def loss(x: Tensor, t: Tensor, reduction: str = "mean") -> Tensor:
        return functional.cross_entropy(x, t, reduction=reduction)

    kernel(ops.cross_entropy, name="f", gradients=True)(loss)
    names = [b.name for b in REGISTRY[__name__]]
    assert names == ["f", "f.backward", "f.backward_none"]
    kernel(ops.cross_entropy, name="mean", gradients=True)(
        lambda x, t: functional.cross_entropy(x, t)
    )
    assert [b.name for b in REGISTRY[__name__]][3:] == ["mean", "mean.backward"]


@pytest.mark.parametrize(
    ("operator", "claims", "text"),
    [
        (ops.softmax, {"gradients": ("y",)}, "gradients names 'y'"),
        (ops.softmax, {"gradients": 3}, "neither True nor names"),
        (ops.softmax, {"gradients": True, "inplace": ("x",)}, "inplace="),
        (ops.argmax, {"gradients": True}, "no gradients that kfuzz judges"),
        (ops.relu, {"gradients": True, "dtypes": "float64"}, "judged in float32"),
    ],
)
def test_what_has_no_gradients_is_refused_at_the_binding(
    operator: Operator, claims: dict[str, Any], text: str
) -> None:
    with pytest.raises(BindingError, match=text):
        kernel(operator, name="f", **claims)(lambda x: x)


def test_operators_of_the_users_own_are_differentiated_by_autograd() -> None:
    mine = kfuzz.Operator(
        "mine",
        inputs={"x": ks.tensors("* K"), "w": ks.tensors("N K", role="weight")},
        oracle=lambda x, w: torch.softmax(x, -1) @ w.mT,
    )
    made = bound(mine, lambda x, w: torch.softmax(x, -1) @ w.mT)
    assert made.operator.tensors["grad_y"].dims == "* N"
    tensors = {
        "x": spec([[1.0, 2.0, 0.5]], "d0 K"),
        "w": spec([[1.0, -1.0, 2.0], [0.5, 3.0, 1.0]], "N K"),
        "grad_y": spec([[1.0, -3.0]], "d0 N"),
    }
    assert judged(made, tensors).verdicts["K-GRD-01"] is Verdict.CONFORMS
    wrong = bound(
        replace(mine, name="wrong"), lambda x, w: torch.softmax(x, -1).detach() @ w.mT
    )
    report = judged(wrong, tensors)
    assert attributed(report) == "K-GRD-01"
    assert report.failure is not None
    assert report.failure.output == "dx"
    with pytest.raises(BindingError, match="are none of the arguments'"):
        gradients_of(
            replace(mine, oracle=lambda x, w: (x @ w.mT)[..., None] * x.new_ones(9))
        )


def test_gradients_of_reductions_lack_the_reduced_axis() -> None:
    made = bound(ops.sum, lambda x, dim: x.sum(dim))
    cases = drawn(made, 60)
    layouts = set()
    for case in cases:
        x, grad = case.tensors["x"], case.tensors["grad_y"]
        axis = int(case.scalars["dim"]) % len(x.shape)
        assert grad.axes == (*x.axes[:axis], *x.axes[axis + 1 :])
        assert made.operator.accepts(case, made.declaration)
        layouts.add(grad.is_contiguous)
        assert all(s.fill is not None for s in case.tensors.values())
    assert layouts == {True, False}
    bad = replace(cases[0].tensors["grad_y"], shape=(7, 7, 7, 7), axes=tuple("abcd"),
                  strides=None)  # fmt: skip
    assert not made.operator.accepts(
        cases[0].with_tensor("grad_y", bad), made.declaration
    )


BACKWARD = {w.kernel: w for w in gradients.WITNESSES}
ROW = {"x": spec([1.0, 2.0, 3.0], "d0"), "grad_y": spec([1.0, 2.0, 4.0], "d0")}


def test_strides_of_the_gradient_are_seen() -> None:
    right = bound(ops.relu, torch.relu)
    wrong = bound(ops.relu, around(torch.relu, before=without_strides))
    strided = {**ROW, "grad_y": spec([1.0, 2.0, 4.0], "d0", strides=(3,))}
    for made in (right, wrong):
        assert judged(made, ROW).verdicts["K-GRD-01"] is Verdict.CONFORMS
    assert judged(right, strided).verdicts["K-GRD-01"] is Verdict.CONFORMS
    report = judged(wrong, strided)
    assert attributed(report) == "K-GRD-01"
    assert report.failure is not None
    assert " in a gradient: dx[" in report.failure.message
    assert {n for n in report.verdicts if not n.startswith("K-")} == set()


@pytest.mark.parametrize(
    ("name", "detail"),
    [
        ("gradient_matmul_mixed", "alone"),
        ("gradient_matmul_twice", "twice"),
        ("gradient_softmax_shared", "later"),
        ("gradient_tanh_once", "again"),
        ("gradient_exp_unseen", "overwritten"),
    ],
)
def test_each_other_way_of_asking_shows_what_it_is_for(name: str, detail: str) -> None:
    made = BACKWARD[f"{name}.backward"].load()
    values = [[1.0, 2.0], [0.5, -1.0]]
    axes = {n: p.dims for n, p in made.operator.tensors.items()}
    tensors = {
        n: spec(values, "d0 d1" if dims == "*" else dims) for n, dims in axes.items()
    }
    scalars = {n: -1 for n in made.arguments.scalars}
    assert attributed(judged(made, tensors, **scalars)) == f"K-GRD-01 {detail}"
    assert judged(made, tensors, Depth.BASE, **scalars).failure is None


@pytest.mark.slow
def test_what_another_way_shows_is_taken_to_a_minimum_in_that_way() -> None:
    """By the base probe all passes, and the finding seems to need all that it has."""
    made = BACKWARD["gradient_softmax_shared.backward"].load()
    values = spec([[1.0, 2.0, -3.0], [0.5, -1.0, 2.5]], "d0 d1")
    case = Case({"x": values, "grad_y": values}, {"dim": -1})
    runner = InProcess(made)
    finding = taken_to_minimum(runner, case, runner.judge(case, Depth.FULL))
    assert finding.case.lead.shape == (3,)  # two turned give the same softmax
    assert finding.explanation is not None
    assert not [s for s in finding.explanation.lines if "negative numbers" in s]


@pytest.mark.slow
def test_right_functions_of_autograd_pass_in_every_way() -> None:
    for name in ("softmax", "matmul"):
        made = BACKWARD[f"gradient_{name}.backward"].load()
        axes = {n: p.dims for n, p in made.operator.tensors.items()}
        tensors = {
            n: spec([[1.0, 2.0], [0.5, -1.0]], "d0 d1" if dims == "*" else dims)
            for n, dims in axes.items()
        }
        scalars = {n: -1 for n in made.arguments.scalars}
        report = judged(made, tensors, Depth.FULL, **scalars)
        assert report.failure is None
        assert report.verdicts["K-GRD-01"] is Verdict.CONFORMS


def admitted(
    operator: Operator, grads: Sequence[float], x: Sequence[float], got: list[float],
    **claims: Any,
) -> bool:  # fmt: skip
    """Whether a gradient of a row is admitted, by its bound and by its relation."""

    def given(*_: Tensor, **__: Any) -> Tensor:
        return torch.tensor(got)

    made = bound(operator, lambda x, **_: x, **claims)
    made.function = given
    reduced = "dim" in operator.inputs
    grad = spec(grads[0], "") if reduced else spec(grads, "d0")
    scalars = {"dim": -1} if reduced else {}
    tensors = {"x": spec(x, "d0"), "grad_y": grad}
    report = judged(made, tensors, Depth.BASE, **scalars)
    return report.failure is None


def test_nothing_is_said_of_the_gradient_of_a_mean_of_no_row() -> None:
    """Torch gives 0 for the gradient of its NaN, a product with 1 / 0 gives NaN."""
    for ignored, wrong in ((2, False), (1, True)):
        target = torch.tensor([-100] * ignored + [1] * (2 - ignored))
        made = bound(
            ops.cross_entropy.fixed(reduction="mean"),
            lambda x, t: functional.cross_entropy(x, t) + x.sum() * float("nan"),
        )
        tensors = {
            "logits": spec([[1.0, 2.0], [3.0, 4.0]], "N C"),
            "target": TensorSpec(
                (2,), ("N",), "int64", values=target.numpy().tobytes(), below="C"
            ),
            "grad_y": spec(1.0, ""),
        }
        report = judged(
            made, tensors, Depth.BASE, ignore_index=-100, label_smoothing=0.0,
            reduction="mean",
        )  # fmt: skip
        assert bool(attributed(report)) is wrong


@pytest.mark.parametrize("share", [0.0, 1.0, 0.25])
def test_at_a_kink_any_subgradient_is_right(share: float) -> None:
    assert admitted(ops.relu, [2.0, 2.0], [0.0, 1.0], [2 * share, 2.0])
    assert not admitted(ops.relu, [2.0, 2.0], [0.0, 1.0], [2.5, 2.0])
    assert not admitted(ops.relu, [2.0, 2.0], [-1.0, 1.0], [2 * share + 0.1, 2.0])


def test_equal_maxima_share_in_any_way_that_adds_up() -> None:
    tied = [3.0, 3.0, 1.0]
    for right in ([1.0, 1.0, 0.0], [2.0, 0.0, 0.0], [0.0, 2.0, 0.0]):
        assert admitted(ops.amax, [2.0], tied, right)
    for wrong in ([2.0, 2.0, 0.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0]):
        assert not admitted(ops.amax, [2.0], tied, wrong)


@pytest.mark.parametrize(
    "reference",
    [
        lambda x: x.amax(-1),
        lambda x: x.max(-1).values,
        lambda x: x.sort(-1).values[..., -1],
        lambda x: torch.maximum(torch.maximum(x[..., 0], x[..., 1]), x[..., 2]),
    ],
    ids=["amax", "max", "sort", "maximum"],
)
def test_equal_maxima_of_a_plain_reference_share_in_any_way(
    reference: Callable[[Tensor], Tensor],
) -> None:
    inputs = {"x": ks.tensors("M N")}
    made = bound(
        kfuzz.reference(reference, inputs, name="greatest", shape_class="N >= 3"),
        reference,
    )
    x = [[3.0, 3.0, 1.0], [1.0, 2.0, 3.0]]

    def passes(row: list[float], other: list[float]) -> bool:
        made.function = lambda *_, **__: torch.tensor([row, other])
        tensors = {"x": spec(x, "M N"), "grad_y": spec([2.0, 2.0], "M")}
        return judged(made, tensors, Depth.BASE).failure is None

    for right in ([1.0, 1.0, 0.0], [2.0, 0.0, 0.0], [0.0, 2.0, 0.0]):
        assert passes(right, [0.0, 0.0, 2.0])
    for wrong in ([0.0, 0.0, 1.0], [0.0, 2.0, 0.0], [1.0, 0.0, 1.0]):
        assert not passes([1.0, 1.0, 0.0], wrong)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_at_an_end_of_a_choice_either_derivative_is_right(share: float) -> None:
    def clipped(x: Tensor) -> Tensor:
        return torch.where(x > 1, 3 - x, torch.clamp(x, -1, None))

    operator = kfuzz.reference(clipped, {"x": ks.tensors("*")}, name="clipped")
    for at_end in (share, -share):
        got = [2 * share, 2 * at_end, 2.0]
        assert admitted(operator, [2.0] * 3, [-1.0, 1.0, 0.5], got)
    assert not admitted(operator, [2.0] * 3, [-1.0, 1.0, 0.5], [0.0, 2.0, 1.0])


def test_what_is_not_finite_is_judged_where_it_is_declared_alone() -> None:
    nan = math.nan
    assert admitted(ops.relu, [nan, 1.0], [1.0, 1.0], [7.0, 9.0])
    claims = {"nonfinite": "propagate"}
    assert not admitted(ops.relu, [nan, 1.0], [1.0, 1.0], [7.0, 9.0], **claims)
    assert admitted(ops.relu, [nan, 1.0], [1.0, 1.0], [nan, 9.0], **claims)
    plain = bound(ops.relu, torch.relu)
    families = {s.fill.family for c in drawn(plain, 80) for s in c.tensors.values()
                if s.fill}  # fmt: skip
    assert not {f for f in families if "nan" in f or "inf" in f}


def test_a_gradient_from_the_stored_result_is_right_in_narrow_formats() -> None:
    def wide(x: Tensor, g: Tensor) -> Tensor:
        return g.double() * (1 - torch.tanh(x.double()) ** 2)

    x = torch.linspace(-4, 4, 64).half()
    grad = torch.linspace(1, 2, 64).half()
    made = bound(ops.tanh, torch.tanh, dtypes="float16")
    axes = {"x": x, "grad_y": grad}
    case = Case(
        {n: TensorSpec((64,), ("d0",), "float16", fill=Fill("randn", 1)) for n in axes}
    )
    problem = pose(made.operator, case, axes, made.declaration)
    allowed = accept(made.operator, problem)["dx"]
    stored = torch.tanh(x.double()).half().double()
    from_stored = grad.double() * (1 - stored * stored)
    for y in (wide(x, grad), from_stored):
        assert bool(((y >= allowed.low[0]) & (y <= allowed.high[0])).all())
    # It is a bound of the stored result's rounding, and not of much more.
    room = (allowed.high - allowed.low)[0]
    assert float((room / (2.0**-10 * grad.double())).max()) < 16


def test_what_is_stored_on_the_way_may_be_beyond_its_format_in_another_order() -> None:
    half: dict[str, Any] = {"dtypes": "float16"}
    stored, problems = {**half, "intermediates": "output"}, {}
    for claims in (half, stored):
        made = bound(ops.swiglu, lambda gate, up: gate * up, **claims)
        names = ("gate", "up", "grad_y")
        axes = {n: TensorSpec((2,), ("d0",), "float16") for n in names}
        case = Case({n: replace(a, fill=Fill("randn", 1)) for n, a in axes.items()})
        # The gradient times the slope of silu alone is above 65,504.
        values = {"gate": [2.0, 1.0], "up": [0.25, 0.5], "grad_y": [61000.0, 1.0]}
        given = {n: torch.tensor(v).half() for n, v in values.items()}
        problem = pose(made.operator, case, given, made.declaration)
        problems[claims is stored] = accept(made.operator, problem)["dgate"]
    gate, up, g = (torch.tensor(v).half() for v in values.values())
    p = torch.sigmoid(gate)
    slope = gate * p * (1 - p) + p
    late, early = g * slope * up, g * up * slope
    assert torch.isinf(late[0])
    for y, beside in ((late, False), (early, True), (2 * early, False)):
        for is_stored, allowed in problems.items():
            right = beside or (is_stored and y is late)
            missed = compare(y.unsqueeze(0), allowed).missed
            assert bool(missed.any()) is not right


def test_a_softmax_by_the_stored_logsumexp_is_right_in_cross_entropy() -> None:
    made = bound(ops.cross_entropy, lambda logits, target: logits, dtypes="float32")
    specs = {
        "logits": TensorSpec((2, 64), ("N", "C"), "float32"),
        "target": TensorSpec((2,), ("N",), "int64"),
        "grad_y": TensorSpec((), (), "float32"),
    }
    case = Case({n: replace(s, fill=Fill("randn", 1)) for n, s in specs.items()})
    x = 25_000 + torch.randn(2, 64, generator=torch.Generator().manual_seed(0))
    given = {"logits": x, "target": torch.tensor([0, 1]), "grad_y": torch.tensor(1.0)}
    problem = pose(made.operator, case, given, made.declaration)
    allowed = accept(made.operator, problem)["dlogits"]
    lse = torch.logsumexp(x, -1, keepdim=True)
    one_hot = torch.eye(64)[:2]
    right = (torch.exp(x - lse) - one_hot) / 2
    assert not compare(right.unsqueeze(0), allowed).missed.any()
    assert not compare(
        ((x.softmax(-1) - one_hot) / 2).unsqueeze(0), allowed
    ).missed.any()
    wrong = (torch.exp(x - lse - 2.0**-4) - one_hot) / 2
    assert compare(wrong.unsqueeze(0), allowed).missed.any()


def test_contracts_of_gradients_are_listed_under_the_forward_operator() -> None:
    listed = {c.identifier for c in every_contract()}
    assert {f"K-GRD-01/{name}" for name in DIFFERENTIABLE} <= listed
    assert "K-GRD-01/argmax" not in listed
    assert not [i for i in listed if ".backward" in i]
    page = find_contract("K-GRD-01/softmax")
    assert "vector-Jacobian" in page.oracle
    assert "grad_y" in page.tolerance.bound


def test_faulty_witnesses_pass_with_contiguous_gradients() -> None:
    from tests.helpers.functional import passes_functional

    for witness in gradients.WITNESSES:
        assert passes_functional(witness), witness.kernel


@pytest.mark.slow
def test_rows_whose_norm_is_below_eps_are_differentiated_as_scaled() -> None:
    """The search draws an eps above the norms of its data, so that this shows."""
    assert max(ops.l2_normalize.scalars["eps"].domain) > 16
    data = {"x": spec([1.0, 2.0, 3.0], "d0"), "grad_y": spec([1.0, -2.0, 5.0], "d0")}
    right = BACKWARD["gradient_l2_normalize.backward"].load()
    wrong = BACKWARD["gradient_l2_normalize_unheld.backward"].load()
    for eps, is_below in ((1e-12, False), (32.0, True)):
        assert not attributed(judged(right, data, dim=-1, eps=eps))
        assert attributed(judged(wrong, data, dim=-1, eps=eps)) == "K-GRD-01" * is_below


def test_a_script_asks_for_gradients_in_the_way_that_shows_it() -> None:
    made = BACKWARD["gradient_tanh_once.backward"].load()
    tensors = {"x": spec([1.0, 2.0], "d0"), "grad_y": spec([1.0, 2.0], "d0")}
    failure = judged(made, tensors).failure
    assert failure is not None
    home = Target(file="gradients.py", name=made.name)
    text = script(
        Finding(
            signature=failure.signature(made.name),
            target=home,
            operator="tanh",
            device="cpu",
            case=Case(tensors),
            first=Case(tensors),
            failure=failure,
            declaration=made.declaration,
            fingerprint=host_fingerprint(),
        )
    )
    assert "find('gradient_tanh_once.backward').function.asked('again', 'x')" in text
    compile(text, "script", "exec")


def test_a_reference_may_take_integers_that_are_no_indices() -> None:
    def parts(x: Tensor, lengths: Tensor) -> Tensor:
        ends = [0, *lengths.cumsum(0).tolist()]
        return torch.stack([(x[a:b] ** 2).sum(0) for a, b in pairwise(ends)])

    lengths = ks.tensors("B", dtype="int32", within=(2, 6))
    inputs = {"x": ks.tensors("T D"), "lengths": lengths}
    operator = kfuzz.reference(parts, inputs, shape_class="T >= 6 * B")
    x, counts = torch.arange(12.0).reshape(12, 1), torch.tensor([2, 3]).int()
    tensors = {
        "x": spec(x, "T D"),
        "lengths": TensorSpec(
            (2,),
            ("B",),
            "int32",
            values=counts.numpy().tobytes(),
            domain=lengths.domain,
        ),
        "grad_y": spec([[1.0], [1.0]], "B D"),
    }
    assert attributed(judged(bound(operator, parts), tensors)) == ""
    late = bound(operator, parts)
    late.function = lambda *_, **__: 2 * x
    assert attributed(judged(late, tensors)).startswith("K-GRD-01")


def test_offsets_of_a_ragged_batch_cut_what_an_oracle_is_tried_on() -> None:
    def sums(x: Tensor, weight: Tensor, offsets: Tensor) -> Tensor:
        parts = x.split(offsets.diff().tolist())
        return torch.stack([part.sum(0) for part in parts]) * weight[:, None]

    inputs = {
        "x": ks.tensors("T D"),
        "weight": ks.tensors("B"),
        "offsets": ks.offsets("S", of="T"),
    }
    operator = kfuzz.reference(sums, inputs, shape_class="S == B + 1 and B >= 1")
    offsets = torch.tensor([0, 1, 3]).numpy().tobytes()
    tensors = {
        "x": spec([[1.0], [2.0], [3.0]], "T D"),
        "weight": spec([2.0, 3.0], "B"),
        "offsets": TensorSpec(
            (3,), ("S",), "int64", values=offsets, below="T", domain="offsets"
        ),
        "grad_y": spec([[1.0], [1.0]], "B D"),
    }
    assert attributed(judged(bound(operator, sums), tensors)) == ""
    late = bound(operator, sums)
    late.function = lambda *_, **__: (torch.ones(3, 1), torch.ones(2))
    assert attributed(judged(late, tensors)).startswith("K-GRD-01")


def test_an_oracle_that_cannot_be_run_is_named_when_it_is_bound() -> None:
    def fails(x: Tensor) -> Tensor:
        raise ValueError("no size fits")

    with pytest.raises(BindingError, match="raises ValueError: no size fits"):
        bound(kfuzz.reference(fails), fails)


def test_what_has_no_derivative_is_named_when_it_is_bound() -> None:
    stepped = kfuzz.Operator(
        "stepped",
        inputs={"x": ks.tensors("B N")},
        oracle=lambda x: torch.heaviside(x, x),
    )
    with pytest.raises(BindingError, match="cannot be differentiated"):
        kfuzz.kernel(stepped, name="stepped_by_one", gradients=True)(lambda x: x)


@pytest.mark.parametrize("value", [8.5e37, 1.0])
def test_arguments_may_overflow_before_they_meet_a_gradient_of_0(value: float) -> None:
    class Read(torch.autograd.Function):
        """Multiplies k by v first, as recurrences do."""

        @staticmethod
        def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            ctx.save_for_backward(q, k, v)
            return q * k * v

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            (g,), (q, k, v) = grads, ctx.saved_tensors
            wrong = float("nan") if value == 1 else 0.0
            return k * v * g + wrong, q * v * g, q * k * g

    operator = kfuzz.Operator(
        "read",
        inputs={n: ks.tensors("N D") for n in ("q", "k", "v")},
        oracle=lambda q, k, v: (q * k).sum(-1, keepdim=True) * v,
        shape_class="D == 2",
    )
    made = bound(operator, lambda q, k, v: Read.apply(q, k, v), dtypes=("float32",))
    given = {"q": 0.0, "k": 4.0, "v": value, "grad_y": 0.0}
    found = judged(made, {n: spec([[x, x]], "N D") for n, x in given.items()})
    assert bool(attributed(found)) == (value == 1)


def several(tensors: dict[str, Tensor]) -> Problem:
    """Return the problem of float32 kernels with these members."""
    single = FORMATS["float32"]
    return Problem(tensors, {}, single, single, Declaration())


def test_the_steps_of_an_oracle_may_follow_values() -> None:
    """What one member's lengths make of an oracle is nothing to the next one's."""

    def sums(x: Tensor, lengths: Tensor) -> Tensor:
        first, second = (part.cumsum(0) for part in x.split(lengths.tolist()))
        return torch.cat([first * first, second])

    product = vector_jacobian(sums, arguments=2, places=[0], wanted=[0])
    model = autograd_bound("sums.backward", product, ("x",))
    random = torch.Generator().manual_seed(0)
    tensors = {
        "x": torch.randn(3, 5, 2, dtype=torch.float64, generator=random),
        "lengths": torch.tensor([[1, 4], [3, 2], [4, 1]]),
        "grad_y": torch.randn(3, 5, 2, dtype=torch.float64, generator=random),
    }
    posed = several(tensors)
    together = model(posed)["dx"]
    for i in range(3):
        apart = model(alone(posed, i))["dx"]
        row = [x[i] for x in tensors.values()]
        assert torch.equal(apart.reference[0], product(*row)[0])
        for part in ("reference", "low", "high", "ambiguous", "undecided"):
            assert torch.equal(getattr(together, part)[i], getattr(apart, part)[0])
        assert not bool(apart.undecided.any())


def test_members_at_once_have_the_bounds_of_each_alone() -> None:
    def attended(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.softmax(functional.layer_norm(q, q.shape[-1:]) @ k.mT, -1) @ v

    product = vector_jacobian(attended, arguments=3, places=[0], wanted=[0, 1, 2])
    model = autograd_bound("attended.backward", product, ("q", "k", "v"))
    random = torch.Generator().manual_seed(0)
    posed = several(
        {
            name: torch.randn(4, 5, 3, dtype=torch.float64, generator=random)
            for name in ("q", "k", "v", "grad_y")
        }
    )
    together = model(posed)
    for i in range(4):
        for name, apart in model(alone(posed, i)).items():
            assert bool((apart.high > apart.low).all())
            for part in ("reference", "low", "high"):
                torch.testing.assert_close(
                    getattr(together[name], part)[i],
                    getattr(apart, part)[0],
                    rtol=1e-9,
                    atol=0.0,
                )
