"""silu(x): x sigmoid(x), elementwise."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded


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
    **bounded("silu", Structure.INTERVAL),
)
