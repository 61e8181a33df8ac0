"""Operators that select, or add, where indices say."""

from __future__ import annotations

from typing import Any, Final

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.aten.rows import describes
from kfuzz.contracts.gradients.rules import differentiable
from kfuzz.contracts.operator import EVERY_DTYPE, MOVES, Structure
from kfuzz.contracts.prose import defined

# What holds of operators that only select.
SELECTS: Final[dict[str, Any]] = {
    "defaults": MOVES,
    "dtypes": EVERY_DTYPE,
    "out_of_bounds": ("raise", "clamp", "zero", "undefined"),
    "structure": Structure.EXACT,
}


def reference_embedding(weight: Any, indices: Any) -> Any:
    """weight[indices]: the row of a table for every index."""
    return weight[indices]


def accept_embedding(problem: nm.Problem) -> nm.Acceptance:
    """Return the exact acceptance, signs of zeros included: rows are copied."""
    weight = problem.tensors["weight"]
    index, zero = nm.resolved(problem, "indices", weight.shape[1])
    width = weight.shape[-1]
    rows = index.reshape(index.shape[0], -1, 1).expand(-1, -1, width)
    y = weight.gather(1, rows).reshape(*index.shape, width)
    return nm.selected(problem, y, zero.unsqueeze(-1))


embedding = defined(
    "embedding",
    inputs={
        "weight": ks.tensors("V D"),
        "indices": ks.indices("*", below="V"),
    },
    oracle=reference_embedding,
    homogeneous={"weight": 1},
    error_model=accept_embedding,
    ranks=range(4),
    **SELECTS,
    gradient=differentiable("weight", "* D", linear=True),
    aten=describes("embedding", "weight indices"),
)


def reference_gather(x: Any, index: Any) -> Any:
    """y[i, j] = x[i, index[i, j]]."""
    import torch

    return torch.gather(x, -1, index)


def accept_gather(problem: nm.Problem) -> nm.Acceptance:
    """Return the exact acceptance, signs of zeros included: elements are copied."""
    x = problem.tensors["x"]
    index, zero = nm.resolved(problem, "index", x.shape[-1])
    return nm.selected(problem, reference_gather(x, index), zero)


gather = defined(
    "gather",
    inputs={"x": ks.tensors("N C"), "index": ks.indices("N K", below="C")},
    oracle=reference_gather,
    homogeneous={"x": 1},
    error_model=accept_gather,
    batch="N",
    **SELECTS,
    gradient=differentiable("x", "N K", linear=True),
    aten=describes("gather", "self=x dim=1 index"),
)


def reference_index_add(x: Any, index: Any, src: Any, *, alpha: float) -> Any:
    """y[i, j] = x[i, j] + alpha times the sum of the src[k, j] with index[k] = i."""
    return x.index_add(0, index, src, alpha=alpha)


def accept_index_add(problem: nm.Problem) -> nm.Acceptance:
    """Return the acceptance of the sums in each column; see `scattered_sums`."""
    x, src = problem.tensors["x"], problem.tensors["src"]
    rows, _ = nm.resolved(problem, "index", x.shape[1])
    index = rows.unsqueeze(-1).expand_as(src)
    alpha = problem.number("alpha")
    return nm.scattered_sums(problem, x, index, src, dim=1, scale=alpha)


index_add = defined(
    "index_add",
    inputs={
        "x": ks.tensors("V D"),
        "index": ks.indices("K", below="V"),
        "src": ks.tensors("K D"),
        "alpha": ks.scalar(1.0, (2.0, -1.0, 0.5, 0.1)),
    },
    oracle=reference_index_add,
    homogeneous={"x src": 1},
    error_model=accept_index_add,
    gradient=differentiable("x src", "V D", linear=True),
    aten=describes("index_add", "self=x dim=0 index source=src alpha"),
)


def reference_index_select(x: Any, index: Any) -> Any:
    """y[k, j] = x[index[k], j]."""
    return x.index_select(0, index)


def accept_index_select(problem: nm.Problem) -> nm.Acceptance:
    """Return the exact acceptance, signs of zeros included: rows are copied."""
    x = problem.tensors["x"]
    index, zero = nm.resolved(problem, "index", x.shape[1])
    y = x.gather(1, index.unsqueeze(-1).expand(*index.shape, x.shape[-1]))
    return nm.selected(problem, y, zero.unsqueeze(-1))


index_select = defined(
    "index_select",
    inputs={"x": ks.tensors("V D"), "index": ks.indices("K", below="V")},
    oracle=reference_index_select,
    homogeneous={"x": 1},
    error_model=accept_index_select,
    batch="K",
    workspaces=("K D",),
    **SELECTS,
    gradient=differentiable("x", "K D", linear=True),
    aten=describes("index_select", "self=x dim=0 index"),
)


def reference_scatter_add(x: Any, index: Any, src: Any) -> Any:
    """y[i, j] = x[i, j] + the sum of the src[i, k] with index[i, k] = j."""
    return x.scatter_add(-1, index, src)


def accept_scatter_add(problem: nm.Problem) -> nm.Acceptance:
    """Return sums +- gamma(c) (|x| + sum|src|) for c sources; see `scattered_sums`."""
    x, src = problem.tensors["x"], problem.tensors["src"]
    index, _ = nm.resolved(problem, "index", x.shape[-1])
    return nm.scattered_sums(problem, x, index, src)


scatter_add = defined(
    "scatter_add",
    inputs={
        "x": ks.tensors("N C"),
        "index": ks.indices("N K", below="C"),
        "src": ks.tensors("N K"),
    },
    oracle=reference_scatter_add,
    homogeneous={"x src": 1},
    error_model=accept_scatter_add,
    batch="N",
    gradient=differentiable("x src", "N C", linear=True),
    aten=describes("scatter_add", "self=x dim=1 index src"),
)
