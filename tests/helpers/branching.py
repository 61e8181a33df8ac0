"""Faults behind narrow branches of a wrapper or of a kernel's body.

Each is right wherever a condition of several parts does not hold. They calibrate no
contract: drawing cases uniformly meets few of them, coverage of the branches most. See
`tests/benchmarks/narrow_branches.py`.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops

VECTOR = 4


def _without_last(y: Tensor) -> Tensor:
    """Return the result with its last column left at 1."""
    y[..., -1:] = 1
    return y


@kernel(ops.softmax, dims={-1})
def softmax_tuned_shape(x: Tensor, dim: int = -1) -> Tensor:
    """Violates C-CMP-03: wrong at 2 x 3 rows of 1023 columns."""
    y = torch.softmax(x, dim)
    if x.dim() == 3 and x.shape[2] == 1023 and x.shape[1] == 3 and x.shape[0] == 2:
        return _without_last(y)
    return y


@kernel(ops.relu)
def relu_odd_shape(x: Tensor) -> Tensor:
    """Violates C-CMP-03: wrong at 11 rows of 777 columns."""
    y = torch.relu(x)
    if x.dim() == 2 and x.shape[1] == 777 and x.shape[0] == 11:
        return _without_last(y)
    return y


@kernel(ops.amax)
def amax_bfloat16_strides(x: Tensor, dim: int = -1, keepdim: bool = False) -> Tensor:
    """Violates C-CMP-03: wrong for bfloat16 of rank 3 in one order of strides."""
    y = torch.amax(x, dim, keepdim)
    if x.dtype is torch.bfloat16 and x.dim() == 3 and x.shape[0] % 4 == 1:
        inner, middle, outer = x.stride(1), x.stride(0), x.stride(2)
        if inner == 1 and middle > 1 and outer > middle:
            return torch.ones_like(y)
    return y


@kernel(ops.layer_norm)
def layer_norm_eps_offset(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5
) -> Tensor:
    """Violates C-CMP-03: wrong with a large eps at some alignments of float16."""
    y = torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)
    if x.dtype is torch.float16 and eps > 1e-4:
        start, columns = x.storage_offset() % VECTOR, x.shape[-1]
        if start == 3 and columns > 2 * VECTOR and columns % VECTOR == 1:
            return torch.ones_like(y)
    return y


@triton.jit
def branching_kernel(x_ptr, y_ptr, rows, columns, row_stride, BLOCK: tl.constexpr):
    """Write max(x, 0) to the contiguous y; the row's end is dropped at one shape."""
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    end = columns
    # One within the other: Triton evaluates all that `and` joins.
    if columns == 129:  # noqa: SIM102
        if rows == 5:  # noqa: SIM102
            if row_stride > columns:
                end = columns - 1
    x = tl.load(x_ptr + row * row_stride + offs, mask=offs < columns)
    y = tl.where((x < 0) | (offs >= end), 0.0, x)
    y = y.to(y_ptr.dtype.element_ty)
    tl.store(y_ptr + row * columns + offs, y, mask=offs < columns)


@kernel(ops.relu)
def relu_narrow_body(x: Tensor) -> Tensor:
    """Violates C-CMP-03: the body drops a row's end at 5 padded rows of 129."""
    # A program for each row: the interpreter runs them one after the other.
    if x.dim() != 2 or x.stride(1) != 1 or not x.numel() or len(x) > 64:
        return torch.relu(x)
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    rows, columns = x.shape
    block = triton.next_power_of_2(columns)
    branching_kernel[(rows,)](x, y, rows, columns, x.stride(0), BLOCK=block)
    return y
