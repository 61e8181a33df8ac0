"""moe_combine(y, rows, weights): weighted sums of what the experts of a token gave."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded


def reference(y: Any, rows: Any, weights: Any) -> Any:
    """out[m] = sum over j of weights[m, j] y[rows[m, j]]."""
    return (weights.unsqueeze(-2) @ y[rows]).squeeze(-2)


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return sums of products +- R (|weights| |y|)."""
    t = problem.tensors
    y = t["y"]
    rows, _ = nm.resolved(problem, "rows", y.shape[1])
    item = rows.new_tensor(range(y.shape[0]))[:, None, None]
    made = nm.dots(problem, t["weights"].unsqueeze(-2), y[item, rows])
    return made.reshaped(*rows.shape[:-1], y.shape[-1]).accepted(problem)


moe_combine = Operator(
    "moe_combine",
    inputs={
        "y": ks.tensors("P D"),
        "rows": ks.indices("M K", below="P"),
        "weights": ks.tensors("M K", role="weight"),
    },
    oracle=reference,
    error_model=accept,
    homogeneous={"y": 1, "weights": 1},
    reduced="K",
    batch="M",
    workspaces=("M K D",),
    **bounded("moe_combine", Structure.INTERVAL),
)
