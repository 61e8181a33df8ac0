"""Rounding to bfloat16 and 8-bit floats as NVIDIA GPUs do, on NumPy arrays.

Triton names the formats: "bf16", "fp8e4nv" (e4m3fn) and "fp8e5" (e5m2). What is
imitated is the code that Triton 3.6 to 3.9 emit for compute capability 9.0, read
from their PTX: `cvt.rn` for bfloat16, `cvt.rn.satfinite` for the 8-bit formats (every
value beyond the greatest finite one, infinities too, becomes that one), NaN in
its canonical bits (PTX ISA, `cvt`).
"""

from typing import Any, Final

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

DTYPES: Final[dict[str, np.dtype[Any]]] = {
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "fp8e4nv": np.dtype(ml_dtypes.float8_e4m3fn),
    "fp8e5": np.dtype(ml_dtypes.float8_e5m2),
}
NAMES: Final = {dtype: name for name, dtype in DTYPES.items()}
_NAN_BITS: Final = {"bf16": 0x7FFF, "fp8e4nv": 0x7F, "fp8e5": 0x7F}
_GREATEST: Final = {"fp8e4nv": 448.0, "fp8e5": 57344.0}
# Integers from here on need more bits than float64 has.
_EXACT_INTEGERS: Final = 2**53


def name_of(data: Array) -> str:
    """Return Triton's name of an array's format, "" for any other dtype."""
    return NAMES.get(data.dtype, "")


def raw(data: Array) -> Array:
    """View a low-precision array as unsigned integers; others are returned."""
    return data.view(f"u{data.itemsize}") if name_of(data) else data


def widen(data: Array) -> Array:
    """Return a low-precision array as float32, exactly; others are returned."""
    return data.astype(np.float32) if name_of(data) else data


def narrow(values: Array, name: str) -> Array:
    """Round to nearest, ties to even, once.

    Args:
        values: bool, integers, or floats of any width, any shape.
        name: a key of `DTYPES`.

    Returns:
        an array of `DTYPES[name]`.
    """
    wide = np.asarray(_as_float32(widen(np.asarray(values))))
    if name in _GREATEST:
        greatest = np.float32(_GREATEST[name])
        wide = np.asarray(np.clip(wide, -greatest, greatest))
    return _with_canonical_nan(wide.astype(DTYPES[name]), wide, name)


def toward_zero(values: Array, name: str) -> Array:
    """Round float32 values towards zero; infinities stay.

    Args:
        values: float32, any shape.
        name: "bf16", "fp8e5" or "fp16".
    """
    if name == "bf16":
        kept = (values.view(np.uint32) >> 16).astype(np.uint16)
        return _with_canonical_nan(kept.view(DTYPES[name]), values, name)
    half = values.astype(np.float16)
    too_far = np.abs(half.astype(np.float32)) > np.abs(values)
    half = np.where(too_far, np.nextafter(half, np.float16(0)), half)
    if name == "fp16":
        return half
    kept = (half.view(np.uint16) >> 8).astype(np.uint8)  # the same exponents
    return _with_canonical_nan(kept.view(DTYPES[name]), values, name)


def constant(value: float) -> Array:
    """Return the bfloat16 that Triton makes of a Python number, as (1,).

    Triton prints the constant with six decimals and reads it back
    (`std::to_string` in its builder), so 1e-7 becomes 0.
    """
    single = float(np.float32(value))
    return narrow(np.array([float(f"{single:.6f}")]), "bf16")


def fused_multiply_add(x: Array, y: Array, z: Array) -> Array:
    """Return x*y + z in bfloat16 with one rounding."""
    product = widen(x).astype(np.float64) * widen(y)  # 16 bits: exact
    addend = widen(z).astype(np.float64)
    total = product + addend
    # Knuth's two-sum: total + lost is the exact sum.
    virtual = total - product
    lost = (product - (total - virtual)) + (addend - virtual)
    return narrow(_sticky(total, lost), "bf16")


def _with_canonical_nan(data: Array, source: Array, name: str) -> Array:
    unknown = np.isnan(source)
    if unknown.any():
        raw(data)[unknown] = _NAN_BITS[name]
    return data


def _as_float32(values: Array) -> Array:
    """Return float32 values that round further as the exact values would."""
    kind, size = values.dtype.kind, values.itemsize
    if kind in "iu" and size == 8:
        values = _squeezed(values)
    if kind == "f" and size <= 4:
        return values.astype(np.float32)
    exact = values.astype(np.float64)
    single = exact.astype(np.float32)
    lost = np.where(np.isfinite(exact), exact - single.astype(np.float64), 0.0)
    return _sticky(single, lost)


def _squeezed(values: Array) -> Array:
    """Fold the last 12 bits of great integers into one, so that float64 holds them.

    Narrow formats keep at most 8 bits: what they round to does not change.
    """
    last = values & values.dtype.type(0xFFF)
    folded = (values ^ last) | np.where(last != 0, values.dtype.type(0x800), 0).astype(
        values.dtype
    )
    below = values < _EXACT_INTEGERS
    if values.dtype.kind == "i":
        below &= values > -_EXACT_INTEGERS
    return np.where(below, values, folded)


def _sticky(rounded: Array, lost: Array) -> Array:
    """Round to odd: of the neighbours of rounded + lost, the one with an odd bit.

    A further rounding to a format with at least two bits less is then correct
    (Boldo and Melquiond, Emulation of FMA and correctly rounded sums, 2008).
    """
    bits = rounded.view(f"i{rounded.itemsize}")
    even = (bits & 1) == 0
    towards = np.copysign(np.array(np.inf, rounded.dtype), lost.astype(rounded.dtype))
    odd = np.nextafter(rounded, towards)
    overflowed = np.isinf(rounded) & (lost != 0) & ~np.isnan(lost)
    changed = ((lost != 0) & ~np.isnan(lost) & np.isfinite(rounded) & even) | overflowed
    return np.where(changed, odd, rounded)
