"""What is made smaller stays among what strategies may draw."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.operators import OPERATORS
from kfuzz.core.budget import Depth
from kfuzz.core.dtypes import unpack_numbers
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import State
from kfuzz.strategies.parameters import may_be_drawn
from tests.helpers.in_process import (
    InProcess,
    drawn,
    first_failing,
    taken_to_minimum,
)
from tests.helpers.judged_cases import COUNTER
from tests.helpers.tiers import usual

STRICT: tuple[dict[str, Any], ...] = (
    {},
    {"layouts": "contiguous", "nonfinite": "undefined"},
    {"layouts": "inner_contiguous"},
)


def bound(operator: Operator, function: Any, **claims: Any) -> InProcess:
    made = kernel(operator, name=f"k{next(COUNTER)}", **claims)(function)
    return InProcess(made, budget="interpret")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "strict"),
    [
        # Each push tries one operator in three, with one of the declarations in turn.
        usual(name, strict, is_usual=i % 9 == 3 * strict)
        for i, name in enumerate(OPERATORS)
        for strict in range(len(STRICT))
    ],
)
def test_what_is_drawn_may_be_drawn(name: str, strict: int) -> None:
    operator, claims = OPERATORS[name], STRICT[strict]
    taken = [*operator.tensors, *(f"{n}=None" for n in operator.scalars)]
    function = eval(f"lambda {', '.join(taken)}: None")
    if operator.straying:
        claims = {**claims, "out_of_bounds": "undefined"}
    runner = bound(operator, function, **claims)
    made = runner.loaded.kernel
    for case in drawn(made, 25, budget="interpret"):
        pinned = runner.pin(case)
        assert may_be_drawn(operator.inputs, made.declaration, pinned), case


def adds_ignored(
    logits: Tensor, target: Tensor, ignore_index: int, label_smoothing: float
) -> Tensor:
    """The mean over all rows, of which ignored ones lose 1."""
    kept = target != ignore_index
    total = functional.cross_entropy(
        logits[kept].float(),
        target[kept],
        label_smoothing=label_smoothing,
        reduction="sum",
    )
    total = total + (~kept).sum()
    return (total / kept.sum()).to(logits.dtype)


def labels(case: Case) -> list[float]:
    spec = case.tensors["target"]
    assert spec.values is not None
    return unpack_numbers(spec.values, spec.dtype)


def test_an_ignored_target_stays_one_where_nothing_is_declared_for_others() -> None:
    runner = bound(
        ops.cross_entropy.fixed(reduction="mean"),
        adds_ignored,
        dtypes="float32",
        out_of_bounds="undefined",
    )
    made = runner.loaded.kernel
    found = first_failing(runner, drawn(made, 80, budget="interpret"))
    assert found is not None
    finding = taken_to_minimum(runner, *found)
    assert finding.state is State.CONFIRMED
    assert finding.reduction is not None
    assert finding.reduction.stopped == "minimal"
    ignored = finding.case.scalars["ignore_index"]
    assert ignored in labels(finding.case)
    assert runner.judged
    for case in (finding.case, *runner.judged):
        admitted = {ignored, *range(case.dims["C"])}
        assert case.scalars["ignore_index"] == ignored
        assert {*labels(runner.pin(case))} <= admitted


def test_a_minimum_of_another_cause_says_so() -> None:
    """A sum in 16 bits, and a result that is off by a quarter on one row alone."""

    def both(x: Tensor, dim: int) -> Tensor:
        total = torch.sum(x.double(), dim)
        if x.numel() < 64:
            return (total * 1.25).float()
        return torch.sum(x.half().float(), dim).half().float()

    runner = bound(ops.sum, both, dtypes="float32", layouts="contiguous")
    big = [c for c in drawn(runner.loaded.kernel, 200) if c.elements > 200]
    for case in big:
        report = runner.evaluator.judge(case, Depth.FULL)
        if report.failure is not None and report.failure.contract == "C-PRC-01":
            break
    else:
        pytest.fail("no case shows the narrow sum")
    finding = taken_to_minimum(runner, case, report)
    assert finding.explanation is not None
    # It fails at every small power of two: the shape's being none is not why.
    assert finding.failure.contract == "K-VAL-01"
    [line] = [t for t in finding.explanation.lines if "shrinking changed" in t]
    assert "found as C-PRC-01 (as " in line
    assert line.endswith("input shows K-VAL-01")
