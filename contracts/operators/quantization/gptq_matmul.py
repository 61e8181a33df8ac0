"""gptq_matmul(x, codes, scale, zero): weights and zero points packed in int32."""

from dataclasses import replace
from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operators.quantization.int4_matmul import int4_matmul, weights


def unpacked(codes: Any, zero: Any) -> tuple[Any, Any]:
    """Return codes [K, N] of [K/8, N], and zero points + 1 [G, N] of [G, N/8]."""
    return nm.scaled.nibbles(codes, 8, -2), nm.scaled.nibbles(zero, 8, -1) + 1


def reference(x: Any, codes: Any, scale: Any, zero: Any) -> Any:
    """X @ ((n - zero - 1) scale), n and zero eight to an int32, the lowest bits first.

    Codes are packed along K, zero points along N, as the format of GPTQ has it.
    """
    n, z = unpacked(codes, zero)
    return x @ weights(n, scale, z)


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return the product, weights rounded three times; see `numerics.models.scaled`."""
    t = problem.tensors
    return nm.scaled.of_nibbles(problem, *unpacked(t["codes"], t["zero"]))


gptq_matmul = replace(
    int4_matmul,
    name="gptq_matmul",
    inputs={
        "x": ks.tensors("M K"),
        "codes": ks.tensors("L N", dtype="int32"),
        "scale": ks.tensors("G N", role="weight"),
        "zero": ks.tensors("G P", dtype="int32"),
    },
    oracle=reference,
    error_model=accept,
    shape_class="K == 8 * L and N == 8 * P and G >= 1 and L % G == 0",
)
