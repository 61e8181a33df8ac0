"""argmax(x, dim): the index of the greatest element along a dimension."""

from typing import TYPE_CHECKING, Any

from kfuzz import strategies as ks
from kfuzz.contracts.language import Operator, Structure, Tolerance
from kfuzz.core.declaration import Declaration
from kfuzz.core.dtypes import FLOAT8

if TYPE_CHECKING:
    from kfuzz.numerics.acceptance import Acceptance, Problem


def reference(x: Any, *, dim: int) -> Any:
    """torch.argmax(x, dim): the first index of the maximum, or of a NaN."""
    import torch

    n = x.shape[dim]
    nan = x.isnan()
    has_nan = nan.any(dim, keepdim=True)
    wanted = torch.where(has_nan, nan, x == x.amax(dim, keepdim=True))
    shape = [1] * x.dim()
    shape[dim] = n
    index = torch.arange(n, device=x.device).reshape(shape)
    # An argmax of torch's own need not give the first of equals on every device.
    return torch.where(wanted, index, n).amin(dim)


def accept(problem: "Problem") -> "dict[str, Acceptance]":
    """Return the exact index.

    Where subnormals may be flushed, a maximum below the least normal number ties
    with its neighbours, and the index is undecided.
    """
    import torch

    from kfuzz.numerics.acceptance import around
    from kfuzz.numerics.formats import INTEGERS

    x, dim = problem.tensors["x"], problem.axis()
    undecidable = None
    if problem.declaration.subnormals != "preserve":
        top = x.amax(dim)
        undecidable = (top.abs() < problem.format.min_normal) & ~torch.isnan(top)
    index = reference(x, dim=dim).to(torch.float64)
    return {
        "y": around(
            problem, index, 0.0, undecidable=undecidable, output=INTEGERS["int64"]
        )
    }


argmax = Operator(
    "argmax",
    inputs={"x": ks.tensors("*"), "dim": ks.dim(of="x")},
    oracle=reference,
    error=accept,
    defaults=Declaration(subnormals="preserve"),
    dtypes=("float64", "float32", "float16", "bfloat16", *FLOAT8),
    empty_reduction=False,
    tolerance=Tolerance(
        Structure.EXACT,
        "y == the first index of the maximum over dim, int64",
        "comparisons round nothing; of equal maxima the first counts",
    ),
    special_values="the first NaN if the row holds one; +0 and -0 are equal",
)
