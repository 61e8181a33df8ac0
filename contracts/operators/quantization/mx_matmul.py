"""mx_matmul(a, b, scale_a, scale_b, dtype): blocks of 32 on scales of powers of two."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.operators.quantization.scaled_matmul_fp8 import CODES, UNITS
from kfuzz.contracts.prose import bounded


def reference(a: Any, b: Any, scale_a: Any, scale_b: Any, *, dtype: str) -> Any:
    """Sum over blocks g of 32 along K of 2^(s[i, g] + t[g, j] - 254) a_g b_g.

    Scales are codes E8M0, of which 255 is NaN (OCP Microscaling Formats, version 1.0).
    """
    left, right = nm.scaled.grouped(a, b, scale_a.shape[-1])
    s, t = nm.scaled.powers(scale_a), nm.scaled.powers(scale_b)
    return ((left @ right) * s.mT.unsqueeze(-1) * t.unsqueeze(-2)).sum(-3)


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return the scaled sums within R(K) and their roundings."""
    return nm.scaled.microscaled(problem, nm.FORMATS[CODES])


mx_matmul = Operator(
    "mx_matmul",
    inputs={
        "a": ks.tensors("M K", dtype=CODES),
        "b": ks.tensors("K N", dtype=CODES),
        "scale_a": ks.tensors("M G", dtype="uint8"),
        "scale_b": ks.tensors("G N", dtype="uint8"),
        "dtype": ks.dtype("float32", ("float16", "bfloat16")),
    },
    oracle=reference,
    error_model=accept,
    reduced="K",
    batch="M",
    shape_class="K == 32 * G",
    defaults=UNITS,
    **bounded("mx_matmul", Structure.INTERVAL),
)
