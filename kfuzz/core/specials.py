"""The bit patterns of special values: signed zeros, limits of a format, NaN, Inf."""

from functools import lru_cache

from kfuzz.core.dtypes import DTYPES, canonical_nan


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
