"""Torch's overloads by name: rows, bindings, and planted faults that are found."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import kfuzz
from kfuzz.contracts import operators as ops
from kfuzz.contracts.aten.making import ROWS, find, names, overload
from kfuzz.contracts.binding import BoundKernel
from kfuzz.contracts.classes import CLASSES
from kfuzz.contracts.oracle import accept, pose
from kfuzz.core.budget import Depth, SizeBudget
from kfuzz.core.errors import BindingError
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CaseReport
from kfuzz.evaluation.drawing import search_round, strategy_of
from kfuzz.evaluation.evaluator import Evaluator, setting_of
from kfuzz.execution.values.fills import logical_values
from tests.helpers.overloads import bound

BUDGET = SizeBudget(256, 256)
aten = torch.ops.aten


def drawn(kernel: BoundKernel, count: int) -> list[Case]:
    """Return cases as a search draws them."""
    found: list[Case] = []

    def take(case: Case) -> CaseReport | None:
        if len(found) < count:
            found.append(case)
        return None

    strategy = strategy_of(kernel, BUDGET)
    assert strategy is not None
    search_round(strategy, take, cases=count, seed_value=11)
    return found


def failures(kernel: BoundKernel, count: int) -> list[CaseReport]:
    """Return the reports of the cases that fail, the first that does being the last."""
    classes = set(CLASSES) - {"C-ORD-03", "C-CMP-02"}
    evaluator = Evaluator(kernel, setting_of("cpu", BUDGET, classes))
    for case in drawn(kernel, count):
        report = evaluator.judge(case, Depth.BASE)
        assert not report.error, report.error
        if report.failure is not None:
            return [report]
    return []


# --- the table ------------------------------------------------------------------


def test_every_row_makes_an_operator() -> None:
    made = {name: find(name) for name in names()}
    assert len(made) > 300
    for name, found in made.items():
        kernel = bound(name, overload(name), name=name)
        assert set(kernel.arguments.tensors) <= set(found.operator.tensors)


@pytest.mark.parametrize(
    "name",
    ["atan2", "special_entr", "gelu_backward", "logaddexp2", "max.dim", "nansum",
     "cdist", "binary_cross_entropy", "cross", "addbmm", "fmod.Tensor"],
)  # fmt: skip
def test_the_shadow_gives_what_torch_gives_in_float64(name: str) -> None:
    assert not ROWS[name].exact
    assert not ROWS[name].suite
    kernel = bound(name, overload(name), name=name)
    decided = 0
    for case in drawn(kernel, 24):
        if not case.elements:
            continue  # some reductions raise there
        cpu = torch.device("cpu")
        values = {n: logical_values(case, n, cpu) for n in case.tensors}
        problem = pose(kernel.operator, case, values, kernel.declaration)
        given = [x[0] for x in problem.tensors.values()]
        wanted = kernel.operator.oracle(*given, **problem.scalars)
        results = wanted if isinstance(wanted, tuple) else (wanted,)
        accepted = accept(kernel.operator, problem)
        for made, y in zip(accepted.values(), results, strict=True):
            open_to = made.undecided | made.ambiguous
            near = torch.isclose(
                made.reference[0], y.double(), 1e-9, 1e-290, equal_nan=True
            )
            near |= (made.reference[0] - y).abs() <= 1e-6 * (made.high - made.low)[0]
            assert bool((near | open_to[0]).all())
            decided += int((~open_to).sum())
    assert decided > 20


def test_an_unknown_overload_is_named_with_those_there_are() -> None:
    with pytest.raises(BindingError, match=r"add\.Tensor"):
        find("add.Tenso")
    with pytest.raises(BindingError, match="no row"):
        find("nonzero")


def test_in_place_and_out_overloads_write_what_the_plain_one_gives() -> None:
    assert find("add_.Tensor").claims == {"inplace": ("a",)}
    assert find("add_.Tensor").operator.name == find("add.Tensor").operator.name
    assert find("aten::exp.out").claims == {"out": ("y",)}
    each = ("self_0", "self_1", "self_2")
    assert find("_foreach_add_.List").claims == {"inplace": each}
    assert find("_foreach_exp.out").claims == {"out": ("out_0", "out_1", "out_2")}


def test_a_list_of_which_nothing_says_how_long_it_is_has_no_out() -> None:
    with pytest.raises(BindingError, match="list of no fixed length"):
        find("unbind_copy.int_out")


def test_a_name_binds_as_an_operator_does() -> None:
    @kfuzz.kernel("aten::lerp.Scalar", name="lerp_by_name")
    def lerp(start: Tensor, end: Tensor, weight: float) -> Tensor:
        return torch.lerp(start, end, weight)

    assert lerp.operator.name == "aten::lerp.Scalar"
    assert lerp.arguments.scalars == ("weight",)
    assert not failures(lerp, 10)


def test_a_function_may_lack_scalars() -> None:
    @kfuzz.kernel("aten::add.Tensor", name="add_without_alpha")
    def add(a: Tensor, b: Tensor) -> Tensor:
        return a + b

    assert add.arguments.scalars == ()
    assert not failures(add, 10)


# --- right kernels, called as the dispatcher calls them ----------------------------

RIGHT = [
    "add.Tensor", "add_.Tensor", "add.out", "eq.Tensor", "max.dim", "cat", "view",
    "constant_pad_nd", "nll_loss", "avg_pool2d", "index.Tensor", "where.self",
    "sub.out", "roll", "isnan", "softmax.int", "sum.dim_IntList", "masked_fill_.Scalar",
    "_foreach_add_.List", "_foreach_mul_.Scalar", "_foreach_sub.List_out",
    "_foreach_norm.Scalar_out",
]  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_torch_s_own_kernels_conform(name: str) -> None:
    claims: dict[str, Any] = {"dtypes": "float32"}
    if name == "softmax.int":
        claims["approx"] = True
    assert not failures(bound(name, overload(name), name=name, **claims), 20)


# --- planted faults -------------------------------------------------------------


def tail(y: Tensor) -> Tensor:
    """Leave the last element of what is longer than 16 at 0."""
    y = y.clone()
    if y.numel() > 16:
        y.flatten()[-1:].zero_() if y.is_contiguous() else y.zero_()
    return y


def dense(x: Tensor) -> Tensor:
    """Read a tensor's memory as if it were contiguous."""
    if x.is_contiguous() or not x.numel():
        return x
    return torch.as_strided(x, x.shape, torch.empty(x.shape).stride())


