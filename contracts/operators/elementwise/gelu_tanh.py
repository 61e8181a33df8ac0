"""gelu_tanh(x): the tanh approximation of gelu, elementwise."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure, Tolerance


def reference(x: Any) -> Any:
    """The product x * sigmoid(2 t), which is x / 2 * (1 + tanh t); 0 at -Inf."""
    import torch

    return nm.at_the_limit(x, x * torch.sigmoid(2 * nm.gelu_tanh_argument(x)))


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return x / 2 (1 + tanh t), whose error below 0 is absolute."""
    return nm.activated(problem, reference, nm.gelu_tanh, doubles=True)


gelu_tanh = Operator(
    "gelu_tanh",
    inputs={"x": ks.tensors("*")},
    oracle=reference,
    error_model=accept,
    ranks=range(5),
    tolerance=Tolerance(
        Structure.INTERVAL,
        "|x|/2 (12u s + 8u |t| sech^2 t + 2u) + 3u |y|, s = sigmoid(2t), "
        "t = sqrt(2/pi) (x + 0.044715 x^3); with approx |x|/2 2^-11 more",
        "tanh to 2 ulp, or by exponentials; its argument with eight roundings; 1 + "
        "tanh cancels below 0, so that the error is absolute there",
    ),
    special_values="NaN stays NaN, +Inf stays; -Inf becomes NaN, as -Inf * 0, or 0; "
    "undecided where 2 x overflows",
)
