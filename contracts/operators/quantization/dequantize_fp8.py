"""dequantize_fp8(q, scale, dtype): rows of 8-bit floating-point codes as numbers."""

from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.operators.quantization.dequantize_int8 import (
    accept,
    reference,
)
from kfuzz.contracts.prose import bounded

dequantize_fp8 = Operator(
    "dequantize_fp8",
    inputs={
        "q": ks.tensors("* N", dtype="float8_e4m3fn"),
        "scale": ks.tensors("*", dtype="float32"),
        "dtype": ks.dtype("float32", ("float16", "bfloat16")),
    },
    oracle=reference,
    error_model=accept,
    **bounded("dequantize_fp8", Structure.INTERVAL),
)
