"""sum(x, dim): the sum along a dimension."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure, Tolerance
from kfuzz.core.dtypes import FLOAT8


def reference(x: Any, *, dim: int) -> Any:
    """torch.sum(x, dim)."""
    import torch

    return torch.sum(x, dim)


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return sum +- gamma(n-1) sum|x| (Higham eq. 4.6), 0 where exact."""
    x, dim, acc = problem.tensors["x"], problem.axis(), problem.accumulation
    finite = nm.finite_or_zero(x)
    overflows = nm.overflow_in_some_order(finite, dim, acc)
    classes = nm.terms_classes(x, lambda t: t.any(dim), overflows)
    flush, data = problem.flushes, problem.format
    error = nm.sum_error(finite, dim, acc, flush=flush, data=data)
    return classes.accepted(problem, finite.sum(dim), error)


sum = Operator(
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
