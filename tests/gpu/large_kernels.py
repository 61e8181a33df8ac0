"""Triton kernels that fail beyond 2^31 elements or 65,535 rows, and correct twins."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops

BLOCK = 1024


@triton.jit
def _add_kernel(a_ptr, b_ptr, y_ptr, n, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    if WIDE:
        pid = pid.to(tl.int64)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    a = tl.load(a_ptr + offs, mask=mask)
    b = tl.load(b_ptr + offs, mask=mask)
    tl.store(y_ptr + offs, a + b, mask=mask)


def _add(a: Tensor, b: Tensor, *, wide: bool) -> Tensor:
    y = torch.empty_like(a)
    n = a.numel()
    if n:
        _add_kernel[(triton.cdiv(n, BLOCK),)](a, b, y, n, WIDE=wide, BLOCK=BLOCK)
    return y


@kernel(ops.add, dtypes=("bfloat16",), layouts="contiguous")
def add_int32(a: Tensor, b: Tensor) -> Tensor:
    """Offsets in 32 bits: beyond 2^31 elements they are negative."""
    return _add(a, b, wide=False)


@kernel(ops.add, dtypes=("bfloat16",), layouts="contiguous")
def add_int64(a: Tensor, b: Tensor) -> Tensor:
    """The same, right."""
    return _add(a, b, wide=True)


@triton.jit
def _rows_kernel(x_ptr, y_ptr, n, IN_Y: tl.constexpr, BLOCK: tl.constexpr):
    column, row = tl.program_id(0), tl.program_id(1)
    if not IN_Y:
        column, row = row, column
    offs = column * BLOCK + tl.arange(0, BLOCK)
    start = row.to(tl.int64) * n
    x = tl.load(x_ptr + start + offs, mask=offs < n)
    tl.store(y_ptr + start + offs, tl.maximum(x, 0.0), mask=offs < n)


def _rows(x: Tensor, *, in_y: bool) -> Tensor:
    y = torch.empty_like(x)
    if x.numel():
        rows, n = x.numel() // x.shape[-1], x.shape[-1]
        grid = (triton.cdiv(n, BLOCK), rows) if in_y else (rows, triton.cdiv(n, BLOCK))
        _rows_kernel[grid](x, y, n, IN_Y=in_y, BLOCK=BLOCK)
    return y


@kernel(
    ops.relu, dtypes=("float32",), layouts="contiguous", shape_class="N <= 4096",
    subnormals="any", nonfinite="undefined",
)  # fmt: skip
def rows_in_y(x: Tensor) -> Tensor:
    """A program for each row, in the grid's second dimension."""
    return _rows(x if x.dim() else x.view(1), in_y=True).view(x.shape)


@kernel(
    ops.relu, dtypes=("float32",), layouts="contiguous", shape_class="N <= 4096",
    subnormals="any", nonfinite="undefined",
)  # fmt: skip
def rows_in_x(x: Tensor) -> Tensor:
    """The same in the first, which holds 2^31 - 1."""
    return _rows(x if x.dim() else x.view(1), in_y=False).view(x.shape)


@kernel(ops.softmax, dtypes=("bfloat16",), name="torch_softmax")
def torch_softmax(x: Tensor, dim: int = -1) -> Tensor:
    """Torch's own, of views that span gigabytes too."""
    return torch.softmax(x, dim)
