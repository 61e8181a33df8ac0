"""linear_relu(x, weight, bias): max(x weight^T + bias, 0), fused."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.operators.products.linear import (
    INPUTS,
    products,
)
from kfuzz.contracts.operators.products.linear import reference as linear
from kfuzz.contracts.prose import bounded


def reference(x: Any, weight: Any, bias: Any = None) -> Any:
    """torch.relu(torch.nn.functional.linear(x, weight, bias))."""
    import torch

    return torch.relu(linear(x, weight, bias))


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return linear's interval under max(., 0): monotone, and it rounds nothing."""
    import torch

    made = products(problem)
    lowest = (made.admitted & nm.NEGATIVE_INF) != 0
    kept = made.admitted & ~nm.NEGATIVE_INF
    high = made.value + made.error
    zero = torch.zeros_like(high)
    return nm.between(
        problem,
        torch.relu(made.reference),
        torch.where(lowest, zero, (made.value - made.error).clamp(min=0)),
        torch.where(lowest, zero, high.clamp(min=0)),
        classes=torch.where(lowest, kept | nm.FINITE, kept).to(torch.uint8),
        ambiguous=made.classes.ambiguous,
    )


linear_relu = Operator(
    "linear_relu",
    inputs=INPUTS,
    oracle=reference,
    homogeneous={"x bias": 1, "weight bias": 1},
    error_model=accept,
    chain=("linear", "relu"),
    reduced="K",
    **bounded("linear_relu", Structure.INTERVAL),
)
