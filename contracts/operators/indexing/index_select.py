"""index_select(x, index): rows selected by a list of indices."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import EVERY_DTYPE, MOVES, Operator, Structure
from kfuzz.contracts.prose import bounded


def reference(x: Any, index: Any) -> Any:
    """y[k, j] = x[index[k], j]."""
    return x.index_select(0, index)


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return the exact acceptance, signs of zeros included: rows are copied."""
    x = problem.tensors["x"]
    index, zero = nm.resolved(problem, "index", x.shape[1])
    y = x.gather(1, index.unsqueeze(-1).expand(*index.shape, x.shape[-1]))
    return nm.selected(problem, y, zero.unsqueeze(-1))


index_select = Operator(
    "index_select",
    inputs={"x": ks.tensors("V D"), "index": ks.indices("K", below="V")},
    oracle=reference,
    homogeneous={"x": 1},
    error_model=accept,
    batch="K",
    workspaces=("K D",),
    defaults=MOVES,
    dtypes=EVERY_DTYPE,
    out_of_bounds=("raise", "clamp", "zero", "undefined"),
    **bounded("index_select", Structure.EXACT),
)
