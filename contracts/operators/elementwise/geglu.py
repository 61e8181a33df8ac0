"""geglu(gate, up): gelu(gate) up, the gate first, as in a gated feed-forward layer."""

from typing import TYPE_CHECKING, Any

from kfuzz import strategies as ks
from kfuzz.contracts.language import Structure, Tolerance
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.operators.elementwise.gelu import reference as gelu
from kfuzz.contracts.operators.elementwise.gelu_tanh import reference as gelu_tanh

if TYPE_CHECKING:
    from kfuzz.numerics.acceptance import Acceptance, Problem


def reference(gate: Any, up: Any) -> Any:
    """torch.nn.functional.gelu(gate) * up."""
    return gelu(gate) * up


def accept(problem: "Problem") -> "dict[str, Acceptance]":
    """Return gelu's interval times up, in either order of the products.

    With algorithm="tanh_form", the tanh approximation's.
    """
    from kfuzz.numerics.intervals import Arithmetic
    from kfuzz.numerics.models.activations import gated
    from kfuzz.numerics.models.activations import gelu as by_erf
    from kfuzz.numerics.models.activations import gelu_tanh as by_tanh

    arithmetic = Arithmetic.declared(problem)
    gate = problem.tensors["gate"]
    bounds, activation = by_erf, gelu
    if problem.declaration.algorithm == "tanh_form":
        bounds, activation = by_tanh, gelu_tanh
    made = bounds(arithmetic.read(gate), arithmetic)
    return {"y": gated(problem, activation(gate), made, arithmetic, growth=2)}


geglu = Operator(
    "geglu",
    inputs={"gate": ks.tensors("*"), "up": ks.tensors("*")},
    oracle=reference,
    error_model=accept,
    chain=("gelu", "mul"),
    ranks=range(5),
    algorithms={"tanh_form": "gelu by its tanh approximation, as gelu_tanh"},
    tolerance=Tolerance(
        Structure.INTERVAL,
        "|up| E_gelu(gate) + 2u |y|",
        "gelu's error, scaled, and one more product, in either order",
    ),
    special_values="those of gelu(gate), then of a product: 0 * Inf is NaN, also "
    "where gelu(gate) may vanish; undecided where gate * up overflows",
)
