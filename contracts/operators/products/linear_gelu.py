"""linear_gelu(x, weight, bias): gelu(x weight^T + bias), fused."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.operators.elementwise.gelu import reference as gelu
from kfuzz.contracts.operators.products.linear import (
    INPUTS,
    products,
)
from kfuzz.contracts.operators.products.linear import reference as linear
from kfuzz.contracts.prose import bounded


def reference(x: Any, weight: Any, bias: Any = None) -> Any:
    """torch.nn.functional.gelu(torch.nn.functional.linear(x, weight, bias))."""
    return gelu(linear(x, weight, bias))


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return what gelu makes of linear's interval, with gelu's own error.

    With intermediates="output" that interval is rounded to the output first; with
    algorithm="tanh_form" gelu is its tanh approximation.
    """
    import torch

    made = products(problem)
    arithmetic = nm.Arithmetic.declared(problem)
    before = nm.Interval(made.value - made.error, made.value + made.error)
    if problem.declaration.intermediates == "output":
        before = arithmetic.rounded(before)
    approximate = problem.declaration.algorithm == "tanh_form"
    bounds = (nm.gelu_tanh if approximate else nm.gelu)(before, arithmetic)
    z = made.reference
    y = torch.nn.functional.gelu(z, approximate="tanh") if approximate else gelu(z)
    lowest = z == float("-inf")
    zero = torch.zeros_like(z)
    y = torch.where(lowest, zero, y)
    loose = (made.admitted & nm.NAN) != 0
    classes = nm.limit_classes(z, y)
    top = made.value.abs() + made.error
    return nm.between(
        problem,
        y,
        torch.where(lowest, zero, bounds.low),
        torch.where(lowest, zero, bounds.high),
        classes=torch.where(loose, classes | nm.NAN, classes).to(torch.uint8),
        ambiguous=made.classes.ambiguous | nm.doubling_overflows(top, arithmetic),
    )


linear_gelu = Operator(
    "linear_gelu",
    inputs=INPUTS,
    oracle=reference,
    error_model=accept,
    chain=("linear", "gelu"),
    reduced="K",
    algorithms={"tanh_form": "gelu is its tanh approximation"},
    **bounded("linear_gelu", Structure.INTERVAL),
)