FAULTS: dict[str, tuple[str, Callable[..., Any]]] = {
    "an ignored alpha": ("add.Tensor", lambda a, b, alpha=1: a + b),
    "a tail": ("exp", lambda x: tail(aten.exp(x))),
    "a swallowed NaN": ("maximum", aten.fmax),
    "NaN that is below": ("relu", lambda x: torch.where(x > 0, x, 0.0)),
    "ignored strides": ("neg", lambda x: -dense(x)),
    "an ignored step": (
        "slice.Tensor",
        lambda x, dim=0, start=None, end=None, step=1: aten.slice(x, dim, start, end),
    ),
    "another dtype": ("gt.Scalar", lambda a, b: (a > b).to(a.dtype)),
    "an index off by one": (
        "max.dim", lambda x, dim, keepdim=False: (
            lambda m: (m.values, (m.indices + 1) % max(x.shape[dim], 1))
        )(aten.max.dim(x, dim, keepdim))
    ),
    "an ignored keepdim": ("mean.dim", lambda x, dim, keepdim=False: aten.mean.dim(
        x, dim
    )),
    "an ignored stride": (
        "avg_pool2d", lambda x, size, stride=(), *rest: aten.avg_pool2d(x, size, size,
                                                                        *rest)
    ),
    "a row taken twice": (
        "index.Tensor", lambda x, indices: x[torch.clamp(indices[0], max=1)]
    ),
    "truncation for floor": (
        "div.Tensor_mode",
        lambda a, b, rounding_mode=None: aten.div(
            a, b, rounding_mode=rounding_mode and "trunc"
        ),
    ),
    "a result that is written elsewhere": (
        "add_.Tensor", lambda a, b, alpha=1: a.add(b, alpha=alpha)
    ),
    "a list of which one is left alone": (
        "_foreach_neg_", lambda xs: [x.neg_() for x in xs[:-1]] and None
    ),
    "one of the destinations left alone": (
        "_foreach_exp.out", lambda xs, *, out: [
            y.copy_(x.exp()) for x, y in zip(xs[1:], out[1:], strict=True)
        ] and None
    ),
    "a destination left alone": (
        "sub.out", lambda a, b, alpha=1, out=None: out
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str) -> None:
    name, function = FAULTS[fault]
    kernel = bound(name, function, name=fault.replace(" ", "_"), dtypes="float32")
    assert failures(kernel, 120), fault


def test_no_overload_is_described_by_two_operators() -> None:
    described = [row.name for o in ops.OPERATORS.values() for row in o.aten]
    assert len(set(described)) == len(described)
    assert {ROWS[name].suite for name in described} <= set(ops.OPERATORS)
