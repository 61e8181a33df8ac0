"""embedding(weight, indices): rows of a table."""

from typing import TYPE_CHECKING, Any

from kfuzz import strategies as ks
from kfuzz.contracts.language import Structure, Tolerance
from kfuzz.contracts.operator import Operator
from kfuzz.core.declaration import Declaration
from kfuzz.core.dtypes import FLOAT8

if TYPE_CHECKING:
    from kfuzz.numerics.acceptance import Acceptance, Problem


def reference(weight: Any, indices: Any) -> Any:
    """weight[indices]: the row of a table for every index."""
    return weight[indices]


def accept(problem: "Problem") -> "dict[str, Acceptance]":
    """Return the exact acceptance, signs of zeros included: rows are copied."""
    import torch

    from kfuzz.numerics.acceptance import moved
    from kfuzz.numerics.indices import resolved

    weight = problem.tensors["weight"]
    index, zero = resolved(problem, "indices", weight.shape[1])
    width = weight.shape[-1]
    rows = index.reshape(index.shape[0], -1, 1).expand(-1, -1, width)
    y = weight.gather(1, rows).reshape(*index.shape, width)
    y = torch.where(zero.unsqueeze(-1), torch.zeros_like(y), y)
    return {"y": moved(problem, y)}


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
    defaults=Declaration(subnormals="preserve"),
    dtypes=("float64", "float32", "float16", "bfloat16", *FLOAT8),
    out_of_bounds=("raise", "clamp", "zero", "undefined"),
    tolerance=Tolerance(
        Structure.EXACT,
        "y[..., j] == weight[indices[...], j]",
        "a copy rounds nothing and keeps the sign of a zero",
    ),
    special_values="every value is copied, NaN as any NaN, -0 as -0",
)
