"""gather(x, index): elements selected along the last dimension."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import EVERY_DTYPE, MOVES, Operator, Structure
from kfuzz.contracts.prose import bounded


def reference(x: Any, index: Any) -> Any:
    """y[i, j] = x[i, index[i, j]]."""
    import torch

    return torch.gather(x, -1, index)


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return the exact acceptance, signs of zeros included: elements are copied."""
    x = problem.tensors["x"]
    index, zero = nm.resolved(problem, "index", x.shape[-1])
    return nm.selected(problem, reference(x, index), zero)


gather = Operator(
    "gather",
    inputs={"x": ks.tensors("N C"), "index": ks.indices("N K", below="C")},
    oracle=reference,
    homogeneous={"x": 1},
    error_model=accept,
    batch="N",
    defaults=MOVES,
    dtypes=EVERY_DTYPE,
    out_of_bounds=("raise", "clamp", "zero", "undefined"),
    **bounded("gather", Structure.EXACT),
)
