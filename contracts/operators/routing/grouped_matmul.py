"""grouped_matmul(x, weight, experts): each row times the matrix of its expert."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure, Tolerance


def reference(x: Any, weight: Any, experts: Any) -> Any:
    """y[p] = x[p] @ weight[experts[p]]."""
    return (x.unsqueeze(-2) @ weight[experts]).squeeze(-2)


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return products +- R (|x| |weight|), of the expert's matrix alone."""
    t = problem.tensors
    weight, x = t["weight"], t["x"]
    experts, _ = nm.resolved(problem, "experts", weight.shape[1])
    item = experts.new_tensor(range(x.shape[0])).unsqueeze(-1)
    made = nm.dots(problem, x.unsqueeze(-2), weight[item, experts])
    return made.reshaped(*x.shape[:-1], weight.shape[-1]).accepted(problem)


grouped_matmul = Operator(
    "grouped_matmul",
    inputs={
        "x": ks.tensors("P D"),
        "weight": ks.tensors("E D F"),
        "experts": ks.indices("P", below="E"),
    },
    oracle=reference,
    error_model=accept,
    homogeneous={"x": 1, "weight": 1},
    reduced="D",
    batch="P",
    workspaces=("P D F",),
    tolerance=Tolerance(
        Structure.INTERVAL,
        "RNE(y - E) <= y <= RNE(y + E), E = R |x||weight|, R that of a matrix product",
        "as of matmul, the operands those of the row's expert",
    ),
    special_values="as matmul's, of the row and its expert's matrix alone: what others "
    "hold does not count",
)
