"""index_select(x, index): rows selected by a list of indices."""

from typing import TYPE_CHECKING, Any

from kfuzz import strategies as ks
from kfuzz.contracts.language import Structure, Tolerance
from kfuzz.contracts.operator import Operator
from kfuzz.core.declaration import Declaration
from kfuzz.core.dtypes import FLOAT8

if TYPE_CHECKING:
    from kfuzz.numerics.acceptance import Acceptance, Problem


def reference(x: Any, index: Any) -> Any:
    """y[k, j] = x[index[k], j]."""
    return x.index_select(0, index)


def accept(problem: "Problem") -> "dict[str, Acceptance]":
    """Return the exact acceptance, signs of zeros included: rows are copied."""
    import torch

    from kfuzz.numerics.acceptance import moved
    from kfuzz.numerics.indices import resolved

    x = problem.tensors["x"]
    index, zero = resolved(problem, "index", x.shape[1])
    y = x.gather(1, index.unsqueeze(-1).expand(*index.shape, x.shape[-1]))
    y = torch.where(zero.unsqueeze(-1), torch.zeros_like(y), y)
    return {"y": moved(problem, y)}


index_select = Operator(
    "index_select",
    inputs={"x": ks.tensors("V D"), "index": ks.indices("K", below="V")},
    oracle=reference,
    homogeneous={"x": 1},
    error_model=accept,
    batch="K",
    workspaces=("K D",),
    defaults=Declaration(subnormals="preserve"),
    dtypes=("float64", "float32", "float16", "bfloat16", *FLOAT8),
    out_of_bounds=("raise", "clamp", "zero", "undefined"),
    tolerance=Tolerance(
        Structure.EXACT,
        "y[k, j] == x[index[k], j]",
        "a copy rounds nothing and keeps the sign of a zero",
    ),
    special_values="every value is copied, NaN as any NaN, -0 as -0",
)
