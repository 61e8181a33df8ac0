"""silu(x): x sigmoid(x), elementwise."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure, Tolerance


def reference(x: Any) -> Any:
    """The product x * torch.sigmoid(x); 0 at -Inf."""
    import torch

    return nm.at_the_limit(x, x * torch.sigmoid(x))


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return x times the sigmoid's interval, the product rounded.

    With algorithm="tanh_form": x (0.5 + 0.5 tanh(x / 2)), whose error is absolute.
    """
    by_tanh = problem.declaration.algorithm == "tanh_form"
    bounds = nm.silu_by_tanh if by_tanh else nm.silu
    return nm.activated(problem, reference, bounds)


silu = Operator(
    "silu",
    inputs={"x": ks.tensors("*")},
    oracle=reference,
    error_model=accept,
    ranks=range(5),
    algorithms={"tanh_form": "x (0.5 + 0.5 tanh(x / 2)): absolute error below 0"},
    tolerance=Tolerance(
        Structure.INTERVAL,
        "|x| s(1-s)(4u|x| + 5u) + 8u |y|, and 0 where s < 2^-125",
        "the errors of exp (2 ulp and its argument), of one addition, one division "
        "(2 ulp) and the product; exp(-x) overflows far below 0",
    ),
    special_values="NaN stays NaN, +Inf stays; -Inf becomes NaN, as -Inf * 0, or 0",
)
