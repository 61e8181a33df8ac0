"""sum(x, dim): the sum along a dimension."""

from typing import TYPE_CHECKING, Any

from kfuzz import strategies as ks
from kfuzz.contracts.language import Structure, Tolerance
from kfuzz.contracts.operator import Operator
from kfuzz.core.dtypes import FLOAT8

if TYPE_CHECKING:
    from kfuzz.numerics.acceptance import Acceptance, Problem


def reference(x: Any, *, dim: int) -> Any:
    """torch.sum(x, dim)."""
    import torch

    return torch.sum(x, dim)


def accept(problem: "Problem") -> "dict[str, Acceptance]":
    """Return sum +- gamma(n-1) sum|x| (Higham eq. 4.6), 0 where exact."""
    import torch

    from kfuzz.numerics.acceptance import around
    from kfuzz.numerics.bounds import Accumulation, overflow_in_some_order, sum_error
    from kfuzz.numerics.elements import finite_or_zero
    from kfuzz.numerics.specials import sum_classes

    x, dim = problem.tensors["x"], problem.axis()
    acc = Accumulation.declared(problem.declaration, attribution=problem.attribution)
    finite = finite_or_zero(x)
    total = finite.sum(dim)
    classes = sum_classes(
        x.isnan().any(dim),
        (x == float("inf")).any(dim),
        (x == float("-inf")).any(dim),
        overflow_in_some_order(finite, dim, acc),
    )
    flush = problem.declaration.subnormals != "preserve"
    return {
        "y": around(
            problem,
            torch.where(classes.finite, total, classes.reference),
            sum_error(finite, dim, acc, flush=flush, data=problem.format),
            classes=classes.admitted,
            ambiguous=classes.ambiguous,
        )
    }


sum_ = Operator(
    "sum",
    inputs={"x": ks.tensors("*"), "dim": ks.dim(of="x")},
    oracle=reference,
    homogeneous={"x": 1},
    error_model=accept,
    dtypes=("float32", "float16", "bfloat16", *FLOAT8),
    tolerance=Tolerance(
        Structure.INTERVAL,
        "RNE(s - E) <= y <= RNE(s + E), E = gamma(n-1, u) sum|x|, and where "
        "subnormals may be flushed the sum of |x| < lambda and n lambda more; E = 0 "
        "where every order is exact",
        "n-1 additions in any order in the declared accumulator (Higham eq. 4.6), "
        "then one rounding to the output; if all terms are multiples of 2^q and "
        "sum|x| <= 2^(p+q) no order rounds at all",
    ),
    special_values="NaN if the row holds NaN or both infinities; else the infinity "
    "it holds; undecided where some order overflows the accumulator; 0 if empty",
)
