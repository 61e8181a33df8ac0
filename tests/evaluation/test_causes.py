"""Wrong formulas that were taken for narrow arithmetic, or for cancellation.

The cause of each is named rightly or not at all, on every case that shows it: also on
the first one, which nothing has reduced.
"""

import ctypes
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from kfuzz import strategies as ks
from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.classes import CLASSES
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.witnesses.planted import unstable
from kfuzz.core.budget import Depth
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CaseReport, Failure
from kfuzz.evaluation.drawing import search_round, strategy_of
from kfuzz.evaluation.evaluator import Evaluator, setting_of
from kfuzz.report.finding_view import view
from kfuzz.report.tables import Shown
from tests.helpers.budgets import SIZE_BUDGETS
from tests.helpers.in_process import (
    InProcess,
    drawn,
    first_failing,
    taken_to_minimum,
)
from tests.helpers.judged_cases import COUNTER
from tests.helpers.tiers import sampled

CASES = 40
# Failing cases whose classes are told apart.
TOLD = 4
HALF = ("float16", "bfloat16")


def failures(
    operator: Operator,
    function: Callable[..., Any],
    alone: str = "",
    **claims: Any,
) -> list[Failure]:
    """Return what the first failing cases of a search show, under one class or all."""
    gradients = bool(claims.get("gradients"))
    made: Any = kernel(operator, name=f"k{next(COUNTER)}", **claims)(function)
    bound = made.backward if gradients else made
    classes = {alone} if alone else set(CLASSES) - {"C-ORD-03", "C-CMP-02"}
    evaluator = Evaluator(bound, setting_of("cpu", SIZE_BUDGETS["cpu"], classes))
    found: list[Failure] = []

    def take(case: Case) -> CaseReport | None:
        if len(found) == TOLD:
            return None
        report = evaluator.judge(case, Depth.SEARCH)
        if report.failure is not None:
            told = evaluator.judge(case, Depth.FULL).failure
            found.append(told or report.failure)
        return report

    drawn = strategy_of(bound, SIZE_BUDGETS["cpu"])
    assert drawn is not None
    search_round(drawn, take, cases=CASES, seed_value=7)
    return found


def arithmetic(failure: Failure) -> str:
    """Return what a failure says of arithmetic, "" for nothing."""
    text = failure.message
    if "C-PRC-01" in (failure.contract, text[:8]):
        return text.rpartition("; ")[2]
    of_range = "C-PRC-02" in (failure.contract, text[:8])
    return "cancellation or overflow" if of_range else ""


def quarter_off(x: Tensor, dim: int) -> Tensor:
    return torch.softmax(x, dim) * 1.25


def squares_in_half(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    narrow = x.bfloat16()
    total = torch.zeros_like(narrow[..., 0])
    for column in narrow.unbind(-1):
        total = total + column * column
    mean = total.float() / x.shape[-1]
    y = x.float() * torch.rsqrt(mean + eps).unsqueeze(-1)
    return (y * weight.float()).to(x.dtype)


def no_root(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = x.float()
    y = wide / ((wide * wide).mean(-1, keepdim=True) + eps) * weight.float()
    return y.to(x.dtype)


def no_eps(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = x.float()
    y = wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True)) * weight.float()
    return y.to(x.dtype)


def quick_gelu(x: Tensor) -> Tensor:
    return (x.float() * torch.sigmoid(1.702 * x.float())).to(x.dtype)


def sigmoid_for_tanh(x: Tensor) -> Tensor:
    return torch.sigmoid(x.float()).to(x.dtype)


def counts_ignored(
    logits: Tensor, target: Tensor, ignore_index: int, label_smoothing: float
) -> Tensor:
    kept = target != ignore_index
    total = functional.cross_entropy(
        logits[kept].float(),
        target[kept],
        label_smoothing=label_smoothing,
        reduction="sum",
    )
    return (total / max(len(target), 1)).to(logits.dtype)


class _NoMeanTerm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        wide = x.float()
        r = torch.rsqrt((wide * wide).mean(-1, keepdim=True) + eps)
        ctx.save_for_backward(wide * r, weight, r)
        return (wide * r * weight.float()).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *given: Any) -> Any:
        y, weight, r = ctx.saved_tensors
        g = given[0].float() * weight.float()
        dw = (given[0].float() * y).flatten(0, -2).sum(0)
        return (g * r).to(given[0].dtype), dw.to(weight.dtype), None


