"""matmul(a, b): the matrix product."""

from typing import Any, Final

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure, Tolerance

# Shared with the other operators that are sums of products.
TOLERANCE: Final = Tolerance(
    Structure.INTERVAL,
    "RNE(ab - E) <= y <= RNE(ab + E), E = R |a||b| + (K+1) lambda, "
    "R = gamma(K+1, u) for float32, max(gamma(K+1, u), 2.5 (K+4) u) for 16-bit "
    "operands in float32 accumulators; E = 0 where every order is exact",
    "K products and K-1 additions in any order, fused or not; truncating tensor "
    "cores of all vendors lie within 2.5 (K+4) u",
)
SPECIAL_VALUES: Final = (
    "NaN terms, 0 * Inf and both infinities give NaN, else the "
    "infinity; undecided where some order overflows the accumulator; 0 if K = 0; NaN "
    "too where a subnormal that may be flushed meets an infinity"
)


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
    tolerance=TOLERANCE,
    special_values=SPECIAL_VALUES,
)
