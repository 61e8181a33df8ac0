"""log(x): the natural logarithm, elementwise."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded


def reference(x: Any) -> Any:
    """torch.log(x): -Inf at both zeros, NaN below."""
    import torch

    return torch.log(x)


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return log(x) -/+ 5 u |log x|; a subnormal that is flushed gives -Inf."""
    import torch

    arithmetic = nm.Arithmetic.declared(problem)
    x = problem.tensors["x"]
    y = reference(x)
    seen = arithmetic.read(x)
    vanishes = torch.isfinite(x) & (x != 0) & (seen.low <= 0) & (seen.high >= 0)
    classes = nm.classes_of(y)
    classes = torch.where(vanishes, classes | nm.NEGATIVE_INF, classes).to(torch.uint8)
    # Where x may vanish the finite results are those of x itself.
    own = nm.Interval.exact(x)
    made = nm.log(own.where(vanishes | ~torch.isfinite(x), seen), arithmetic)
    return arithmetic.accepted(problem, y, made, classes=classes)


log = Operator(
    "log",
    inputs={"x": ks.tensors("*")},
    oracle=reference,
    error_model=accept,
    ranks=range(5),
    **bounded("log", Structure.INTERVAL),
)
