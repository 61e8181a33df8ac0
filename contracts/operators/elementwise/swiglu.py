"""swiglu(gate, up): silu(gate) up, the gate first, as in a gated feed-forward layer."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure, Tolerance
from kfuzz.contracts.operators.elementwise.silu import reference as silu


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
    tolerance=Tolerance(
        Structure.INTERVAL,
        "|up| E_silu(gate) + 2u |y|",
        "silu's error, scaled, and one more product, in either order",
    ),
    special_values="those of silu(gate), then of a product: 0 * Inf is NaN, also "
    "where silu(gate) may vanish; undecided where gate * up overflows",
)
