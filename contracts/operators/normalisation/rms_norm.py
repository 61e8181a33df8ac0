"""rms_norm(x, weight, eps): rows divided by their root mean square."""

from typing import Any, Final

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded

CAST_FIRST: Final = "cast_before_weight"


def reference(x: Any, weight: Any = None, *, eps: float) -> Any:
    """Rows divided by sqrt(mean(x^2) + eps), times weight, over the last dimension."""
    y = x / ((x * x).mean(-1, keepdim=True) + eps).sqrt()
    return y if weight is None else y * weight


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return x r g with r = (mean x^2 + eps)^-1/2 as an interval.

    See `kfuzz.numerics.models.rms`. Where it is declared that x r is rounded to the
    data's format before it meets the weight, as in Llama's reference model, that
    rounding is admitted too.
    """
    x = problem.tensors["x"]
    weight = nm.row_parameter(problem, "weight", x, default=1.0)
    stored = problem.declaration.algorithm == CAST_FIRST
    return nm.rms.rms_scaled(problem, nm.rms.Rows.of(x), weight, stored=stored)


rms_norm = Operator(
    "rms_norm",
    inputs={
        "x": ks.tensors("* N"),
        "weight": ks.tensors("N", role="weight", optional=True),
        "eps": ks.scalar(1e-6, domain=(1e-6, 1e-5, 1e-12, 1e-3)),
    },
    oracle=reference,
    error_model=accept,
    reduced="N",
    empty_reduction=False,
    algorithms={CAST_FIRST: "x r is rounded to the data's format before the weight"},
    **bounded("rms_norm", Structure.INTERVAL),
)
