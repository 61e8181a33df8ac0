"""Triton kernels that touch memory beside what they were given, values unharmed."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.classes.reach import relu_between
from kfuzz.contracts.witnesses.relu import launch
from kfuzz.contracts.witnesses.rows import BLOCK, empty
from kfuzz.core.recipe import span_of

# Bytes of the widest load of one thread.
VECTOR = 16
COLUMNS = 256
# Elements that are loaded ahead at most.
AHEAD = 1 << 16


@kernel(ops.relu)
def relu_reads_vector_past(x: Tensor) -> Tensor:
    """Violates K-MEM-01: loads one more vector than there is, and uses none of it."""
    return relu_between(x, load_past=VECTOR // x.element_size())


@triton.jit(do_not_specialize=["numel", "stores"])
def touch_kernel(x_ptr, y_ptr, numel, stores, BLOCK: tl.constexpr):
    """Load `numel` elements; the first `stores` of them are written to y, 0 at run."""
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < numel, volatile=True)
    tl.store(y_ptr + offs, x, mask=offs < stores)


def prefetched(x: Tensor, elements: int) -> Tensor:
    """Return relu(x) after the first of `elements` of its memory were loaded."""
    y, elements = launch(x.contiguous(), empty(x)), min(elements, AHEAD)
    if elements:
        touch_kernel[(triton.cdiv(elements, BLOCK),)](x, y, elements, 0, BLOCK=BLOCK)
    return y


@kernel(ops.relu)
def triton_relu_prefetched(x: Tensor) -> Tensor:
    """Conforming: what is loaded ahead lies between the first and the last element."""
    return prefetched(x, span_of(x.shape, x.stride()))


@kernel(ops.relu)
def relu_prefetches_dense(x: Tensor) -> Tensor:
    """Violates K-MEM-01: loads an expanded input ahead as if it were a dense one."""
    return prefetched(x, x.numel())


@triton.jit(do_not_specialize=["n", "x_pitch", "y_pitch", "end"])
def pitched_kernel(x_ptr, y_ptr, n, x_pitch, y_pitch, end, BLOCK: tl.constexpr):
    """y[i, :n] = max(x[i, :], 0), and 0 beyond, up to `end` but in the last row."""
    row = tl.program_id(0).to(tl.int64)
    offs = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_pitch + offs, mask=offs < n, other=0.0)
    y = tl.where(x < 0, 0.0, x)
    stop = tl.where(row == tl.num_programs(0) - 1, n, end)
    place = y_ptr + row * y_pitch + offs
    tl.store(place, y.to(y_ptr.dtype.element_ty), mask=offs < stop)


def pitched(x: Tensor, y: Tensor, *, clear: bool) -> None:
    """Write relu(x) to y, rows of which may lie apart; maybe clear what lies between.

    Args:
        x: any tensor.
        y: of its shape, the elements of a row side by side.
        clear: whether the slack between rows is written too.
    """
    if not x.numel():
        return
    n = x.shape[-1] if x.dim() else 1
    rows, made = x.contiguous().view(-1, n), y.view(-1, n)
    pitch = made.stride(0) if len(made) > 1 else n
    grid = (len(made), triton.cdiv(pitch, COLUMNS))
    end = pitch if clear else n
    pitched_kernel[grid](rows, made, n, n, pitch, end, BLOCK=COLUMNS)


@kernel(ops.relu, layouts="inner_contiguous", out=("y",))
def triton_relu_pitched(x: Tensor, y: Tensor) -> None:
    """Conforming."""
    pitched(x, y, clear=False)


@kernel(ops.relu, layouts="inner_contiguous", out=("y",))
def relu_clears_slack(x: Tensor, y: Tensor) -> None:
    """Violates K-MEM-01: writes zeros between the rows of its destination."""
    pitched(x, y, clear=True)


@kernel(ops.relu)
def relu_empty_off_tile(x: Tensor) -> Tensor:
    """Violates K-MEM-02: returns fresh memory where the size is odd."""
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    return y if x.numel() % 2 else launch(x.contiguous(), y)
