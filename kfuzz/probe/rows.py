"""Rows of terms as bytes: most elements alike, a few of their own."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from kfuzz.core.dtypes import DTYPES, number_to_bits, pack_bits


@dataclass(frozen=True)
class Row:
    """The terms of one sum, or one factor of each.

    Attributes:
        fill: the value of most.
        at: the others, by position.
        raw: all of them as bytes, in place of both.
    """

    fill: float = 0.0
    at: Mapping[int, float] = field(default_factory=dict)
    raw: bytes = b""

    def packed(self, n: int, dtype: str) -> bytes:
        """Return n elements of a format.

        Raises:
            ValueError: if the format lacks a value, or `raw` has another size.
        """
        width = DTYPES[dtype].itemsize
        if self.raw:
            if len(self.raw) != n * width:
                raise ValueError("a row of another size")
            return self.raw
        data = bytearray(element(self.fill, dtype) * n)
        for place, value in self.at.items():
            data[place * width : (place + 1) * width] = element(value, dtype)
        return bytes(data)


@lru_cache(maxsize=4096)
def element(value: float, dtype: str) -> bytes:
    """Return the bytes of a value that a format holds exactly.

    Raises:
        ValueError: if it does not.
    """
    return pack_bits([number_to_bits(value, dtype)], dtype)


def transposed(rows: Sequence[bytes], n: int, width: int) -> bytes:
    """Return the columns of rows of n elements, one after the other."""
    cuts = range(0, n * width, width)
    return b"".join(row[at : at + width] for at in cuts for row in rows)


def spread(
    n: int, dtype: str, *, seed: int, octaves: int, cancelling: bool = False
) -> bytes:
    """Return n values of either sign whose exponents are spread around 0.

    Every order of adding them rounds otherwise. With `cancelling` each comes with its
    negative, so that roundings are all that is left: narrow results show them too.
    """
    made, generator = DTYPES[dtype], random.Random(seed)
    bias = (1 << (made.exponent_bits - 1)) - 1
    low, high = max(1, bias - octaves), min(2 * bias, bias + octaves)
    patterns = [
        generator.getrandbits(1) << (made.exponent_bits + made.mantissa_bits)
        | generator.randint(low, high) << made.mantissa_bits
        | generator.getrandbits(made.mantissa_bits)
        for _ in range(n // 2 if cancelling else n)
    ]
    if not made.has_inf:  # the greatest pattern is NaN there
        patterns = [p & ~1 for p in patterns]
    if cancelling:
        sign = 1 << (made.exponent_bits + made.mantissa_bits)
        patterns += [p ^ sign for p in patterns]
        generator.shuffle(patterns)
    return pack_bits(patterns, dtype)
