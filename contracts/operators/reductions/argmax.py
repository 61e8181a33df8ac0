"""argmax(x, dim): the index of the greatest element along a dimension."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import EVERY_DTYPE, MOVES, Operator, Structure
from kfuzz.contracts.prose import bounded


def reference(x: Any, *, dim: int) -> Any:
    """torch.argmax(x, dim): the first index of the maximum, or of a NaN."""
    import torch

    # An argmax of torch's own need not give the first of equals on every device.
    found, index = _maxima(x, dim)
    return torch.where(found, index, x.shape[dim]).amin(dim)


def _maxima(x: Any, dim: int) -> tuple[Any, Any]:
    """Return where a row's maximum is, or its NaNs, and the indices along it."""
    import torch

    nan = x.isnan()
    has_nan = nan.any(dim, keepdim=True)
    found = torch.where(has_nan, nan, x == x.amax(dim, keepdim=True))
    shape = [1] * x.dim()
    shape[dim] = x.shape[dim]
    return found, torch.arange(x.shape[dim], device=x.device).reshape(shape)


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return the exact index, or from the first to the last where any may be named.

    Where subnormals may be flushed, a maximum below the least normal number ties
    with its neighbours, and the index is undecided.
    """
    import torch

    x, dim = problem.tensors["x"], problem.axis()
    undecidable = None
    if problem.flushes:
        top = x.amax(dim)
        undecidable = (top.abs() < problem.format.min_normal) & ~torch.isnan(top)
    first = reference(x, dim=dim).to(torch.float64)
    last = first
    if problem.declaration.ties == "any":
        found, index = _maxima(x, dim)
        last = torch.where(found, index, -1).amax(dim).to(torch.float64)
    return nm.between(
        problem, first, first, last,
        undecidable=undecidable, output=nm.INTEGERS["int64"],
    )  # fmt: skip


def related(problem: "nm.Problem", outputs: "nm.Tensors") -> "nm.Tensors":
    """The index names a maximum, or a NaN if there is one."""
    x, dim, y = problem.tensors["x"], problem.axis(), outputs["y"]
    n = x.shape[dim]
    found, _ = _maxima(x, dim)
    named = y.clamp(0, n - 1).unsqueeze(dim)
    return {"y": found.gather(dim, named).squeeze(dim) & (y >= 0) & (y < n)}


argmax = Operator(
    "argmax",
    inputs={"x": ks.tensors("*"), "dim": ks.dim(of="x")},
    oracle=reference,
    homogeneous={"x": 0},
    integers=("y",),
    error_model=accept,
    relation=related,
    defaults=MOVES,
    dtypes=EVERY_DTYPE,
    empty_reduction=False,
    **bounded("argmax", Structure.EXACT),
)
