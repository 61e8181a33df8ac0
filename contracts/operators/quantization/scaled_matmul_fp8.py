"""scaled_matmul_fp8(a, b, scale_a, scale_b, bias, dtype): the same of 8-bit floats."""

from dataclasses import replace

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Structure
from kfuzz.contracts.operators.quantization.scaled_matmul_int8 import scaled_matmul_int8
from kfuzz.contracts.prose import bounded
from kfuzz.core.declaration import Declaration

CODES = "float8_e4m3fn"
UNITS = Declaration(accumulator="any_tensor_core")


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return the scaled sums within R(K) and their roundings."""
    return nm.scaled.by_groups(problem, nm.FORMATS[CODES])


scaled_matmul_fp8 = replace(
    scaled_matmul_int8,
    name="scaled_matmul_fp8",
    inputs={
        **scaled_matmul_int8.inputs,
        "a": ks.tensors("M K", dtype=CODES),
        "b": ks.tensors("K N", dtype=CODES),
    },
    error_model=accept,
    defaults=UNITS,
    **bounded("scaled_matmul_fp8", Structure.INTERVAL),
)
