"""What a source promises the compiler: `tl.multiple_of` and its like, `tl.assume`."""

import re
from collections.abc import Sequence

from kfuzz.prove.ir.terms import (
    Cond,
    Poly,
    Rewriter,
    all_of,
    any_of,
    as_poly,
    equal,
    negated,
    remainder,
)
from kfuzz.prove.ir.values import (
    Checks,
    Hint,
    Number,
    Shape,
    Step,
    Truth,
    Value,
    lane,
)

_LISTED = r"\d+(?:, \d+)*"


def assumed(step: Step) -> list[Value]:
    """Note what `tl.assume` promises."""
    (truth,) = step.given
    assert isinstance(truth, Truth)
    _promise(step, truth.cond, (), truth.checks, "tl.assume")
    return []


def _promise(step: Step, goal: Cond, shape: Shape, needs: Checks, text: str) -> None:
    line = step.graph.line_of(step.operation)
    needs |= step.where.checks
    step.graph.graph.hints.append(Hint(goal, step.where.path, shape, needs, line, text))


def note(step: Step, value: Number) -> None:
    """Note what `tl.multiple_of` and `tl.max_contiguous` promise of a value."""
    attributes = step.operation.attributes
    promised = {
        name: [int(n) for n in found[1].split(",")]
        for name in ("divisibility", "contiguity", "constancy")
        if (found := re.search(rf"tt\.{name} = (?:dense<\[?)?({_LISTED})", attributes))
    }
    rank = max(len(value.shape), 1)
    for name, numbers in promised.items():
        goals = []
        runs = promised.get("contiguity", [1] * rank)
        for dim, number in enumerate((numbers * rank)[:rank]):
            if name == "divisibility":
                goals.append(_divisible(value, dim, number, runs))
            elif number > 1 and value.shape:
                goals.append(_runs(value, dim, number, int(name == "contiguity")))
        words = {"divisibility": "multiple_of", "contiguity": "max_contiguous",
                 "constancy": "max_constancy"}  # fmt: skip
        text = f"tl.{words[name]}({', '.join(map(str, numbers))})"
        _promise(step, all_of(goals), value.shape, value.checks, text)


def _next(value: Number, dim: int) -> Poly:
    """Return a block's value one place further along a dimension."""
    moved = as_poly(lane(dim)) + 1
    return Rewriter(lambda a: moved if a is lane(dim) else None).poly(value.poly)


def _divisible(value: Number, dim: int, number: int, runs: Sequence[int]) -> Cond:
    """Return that the first element of each run of neighbours is a multiple."""
    goal = equal(remainder(value.poly, as_poly(number)), 0)
    if not value.shape:
        return goal
    run = (list(runs) * len(value.shape))[dim]
    if (_next(value, dim) - value.poly).constant == 1:
        run = max(run, value.shape[dim])
    start = remainder(as_poly(lane(dim)), as_poly(run)) if run > 1 else as_poly(0)
    return any_of([negated(equal(start, 0)), goal])


def _runs(value: Number, dim: int, number: int, step: int) -> Cond:
    """Return that neighbours within a run differ by `step`."""
    last = equal(remainder(as_poly(lane(dim)), as_poly(number)), number - 1)
    return any_of([last, equal(_next(value, dim) - value.poly, step)])
