"""What probes need to know of formats, in exact arithmetic of Python's."""

import math
import struct
from typing import Final

from kfuzz.core.dtypes import DTYPES

SHORT: Final = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
"""Formats whose products a float32 accumulator holds exactly."""

# Those that `struct` rounds to, to nearest and ties to even.
_CODES: Final = {"float32": "<f", "float16": "<e"}


def precision(dtype: str) -> int:
    """Return the bits of a significand, the hidden one included."""
    return DTYPES[dtype].mantissa_bits + 1


def unit(dtype: str) -> float:
    """Return the unit roundoff: half the distance from 1 to the next number."""
    return 2.0 ** -precision(dtype)


def least_normal(dtype: str) -> float:
    """Return the least positive normal number."""
    return math.ldexp(1.0, 2 - (1 << (DTYPES[dtype].exponent_bits - 1)))


def least_subnormal(dtype: str) -> float:
    """Return the least positive number."""
    return least_normal(dtype) * 2.0 ** (1 - precision(dtype))


def rounded(value: float, dtype: str) -> float:
    """Return a number rounded to a format, to nearest and ties to even."""
    if not math.isfinite(value) or value == 0 or dtype == "float64":
        return value
    if (code := _CODES.get(dtype)) is not None:
        try:
            near: float = struct.unpack(code, struct.pack(code, value))[0]
        except OverflowError:
            return math.copysign(math.inf, value)
        return near
    exponent = max(
        math.frexp(value)[1] - precision(dtype),
        math.frexp(least_subnormal(dtype))[1] - 1,
    )
    near = math.ldexp(round(math.ldexp(value, -exponent)), exponent)
    emax = (1 << (DTYPES[dtype].exponent_bits - 1)) - 1
    overflows = DTYPES[dtype].has_inf and abs(near) >= 2.0 ** (emax + 1)
    return math.copysign(math.inf, value) if overflows else near


def ulps(value: float, reference: float, dtype: str) -> float:
    """Return the distance of two numbers in units of the last place of the second."""
    if value == reference or (math.isnan(value) and math.isnan(reference)):
        return 0.0
    if not math.isfinite(value) or not math.isfinite(reference):
        return math.inf
    exponent = math.frexp(reference)[1] if reference else -(1 << 20)
    low = math.frexp(least_subnormal(dtype))[1] - 1
    place = max(exponent - precision(dtype), low)
    return abs(value - reference) / math.ldexp(1.0, place)
