"""matmul(a, b): the matrix product."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded


def reference(a: Any, b: Any) -> Any:
    """torch.matmul(a, b), a [M, K], b [K, N]."""
    import torch

    return torch.matmul(a, b)


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return a b +- R (|a| |b|), R that of the declared accumulation.

    By default gamma(K+1, u) for float32 operands and the greater of it and
    2.5 (K + 4) u for 16-bit ones, whose products are exact and whose sums
    tensor cores truncate; 0 where the exactness test holds.
    """
    made = nm.dots(problem, problem.tensors["a"], problem.tensors["b"])
    return made.accepted(problem)


matmul = Operator(
    "matmul",
    inputs={"a": ks.tensors("M K"), "b": ks.tensors("K N")},
    oracle=reference,
    homogeneous={"a": 1, "b": 1},
    error_model=accept,
    batch="M",
    reduced="K",
    **bounded("matmul", Structure.INTERVAL),
)
