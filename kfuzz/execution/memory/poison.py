"""Poison: recognisable bits for memory that a kernel must not read or leave."""

import sys
from typing import Final

import torch
from torch import Tensor

from kfuzz.core.recipe import Poison as Poison

ALTERNATING: Final = (Poison.NAN, Poison.FINITE)
"""What fresh memory holds in the calls of a batch, one after the other."""


# Per dtype the integer type of its width, the bits of the NaN poison and of the
# finite one. NaNs are quiet, with a payload that arithmetic on ordinary data does
# not produce (8-bit formats have no room for one). The finite poison of floats is
# 2^100, or the largest power of two that the format holds (float16 and
# float8_e5m2: 2^15, float8_e4m3fn: 2^8). Integers have no NaN: their two
# patterns are far from any index. A bool must stay 0 or 1 (C++ may assume so), so
# each of its poisons is blind to one of the values.
_BITS: Final[dict[torch.dtype, tuple[torch.dtype, int, int]]] = {
    torch.float64: (torch.int64, 0x7FF8_A5A5_A5A5_A5A5, 0x4630_0000_0000_0000),
    torch.float32: (torch.int32, 0x7FC5_A5A5, 0x7180_0000),
    torch.float16: (torch.int16, 0x7E5A, 0x7800),
    torch.bfloat16: (torch.int16, 0x7FE5, 0x7180),
    torch.float8_e5m2: (torch.uint8, 0x7F, 0x78),
    torch.float8_e4m3fn: (torch.uint8, 0x7F, 0x78),
    torch.int64: (torch.int64, -0x5A5A_5A5A_5A5A_5A5B, 0x5A5A_5A5A_5A5A_5A5A),
    torch.int32: (torch.int32, -0x5A5A_5A5B, 0x5A5A_5A5A),
    torch.int16: (torch.int16, -0x5A5B, 0x5A5A),
    torch.int8: (torch.uint8, 0xA5, 0x5A),
    torch.uint8: (torch.uint8, 0xFF, 0x5A),
    torch.bool: (torch.uint8, 1, 0),
    torch.complex64: (torch.int32, 0x7FC5_A5A5, 0x7180_0000),
    torch.complex128: (torch.int64, 0x7FF8_A5A5_A5A5_A5A5, 0x4630_0000_0000_0000),
}
_OTHER: Final = (torch.uint8, 0xFF, 0x5A)  # dtypes without a pattern of their own


def poison_word(dtype: torch.dtype, poison: Poison) -> tuple[torch.dtype, int]:
    """Return the poison of a dtype as an integer.

    Args:
        dtype: any torch dtype; one without a pattern gets repeated bytes.
        poison: which poison.

    Returns:
        The integer dtype to write it with, which is as wide as an element (one
        part of a complex number, one byte of an unknown dtype), and the value.
    """
    word, nan, finite = _BITS.get(dtype, _OTHER)
    return word, nan if poison is Poison.NAN else finite


def poison_bytes(dtype: torch.dtype, poison: Poison) -> bytes:
    """Return the bytes that poisoned memory of a dtype repeats."""
    word, value = poison_word(dtype, poison)
    signed = word is not torch.uint8
    return value.to_bytes(word.itemsize, sys.byteorder, signed=signed)


def fill_poison(memory: Tensor, dtype: torch.dtype, poison: Poison) -> None:
    """Overwrite raw memory with the poison of a dtype.

    Args:
        memory: contiguous uint8 tensor, its storage offset and size multiples of
            the dtype's item size.
        dtype: the dtype whose elements the memory is to hold.
        poison: which poison.
    """
    word, value = poison_word(dtype, poison)
    memory.view(word).fill_(value)


def bits_of(tensor: Tensor) -> Tensor:
    """Return a tensor's memory as the words that poison is written in.

    Args:
        tensor: any shape and strides, but no lazily conjugated one.

    Returns:
        A view, integers of shape [*shape, words of an element].
    """
    word, _ = poison_word(tensor.dtype, Poison.NAN)
    return tensor.unsqueeze(-1).view(word)
