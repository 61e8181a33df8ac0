"""Correct kernels on 8-bit floats: computed in float32, rounded once by the store.

Triton's casts to 8 bits saturate, infinities too, where torch's CPU casts overflow.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses import amax as amax_witnesses
from kfuzz.contracts.witnesses import sum as sum_witnesses
from kfuzz.contracts.witnesses.witness import LONG_ROWS, SQUARE, witness
from kfuzz.core.dtypes import FLOAT8

BLOCK = 1024


@triton.jit(do_not_specialize=["numel"])
def relu_kernel(x_ptr, y_ptr, numel, BLOCK: tl.constexpr):
    """Write max(x, 0) to y, both contiguous; there is no 8-bit comparison."""
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < numel).to(tl.float32)
    y = tl.where(x < 0, 0.0, x)
    tl.store(y_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=offs < numel)


@witness(SQUARE, dtype="float8_e5m2")
@kernel(ops.relu, dtypes=FLOAT8, overflow="saturate")
def triton_relu_float8(x: Tensor) -> Tensor:
    """Conforming."""
    x = x.contiguous()
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.numel():
        relu_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, y, x.numel(), BLOCK=BLOCK)
    return y


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
