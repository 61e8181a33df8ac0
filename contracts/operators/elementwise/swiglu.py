"""swiglu(gate, up): silu(gate) up, the gate first, as in a gated feed-forward layer."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.operators.elementwise.silu import reference as silu
from kfuzz.contracts.prose import bounded


def reference(gate: Any, up: Any) -> Any:
    """torch.nn.functional.silu(gate) * up."""
    return silu(gate) * up


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return silu's interval times up, in either order of the products."""
    by_tanh = problem.declaration.algorithm == "tanh_form"
    bounds = nm.silu_by_tanh if by_tanh else nm.silu
    return nm.gated(problem, silu, bounds, growth=1)


swiglu = Operator(
    "swiglu",
    inputs={"gate": ks.tensors("*"), "up": ks.tensors("*")},
    oracle=reference,
    error_model=accept,
    chain=("silu", "mul"),
    ranks=range(5),
    algorithms={"tanh_form": "silu by tanh: absolute error for negative gates"},
    **bounded("swiglu", Structure.INTERVAL),
)
