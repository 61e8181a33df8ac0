"""Tests and constants of float64 elements, and pairs of masks, in few operations.

A burst's acceptance is a chain of operations on tensors, each of which costs a GPU's
host more than the device: `torch.isfinite` is four of them, a constant that is filled
anew is one.
"""

import math
from functools import cache

import torch
from torch import Tensor


def is_finite(x: Tensor) -> Tensor:
    """Return where float64 elements are neither NaN nor infinite."""
    return x.abs() < math.inf


def plainly_finite(x: Tensor) -> bool:
    """Whether no float64 element is NaN or infinite, where a sum of them shows it.

    Asked on the CPU alone, where the answer saves passes over the elements: a device
    would be waited for.
    """
    return x.device.type == "cpu" and math.isfinite(float(x.sum()))


def finite_or_zero(x: Tensor) -> Tensor:
    """Return float64 elements with +0 in place of NaN and infinities."""
    return torch.nan_to_num(x, nan=0.0, posinf=0.0, neginf=0.0)


def zero(like: Tensor) -> Tensor:
    """Return 0 as a float64 tensor without dimensions, to choose or compare with."""
    return _number(0.0, like.device)


def one(like: Tensor) -> Tensor:
    """Return 1 as a float64 tensor without dimensions."""
    return _number(1.0, like.device)


def infinity(like: Tensor) -> Tensor:
    """Return infinity as a float64 tensor without dimensions."""
    return _number(math.inf, like.device)


def not_a_number(like: Tensor) -> Tensor:
    """Return NaN as a float64 tensor without dimensions."""
    return _number(math.nan, like.device)


def meet(left: Tensor, right: Tensor) -> Tensor:
    """Return where some k has both masks: the matrix product of bits.

    It counts in a format in which a device is fast: no sum of ones and zeros comes out
    as 0 unless it is one, however it rounds.

    Args:
        left: bool [..., M, K].
        right: bool [..., K, N].
    """
    dtype = torch.float32 if left.device.type == "cpu" else torch.float16
    return left.to(dtype) @ right.to(dtype) > 0


def code(value: int, like: Tensor) -> Tensor:
    """Return a small number as an uint8 tensor without dimensions."""
    return _code(value, like.device)


# Kept per device and never written to.
@cache
def _number(value: float, device: torch.device) -> Tensor:
    return torch.full((), value, dtype=torch.float64, device=device)


@cache
def _code(value: int, device: torch.device) -> Tensor:
    return torch.full((), value, dtype=torch.uint8, device=device)


def same_bits(a: Tensor, b: Tensor) -> Tensor:
    """Return where two tensors of one dtype hold the same bits (NaN = NaN)."""
    x, y = a.contiguous(), b.contiguous()
    equal = as_integers(x) == as_integers(y)
    return equal | (torch.isnan(x) & torch.isnan(y))


def identical(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have one shape, one dtype and the same bits."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return torch.equal(as_integers(a.contiguous()), as_integers(b.contiguous()))


def as_integers(values: Tensor) -> Tensor:
    """Return contiguous elements of any dtype as the integers of their size.

    float8 has few operators.
    """
    ints = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return values.view(ints[values.element_size()])
