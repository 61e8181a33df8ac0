"""embedding(weight, indices): rows of a table."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import EVERY_DTYPE, MOVES, Operator, Structure
from kfuzz.contracts.prose import bounded


def reference(weight: Any, indices: Any) -> Any:
    """weight[indices]: the row of a table for every index."""
    return weight[indices]


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return the exact acceptance, signs of zeros included: rows are copied."""
    weight = problem.tensors["weight"]
    index, zero = nm.resolved(problem, "indices", weight.shape[1])
    width = weight.shape[-1]
    rows = index.reshape(index.shape[0], -1, 1).expand(-1, -1, width)
    y = weight.gather(1, rows).reshape(*index.shape, width)
    return nm.selected(problem, y, zero.unsqueeze(-1))


embedding = Operator(
    "embedding",
    inputs={
        "weight": ks.tensors("V D"),
        "indices": ks.indices("*", below="V"),
    },
    oracle=reference,
    homogeneous={"weight": 1},
    error_model=accept,
    ranks=range(4),
    defaults=MOVES,
    dtypes=EVERY_DTYPE,
    out_of_bounds=("raise", "clamp", "zero", "undefined"),
    **bounded("embedding", Structure.EXACT),
)