def no_mean_term(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    made: Tensor = _NoMeanTerm.apply(x, weight, eps)  # type: ignore[no-untyped-call]
    return made


def empty_is_nan(x: Tensor, where: Tensor) -> Tensor:
    rows = x.shape[0]
    total = x.new_zeros(rows).index_add(0, where, x.float().sum(-1).to(x.dtype))
    return total / torch.bincount(where, minlength=rows)


def segments(x: Any, where: Any) -> Any:
    """The mean of each segment's rows, added up; 0 of an empty one."""
    rows = x.shape[0]
    total = x.new_zeros(rows).index_add(0, where, x.sum(-1))
    return total / torch.bincount(where, minlength=rows).clamp(min=1)


SEGMENTS = Operator(
    "segment_mean",
    inputs={"x": ks.tensors("R N"), "where": ks.indices("R", below="R")},
    oracle=segments,
)


def past_the_end(a: Tensor, b: Tensor) -> Tensor:
    """Reads K in tiles of 4 and does not mask the last one."""
    k = -(-a.shape[1] // 4) * 4
    rows = [_read(a, i * a.shape[1], k) for i in range(a.shape[0])]
    columns = _read(b, 0, k * b.shape[1]).reshape(k, -1)
    return torch.stack(rows) @ columns


def _read(x: Tensor, start: int, count: int) -> Tensor:
    raw = (ctypes.c_float * count).from_address(x.data_ptr() + 4 * start)
    return torch.tensor(list(raw))


WRONG: dict[str, tuple[Operator, Callable[..., Any], dict[str, Any]]] = {
    "softmax off by a quarter": (ops.softmax, quarter_off, {}),
    "softmax off by a quarter in 16 bits": (
        ops.softmax, quarter_off, {"dtypes": HALF},
    ),
    "bfloat16 sum of squares": (ops.rms_norm, squares_in_half, {}),
    "no square root": (ops.rms_norm, no_root, {}),
    "no square root in 16 bits": (ops.rms_norm, no_root, {"dtypes": HALF}),
    "eps ignored": (ops.rms_norm, no_eps, {}),
    "eps ignored in 16 bits": (ops.rms_norm, no_eps, {"dtypes": HALF}),
    "quick gelu": (ops.gelu, quick_gelu, {}),
    "quick gelu in 16 bits": (ops.gelu, quick_gelu, {"dtypes": HALF}),
    "sigmoid for tanh": (ops.tanh, sigmoid_for_tanh, {}),
    "ignored targets counted": (
        ops.cross_entropy.fixed(reduction="mean"), counts_ignored, {},
    ),
    "K not masked": (
        ops.matmul, past_the_end, {"dtypes": "float32", "layouts": "contiguous"},
    ),
    "empty segment": (
        SEGMENTS, empty_is_nan, {"dtypes": "float32", "layouts": "contiguous"},
    ),
    "gradient without the mean's term": (
        ops.rms_norm, no_mean_term, {"gradients": True},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", sampled(WRONG, one_in=4))
def test_a_wrong_formula_is_no_matter_of_arithmetic(name: str) -> None:
    operator, function, claims = WRONG[name]
    found = failures(operator, function, **claims)
    assert found
    told = {arithmetic(failure) for failure in found} - {""}
    if name == "bfloat16 sum of squares":
        told = {t for t in told if "bfloat16 accumulator" not in t}
    assert not told


@pytest.mark.parametrize(
    ("alone", "operator", "function"),
    [
        ("C-PRC-01", ops.l2_normalize, unstable.l2_normalize),
        ("C-PRC-02", ops.softmax, unstable.softmax),
    ],
)
def test_a_contract_in_force_alone_finds_what_it_forbids(
    alone: str, operator: Operator, function: Callable[..., Any]
) -> None:
    found = failures(operator, function, alone)
    assert {failure.contract for failure in found} == {alone}


def transposed(x: Tensor) -> Tensor:
    return x.t().contiguous()


def in_place(x: Tensor) -> Tensor:
    """Overwrites what it has not moved yet."""
    y = x.clone().reshape(-1)
    rows, columns = x.shape
    for i in range(rows):
        for j in range(columns):
            y[j * rows + i] = y[i * columns + j]
    return y.reshape(columns, rows)


def scores(q: Tensor, k: Tensor) -> Tensor:
    groups = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
    return torch.einsum("bhd,bhd->bh", q, groups)


def wrong_groups(q: Tensor, k: Tensor) -> Tensor:
    heads = torch.arange(q.shape[1]) % k.shape[1]
    return torch.einsum("bhd,bhd->bh", q.float(), k.float()[:, heads]).to(q.dtype)


def whole_tiles(x: Tensor, dim: int) -> Tensor:
    n = x.shape[dim]
    return torch.sum(x.narrow(dim, 0, n - n % 16), dim)


def cut_off(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = x.float()
    y = wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + eps) * weight.float()
    return (y.view(torch.int32) >> 16).to(torch.int16).view(torch.bfloat16)


TRANSPOSED = Operator("transposed", inputs={"x": ks.tensors("M N")}, oracle=transposed)
SCORES = Operator(
    "scores",
    inputs={"q": ks.tensors("B H D"), "k": ks.tensors("B G D")},
    oracle=scores,
    shape_class="B >= 1 and G >= 1 and D >= 1 and H >= 1 and H % G == 0",
)
EXPLAINED: dict[str, tuple[Operator, Callable[..., Any], str, str, str]] = {
    "in place": (
        TRANSPOSED, in_place, "float32", "K-VAL-01",
        "fails where M > 1 and N > 1: passes at x [1, 2]",
    ),
    "head h of group h % G": (
        SCORES, wrong_groups, "float32", "K-VAL-01",
        "fails where 1 < G < H: passes at k [",
    ),
    "whole tiles alone": (
        ops.sum, whole_tiles, "float32", "C-CMP-03",
        "fails where x.shape[0] is no multiple of 16: passes at x [16]",
    ),
    "results cut off": (
        ops.rms_norm, cut_off, "bfloat16", "C-PRC-01",
        "as rounding toward zero allows, which is not declared",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPLAINED)
def test_the_cause_of_a_finding_is_the_fault(name: str) -> None:
    operator, function, dtype, contract, cause = EXPLAINED[name]
    made: Any = kernel(operator, name=f"k{next(COUNTER)}", dtypes=dtype)(function)
    runner = InProcess(made, budget="interpret")
    found = first_failing(runner, drawn(made, 100, budget="interpret"))
    assert found is not None
    finding = taken_to_minimum(runner, *found)
    assert finding.signature.contract == contract
    shown = view(Shown(name, finding, ""))
    [part] = [part for part in shown.parts if part.label == "cause"]
    assert part.lines[0].startswith(cause), part.lines
    assert "power-of-two shapes" not in str(shown)
