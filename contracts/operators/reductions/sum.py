"""sum(x, dim): the sum along a dimension."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded
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
    **bounded("sum", Structure.INTERVAL),
)
