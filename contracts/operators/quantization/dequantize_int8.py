"""dequantize_int8(q, scale, dtype): rows of 8-bit integer codes as numbers."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded


def reference(q: Any, scale: Any, *, dtype: str) -> Any:
    """The product q * scale, each row with its own, before it is stored as dtype."""
    return q * scale.unsqueeze(-1)


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return the product, rounded once and stored."""
    return nm.quantization.dequantized(problem)


dequantize_int8 = Operator(
    "dequantize_int8",
    inputs={
        "q": ks.tensors("* N", dtype="int8"),
        "scale": ks.tensors("*", dtype="float32"),
        "dtype": ks.dtype("float32", ("float16", "bfloat16")),
    },
    oracle=reference,
    error_model=accept,
    **bounded("dequantize_int8", Structure.INTERVAL),
)
