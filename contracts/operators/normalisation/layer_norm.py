"""layer_norm(x, weight, bias, eps): normalisation over the last dimension."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded


def reference(x: Any, weight: Any = None, bias: Any = None, *, eps: float) -> Any:
    """(x - mean) / sqrt(var + eps) * weight + bias over the last dimension."""
    mean = x.mean(-1, keepdim=True)
    centred = x - mean
    variance = (centred * centred).mean(-1, keepdim=True)
    y = centred / (variance + eps).sqrt()
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return the interval for the class of Welford's method.

    Emu = gamma(n + 2 + 2 ln(n+1)) mean|x|;
    Ev = gamma(2(n+6)) v + 2 gamma(n+2) sqrt(v) rms + Emu^2 + 2 eta;
    then r = (v + eps)^-1/2 as an interval, and the affine step in either of its
    usual forms, (x - mu) r g + b and x (r g) + (b - mu r g).
    """
    x = problem.tensors["x"]
    weight = nm.row_parameter(problem, "weight", x, default=1.0)
    bias = nm.row_parameter(problem, "bias", x, default=0.0)
    return nm.normalised(problem, x, weight, bias)


layer_norm = Operator(
    "layer_norm",
    inputs={
        "x": ks.tensors("* N"),
        "weight": ks.tensors("N", role="weight", optional=True),
        "bias": ks.tensors("N", role="bias", optional=True),
        "eps": ks.scalar(1e-5, domain=(1e-5, 1e-6, 1e-12, 1e-3, 0.1)),
    },
    oracle=reference,
    error_model=accept,
    reduced="N",
    recentres=True,
    subtracts_mean=True,
    empty_reduction=False,
    **bounded("layer_norm", Structure.INTERVAL),
)
