"""linear(x, weight, bias): x weight^T + bias, also with a fused activation."""

import math
from typing import Any, Final

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded

INPUTS: Final = {
    "x": ks.tensors("* K"),
    "weight": ks.tensors("N K"),
    "bias": ks.tensors("N", role="bias", optional=True),
}


def reference(x: Any, weight: Any, bias: Any = None) -> Any:
    """torch.nn.functional.linear(x, weight, bias)."""
    made = x @ weight.transpose(-1, -2)
    return made if bias is None else made + bias


def products(problem: "nm.Problem") -> "nm.Dots":
    """Return x weight^T + bias before the store, [members, *, N]."""
    x, weight = problem.tensors["x"], problem.tensors["weight"]
    bias = problem.tensors.get("bias")
    members, n, inner = weight.shape
    flat = x.reshape(members, math.prod(x.shape[1:-1]), inner)
    addend = None if bias is None else bias.unsqueeze(-2)
    made = nm.dots(problem, flat, weight.transpose(-1, -2), addend=addend)
    if addend is not None:
        made = nm.rounded_before(problem, made, addend)
    return made.reshaped(*x.shape[:-1], n)


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return x W^T + b +- R (|x||W|^T + |b|), the bias as one more term."""
    return products(problem).accepted(problem)


linear = Operator(
    "linear",
    inputs=INPUTS,
    oracle=reference,
    homogeneous={"x bias": 1, "weight bias": 1},
    error_model=accept,
    reduced="K",
    **bounded("linear", Structure.INTERVAL),
)
