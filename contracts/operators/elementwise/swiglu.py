"""swiglu(gate, up): silu(gate) up, the gate first, as in a gated feed-forward layer."""

from typing import TYPE_CHECKING, Any

from kfuzz import strategies as ks
from kfuzz.contracts.language import Structure, Tolerance
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.operators.elementwise.silu import reference as silu

if TYPE_CHECKING:
    from kfuzz.numerics.acceptance import Acceptance, Problem


def reference(gate: Any, up: Any) -> Any:
    """torch.nn.functional.silu(gate) * up."""
    return silu(gate) * up


def accept(problem: "Problem") -> "dict[str, Acceptance]":
    """Return silu's interval times up, in either order of the products."""
    from kfuzz.numerics.intervals import Arithmetic
    from kfuzz.numerics.models.activations import gated
    from kfuzz.numerics.models.activations import silu as bounds

    arithmetic = Arithmetic.declared(problem)
    gate = problem.tensors["gate"]
    by_tanh = problem.declaration.algorithm == "tanh_form"
    made = bounds(arithmetic.read(gate), arithmetic, by_tanh=by_tanh)
    return {"y": gated(problem, silu(gate), made, arithmetic, growth=1)}


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
