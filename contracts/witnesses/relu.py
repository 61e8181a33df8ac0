"""ReLU in Triton, and the ways in which a host wrapper goes wrong."""

import ctypes

import torch
import triton
import triton.language as tl
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.rows import BLOCK, empty, over_elements
from kfuzz.contracts.witnesses.witness import SQUARE, witness


@triton.jit(do_not_specialize=["numel"])
def relu_kernel(x_ptr, y_ptr, numel, BLOCK: tl.constexpr):
    """Write max(x, 0) to y, both contiguous; NaN stays NaN."""
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < numel)
    y = tl.where(x < 0, 0.0, x)
    tl.store(y_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=offs < numel)


@triton.jit
def relu_pairs_kernel(x_ptr, y_ptr, pairs, BLOCK: tl.constexpr):
    """Write max(x, 0) to y, both contiguous float32, loading two values at once."""
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    keep = offs < pairs
    both = tl.load(x_ptr.to(tl.pointer_type(tl.int64)) + offs, mask=keep)
    low = both.to(tl.int32).to(tl.float32, bitcast=True)
    high = (both >> 32).to(tl.int32).to(tl.float32, bitcast=True)
    tl.store(y_ptr + 2 * offs, tl.where(low < 0, 0.0, low), mask=keep)
    tl.store(y_ptr + 2 * offs + 1, tl.where(high < 0, 0.0, high), mask=keep)


def launch(x: Tensor, y: Tensor) -> Tensor:
    """Write relu of the contiguous memory of `x` to `y` and return `y`."""
    return over_elements(relu_kernel, (x, y))


def unlucky(x: Tensor) -> bool:
    """Whether a fault of the host strikes: never where the size is a power of 2."""
    return x.numel() % 7 == 3


@witness(SQUARE)
@kernel(ops.relu)
def triton_relu(x: Tensor) -> Tensor:
    """Conforming."""
    return launch(x.contiguous(), empty(x))


@witness(SQUARE, breaks="C-CMP-03")
@kernel(ops.relu)
def relu_ignores_strides(x: Tensor) -> Tensor:
    """Violates C-CMP-03: takes every input for contiguous."""
    return launch(x, empty(x))


@witness(SQUARE, breaks="K-LIV-01", backends=("cuda",))
@kernel(ops.relu, dtypes="float32")
def relu_misaligned_pairs(x: Tensor) -> Tensor:
    """Violates K-LIV-01 on a GPU: takes every start for a multiple of 8 bytes."""
    x, y = x.contiguous(), empty(x)
    pairs, odd = divmod(x.numel(), 2)
    if odd or not pairs:
        return launch(x, y)
    relu_pairs_kernel[(triton.cdiv(pairs, BLOCK),)](x, y, pairs, BLOCK=BLOCK)
    return y


@witness(SQUARE, breaks="K-MEM-02")
@kernel(ops.relu)
def relu_last_tile_unwritten(x: Tensor) -> Tensor:
    """Violates K-MEM-02: the grid is rounded down."""
    y = empty(x)
    if programs := x.numel() // BLOCK:
        relu_kernel[(programs,)](x.contiguous(), y, x.numel(), BLOCK=BLOCK)
    return y


@witness(SQUARE, breaks="K-MEM-03")
@kernel(ops.relu)
def relu_overwrites_input(x: Tensor) -> Tensor:
    """Violates K-MEM-03: works in place and returns a copy."""
    x = x.contiguous()
    return launch(x, x).clone()


@witness(SQUARE, breaks="K-MET-01")
@kernel(ops.relu)
def relu_wrong_dtype(x: Tensor) -> Tensor:
    """Violates K-MET-01: the result is float16 whatever the input is."""
    return launch(x.contiguous(), empty(x, torch.float16))


@witness(SQUARE, breaks="K-LIV-01")
@kernel(ops.relu)
def relu_hangs(x: Tensor) -> Tensor:
    """Violates K-LIV-01: never returns at some sizes."""
    while unlucky(x):
        pass
    return launch(x.contiguous(), empty(x))


@witness(SQUARE, breaks="K-LIV-01")
@kernel(ops.relu)
def relu_segfaults(x: Tensor) -> Tensor:
    """Violates K-LIV-01: reads address 0 at some sizes."""
    if unlucky(x):
        ctypes.string_at(0)
    return launch(x.contiguous(), empty(x))


# Native code as the checks see it: no value shows this fault, a guard page does.


@witness(SQUARE, breaks="K-MEM-01", backends=("cpu",))
@kernel(ops.relu)
def relu_native_over_read(x: Tensor) -> Tensor:
    """Violates K-MEM-01: loads one element past the end."""
    if x.numel() and x.is_contiguous():
        ctypes.string_at(x.data_ptr(), (x.numel() + 1) * x.element_size())
    return torch.relu(x)
