"""geglu(gate, up): gelu(gate) up, the gate first, as in a gated feed-forward layer."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.operators.elementwise.gelu import reference as gelu
from kfuzz.contracts.operators.elementwise.gelu_tanh import reference as gelu_tanh
from kfuzz.contracts.prose import bounded


def reference(gate: Any, up: Any) -> Any:
    """torch.nn.functional.gelu(gate) * up."""
    return gelu(gate) * up


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return gelu's interval times up, in either order of the products.

    With algorithm="tanh_form", the tanh approximation's.
    """
    if problem.declaration.algorithm == "tanh_form":
        return nm.gated(problem, gelu_tanh, nm.gelu_tanh, growth=2)
    return nm.gated(problem, gelu, nm.gelu, growth=2)


geglu = Operator(
    "geglu",
    inputs={"gate": ks.tensors("*"), "up": ks.tensors("*")},
    oracle=reference,
    error_model=accept,
    chain=("gelu", "mul"),
    ranks=range(5),
    algorithms={"tanh_form": "gelu by its tanh approximation, as gelu_tanh"},
    **bounded("geglu", Structure.INTERVAL),
)
