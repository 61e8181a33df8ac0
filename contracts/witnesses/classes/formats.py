"""What kernels make of subnormal numbers, and of 8-bit floats."""

import math

import torch
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses import amax as amax_witnesses
from kfuzz.contracts.witnesses import sum as sum_witnesses
from kfuzz.contracts.witnesses.elementwise import unary
from kfuzz.contracts.witnesses.witness import LONG_ROWS, SQUARE, witness
from kfuzz.core.dtypes import FLOAT8

# What kernels make of subnormal numbers, in plain torch.


def flushed(x: Tensor) -> Tensor:
    """Return x with 0 for its subnormal numbers."""
    least = torch.finfo(x.dtype).tiny
    return torch.where(x.abs() < least, torch.zeros_like(x), x)


@witness(SQUARE, breaks="C-PRC-03")
@kernel(ops.log)
def log_by_exponent_bits(x: Tensor) -> Tensor:
    """Violates C-PRC-03: takes the exponent from the bits, which lie for subnormals.

    Their leading bit is no hidden one: 2^-149 is taken for 1.0000001 times 2^-127.
    """
    bits = x.float().contiguous().view(torch.int32)
    exponent = ((bits >> 23) & 0xFF) - 127
    fraction = ((bits & 0x7FFFFF) | 0x3F800000).view(torch.float32)
    y = exponent.double() * math.log(2) + torch.log(fraction.double())
    usual = (x > 0) & torch.isfinite(x)
    return torch.where(usual, y, torch.log(x).double()).to(x.dtype)


# Correct kernels on 8-bit floats: computed in float32, rounded once by the store.


@witness(SQUARE, dtype="float8_e5m2")
@kernel(ops.relu, dtypes=FLOAT8, overflow="saturate")
def triton_relu_float8(x: Tensor) -> Tensor:
    """Conforming."""
    return unary(x, "relu")


# Sums of one term: no rounded 8-bit sum lies within 1e-2.
@witness((64, 1), dtype="float8_e5m2")
@kernel(ops.sum, dtypes=FLOAT8, overflow="saturate")
def triton_sum_float8(x: Tensor, dim: int) -> Tensor:
    """Conforming."""
    return sum_witnesses.launch(x, dim)


@witness(LONG_ROWS, dtype="float8_e5m2")
@kernel(ops.amax, dtypes=FLOAT8, overflow="saturate")
def triton_amax_float8(x: Tensor, dim: int) -> Tensor:
    """Conforming."""
    return amax_witnesses.launch(x, dim)
