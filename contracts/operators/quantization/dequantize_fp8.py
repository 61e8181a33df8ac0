"""dequantize_fp8(q, scale, dtype): rows of 8-bit floating-point codes as numbers."""

from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.operators.quantization.dequantize_int8 import (
    accept,
    dequantize_int8,
    reference,
)

dequantize_fp8 = Operator(
    "dequantize_fp8",
    inputs={
        "q": ks.tensors("* N", dtype="float8_e4m3fn"),
        "scale": ks.tensors("*", dtype="float32"),
        "dtype": ks.dtype("float32", ("float16", "bfloat16")),
    },
    oracle=reference,
    error_model=accept,
    tolerance=dequantize_int8.tolerance,
    special_values="a NaN code or scale gives NaN, a NaN scale in its whole row; an "
    "infinite one NaN of codes 0, the infinity of the code's sign of others; overflow "
    "to the infinity",
)
