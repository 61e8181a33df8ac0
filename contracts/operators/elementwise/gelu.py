"""gelu(x): x Phi(x), Phi the normal distribution function, elementwise."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.operators.elementwise.gelu_tanh import accept as approximation
from kfuzz.contracts.prose import bounded


def reference(x: Any) -> Any:
    """The product x / 2 * erfc(-x / sqrt(2)): x Phi(x); 0 at -Inf."""
    import torch

    return nm.at_the_limit(x, 0.5 * x * torch.erfc(x * -(0.5**0.5)))


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return x / 2 (1 + erf(x / sqrt 2)), whose error below 0 is absolute.

    With algorithm="tanh_form" the kernel claims the tanh approximation: that
    function's acceptance, up to 4.7e-4 away.
    """
    if problem.declaration.algorithm == "tanh_form":
        return approximation(problem)
    return nm.activated(problem, reference, nm.gelu, doubles=True)


gelu = Operator(
    "gelu",
    inputs={"x": ks.tensors("*")},
    oracle=reference,
    error_model=accept,
    ranks=range(5),
    algorithms={"tanh_form": "the tanh approximation, as gelu_tanh computes it"},
    **bounded("gelu", Structure.INTERVAL),
)
