"""scaled_matmul_int8(a, b, scale_a, scale_b, bias, dtype): rows by columns of codes."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded


def reference(
    a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any = None, *, dtype: str
) -> Any:
    """scale_a[i] scale_b[j] sum_k a[i, k] b[k, j] + bias[j], before the store."""
    y = (a.double() @ b.double()) * scale_a.unsqueeze(-1) * scale_b
    return y if bias is None else y + bias


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return the sum, exact in int32, after at most 6 roundings."""
    return nm.scaled.by_groups(problem, None)


scaled_matmul_int8 = Operator(
    "scaled_matmul_int8",
    inputs={
        "a": ks.tensors("M K", dtype="int8"),
        "b": ks.tensors("K N", dtype="int8"),
        "scale_a": ks.tensors("M", dtype="float32", role="weight"),
        "scale_b": ks.tensors("N", dtype="float32", role="weight"),
        "bias": ks.tensors("N", dtype="float32", role="bias", optional=True),
        "dtype": ks.dtype("float32", ("float16", "bfloat16")),
    },
    oracle=reference,
    error_model=accept,
    reduced="K",
    batch="M",
    **bounded("scaled_matmul_int8", Structure.INTERVAL),
)
