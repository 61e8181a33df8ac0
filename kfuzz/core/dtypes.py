"""Names, sizes and exact Python values of the tensor dtypes a recipe may hold."""

import math
import struct
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final


@dataclass(frozen=True)
class DType:
    """An element type: its torch name, width in bytes and binary layout.

    Attributes:
        name: torch's name without the prefix, e.g. "bfloat16".
        itemsize: bytes per element.
        kind: "float", "int", "uint" or "bool".
        exponent_bits: width of the exponent field; 0 where not a float.
        mantissa_bits: explicit significand bits; 0 where not a float.
        has_inf: whether the all-ones exponent encodes infinities (IEEE 754).
    """

    name: str
    itemsize: int
    kind: str
    exponent_bits: int = 0
    mantissa_bits: int = 0
    has_inf: bool = True


DTYPES: Final = {
    d.name: d
    for d in (
        DType("float64", 8, "float", 11, 52),
        DType("float32", 4, "float", 8, 23),
        DType("float16", 2, "float", 5, 10),
        DType("bfloat16", 2, "float", 8, 7),
        DType("float8_e5m2", 1, "float", 5, 2),
        DType("float8_e4m3fn", 1, "float", 4, 3, has_inf=False),
        DType("int64", 8, "int"),
        DType("int32", 4, "int"),
        DType("int16", 2, "int"),
        DType("int8", 1, "int"),
        DType("uint8", 1, "uint"),
        DType("bool", 1, "bool"),
    )
}

# Judged only where a kernel declares them.
FLOAT8: Final = ("float8_e4m3fn", "float8_e5m2")


def bits_to_number(bits: int, dtype: str) -> float | int:
    """Return the exact value of an element given by its raw bits.

    Args:
        bits: the element as an unsigned integer of the dtype's width.
        dtype: a key of `DTYPES`.

    Returns:
        A float (NaN and infinities included) for floats, else an int.
    """
    d = DTYPES[dtype]
    if d.kind in ("uint", "bool"):
        return bits
    if d.kind == "int":
        width = 8 * d.itemsize
        return bits - (1 << width) if bits >> (width - 1) else bits
    if d.itemsize >= 4:
        code = "<d" if d.itemsize == 8 else "<f"
        return float(struct.unpack(code, bits.to_bytes(d.itemsize, "little"))[0])
    e_bits, m_bits = d.exponent_bits, d.mantissa_bits
    sign = -1.0 if bits >> (e_bits + m_bits) & 1 else 1.0
    exponent = bits >> m_bits & ((1 << e_bits) - 1)
    mantissa = bits & ((1 << m_bits) - 1)
    bias = (1 << (e_bits - 1)) - 1
    top = (1 << e_bits) - 1
    if exponent == top and d.has_inf:
        return math.copysign(math.nan if mantissa else math.inf, sign)
    if exponent == top and mantissa == (1 << m_bits) - 1:
        return math.copysign(math.nan, sign)
    if exponent == 0:
        return sign * math.ldexp(mantissa, 1 - bias - m_bits)
    return sign * math.ldexp(mantissa + (1 << m_bits), exponent - bias - m_bits)


