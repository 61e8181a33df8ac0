"""gelu_tanh(x): the tanh approximation of gelu, elementwise."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded


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
    **bounded("gelu_tanh", Structure.INTERVAL),
)
