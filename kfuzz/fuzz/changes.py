"""Changing the bytes that cases are drawn from.

Hypothesis reads one draw after the other from the bytes, each from bytes of its own,
so that a byte changed in place changes one draw and what depends on it. libFuzzer's
own changes mostly shift bytes, after which every later draw is another one.
"""

import hashlib
import random
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

# What an input lacks at its end is made from its hash. No case reads more than this.
PADDING: Final = 512
# Bytes of an input that is all padding: a case drawn afresh.
FRESH_BYTES: Final = 8
MOST_BYTES: Final = 1024
# Inputs whose bytes are remembered as they were read.
_REMEMBERED: Final = 8192

# Shares of the changes, in 16ths; the rest are bytes changed in place.
_FRESH: Final = 2
_NEW_TAIL: Final = 2
_LIBFUZZER: Final = 1
# How many bytes are changed in place.
_PLACES: Final = (1, 1, 1, 2, 2, 3)

Mutate = Callable[[bytes, int], bytes]


def padded(data: bytes) -> bytes:
    """Return the bytes of an input, with as many behind as a case may read."""
    return data + hashlib.shake_128(data).digest(PADDING)


class Mutator:
    """Makes new inputs from those that reached something.

    Args:
        libfuzzer: libFuzzer's own change: bytes and the greatest size to bytes.
    """

    def __init__(self, libfuzzer: Mutate) -> None:
        self._libfuzzer = libfuzzer
        self._read: OrderedDict[bytes, bytes] = OrderedDict()

    def learn(self, data: bytes, read: bytes) -> None:
        """Remember which bytes a case read of an input and its padding."""
        self._read[data] = read
        if len(self._read) > _REMEMBERED:
            self._read.popitem(last=False)

    def mutate(self, data: bytes, most: int, seed: int) -> bytes:
        """Return another input."""
        chance = random.Random(seed)
        whole = bytearray(self._read.get(data, data))
        kind = chance.randrange(16)
        if kind < _FRESH or not whole:
            return chance.randbytes(FRESH_BYTES)[:most]
        if kind < _FRESH + _NEW_TAIL:
            whole = whole[: chance.randrange(len(whole))]
            return bytes(whole + chance.randbytes(FRESH_BYTES))[:most]
        if kind < _FRESH + _NEW_TAIL + _LIBFUZZER:
            return bytes(self._libfuzzer(bytes(whole), most))
        for _ in range(chance.choice(_PLACES)):
            whole[chance.randrange(len(whole))] = chance.randrange(256)
        return bytes(whole)[:most]

    def cross(self, data: bytes, other: bytes, most: int, seed: int) -> bytes:
        """Return the beginning of one input with the end of another."""
        one, two = self._read.get(data, data), self._read.get(other, other)
        cut = random.Random(seed).randrange(min(len(one), len(two)) + 1)
        return (one[:cut] + two[cut:])[:most]