def number_to_bits(value: float | int, dtype: str) -> int:
    """Return the raw bits of a value that the dtype holds exactly.

    Raises:
        ValueError: if the dtype has no such value.
    """
    d = DTYPES[dtype]
    width = 8 * d.itemsize
    if d.kind != "float":
        as_int = int(value)
        low = -(1 << (width - 1)) if d.kind == "int" else 0
        high = 1 if d.kind == "bool" else low + (1 << width) - 1
        if as_int != value or not low <= as_int <= high:
            raise ValueError(f"{value!r} is not a value of {dtype}")
        return as_int & ((1 << width) - 1)
    value = float(value)
    if math.isnan(value):
        return canonical_nan(dtype)
    if d.itemsize == 8:
        return int.from_bytes(struct.pack("<d", value), "little")
    e_bits, m_bits = d.exponent_bits, d.mantissa_bits
    sign = int(math.copysign(1.0, value) < 0) << (e_bits + m_bits)
    bias = (1 << (e_bits - 1)) - 1
    magnitude = abs(value)
    if math.isinf(magnitude):
        if not d.has_inf:
            raise ValueError(f"{value!r} is not a value of {dtype}")
        return sign | ((1 << e_bits) - 1) << m_bits
    if magnitude == 0:
        return sign
    exponent = max(math.frexp(magnitude)[1] - 1, 1 - bias)
    scaled = math.ldexp(magnitude, m_bits - exponent)
    mantissa = int(scaled)
    field = exponent + bias if mantissa >> m_bits else 0
    bits = sign | field << m_bits | (mantissa & ((1 << m_bits) - 1))
    if mantissa != scaled or field >> e_bits or bits_to_number(bits, dtype) != value:
        raise ValueError(f"{value!r} is not a value of {dtype}")
    return bits


def canonical_nan(dtype: str) -> int:
    """Return the bits of the quiet, positive NaN of a float dtype."""
    d = DTYPES[dtype]
    if not d.has_inf:
        return (1 << (d.exponent_bits + d.mantissa_bits)) - 1
    return ((1 << d.exponent_bits) - 1) << d.mantissa_bits | 1 << (d.mantissa_bits - 1)


def unpack_bits(data: bytes, dtype: str) -> list[int]:
    """Split raw little-endian elements into their unsigned bit patterns."""
    return _swapped(array(_WORD[DTYPES[dtype].itemsize], data)).tolist()


def pack_bits(patterns: Sequence[int], dtype: str) -> bytes:
    """Join unsigned bit patterns into raw little-endian elements."""
    return _swapped(array(_WORD[DTYPES[dtype].itemsize], patterns)).tobytes()


def unpack_numbers(data: bytes, dtype: str) -> list[float]:
    """Return the exact values of raw little-endian elements, as floats.

    The same as `bits_to_number` of each, and fast on millions of elements.
    """
    patterns = unpack_bits(data, dtype)
    if dtype == "bfloat16":  # the upper half of a float32
        data = pack_bits([p << 16 for p in patterns], "float32")
        dtype = "float32"
    code = {"float64": "d", "float32": "f", "float16": "e"}.get(dtype)
    if code is None:
        return [float(bits_to_number(p, dtype)) for p in patterns]
    return list(struct.unpack(f"<{len(patterns)}{code}", data))


@lru_cache(maxsize=64)
def specials(dtype: str, *, finite: bool) -> tuple[int, ...]:
    """Return the bits of the values worth planting.

    −0, the least subnormal and the greatest finite value of both signs, NaN of
    both signs and the infinities; of integers 0, 1, −1 and the ends, of truth
    values both.

    Args:
        dtype: any dtype.
        finite: whether NaN and infinities are left out.
    """
    d = DTYPES[dtype]
    if d.kind == "bool":
        return (0, 1)
    sign = 1 << (8 * d.itemsize - 1)
    if d.kind != "float":
        return (0, 1, 2 * sign - 1, sign - 1, sign)
    infinity = ((1 << d.exponent_bits) - 1) << d.mantissa_bits
    # Patterns ascend with magnitude: below the least NaN or infinity is the
    # greatest finite value.
    greatest = infinity - 1 if d.has_inf else canonical_nan(dtype) - 1
    bits = [sign, 1, sign | 1, greatest, sign | greatest]
    if not finite:
        nan = canonical_nan(dtype)
        bits += [nan, nan | sign, *((infinity, infinity | sign) if d.has_inf else ())]
    return tuple(bits)


# Codes of unsigned integers of 1, 2, 4 and 8 bytes in the module `array`.
_WORD: Final = {1: "B", 2: "H", 4: "I", 8: "Q"}


def _swapped(words: "array[int]") -> "array[int]":
    """Return the words with their bytes in little-endian order."""
    if sys.byteorder == "big":
        words.byteswap()
    return words
