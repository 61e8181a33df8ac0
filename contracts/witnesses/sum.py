"""Sum along a dimension in Triton: partial sums per lane, reduced at the end."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.rows import as_rows, reduced_shape
from kfuzz.contracts.witnesses.witness import LONG_ROWS, witness

ROWS, BLOCK = 16, 256

# One binary for all sizes and strides: a search tries hundreds of them.
SIZES = ("stride_xm", "stride_xn", "m", "n", "end")


@triton.jit(do_not_specialize=SIZES)
def sum_kernel(
    x_ptr,
    y_ptr,
    stride_xm,
    stride_xn,
    m,
    n,
    end,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    HALF_ACCUMULATOR: tl.constexpr,
):
    """y[i] = sum of x[i, :end]."""
    acc_dtype: tl.constexpr = x_ptr.dtype.element_ty if HALF_ACCUMULATOR else tl.float32
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    x_rows = x_ptr + row[:, None] * stride_xm
    lanes = tl.arange(0, BLOCK)[None, :].to(tl.int64)  # a stride may multiply it
    acc = tl.full([ROWS, BLOCK], 0.0, acc_dtype)
    for start in range(0, end, BLOCK):
        offs = start + lanes
        mask = (row[:, None] < m) & (offs < n)
        x = tl.load(x_rows + offs * stride_xn, mask=mask, other=0.0)
        acc += x.to(acc_dtype)
    y = tl.sum(acc, axis=1)
    tl.store(y_ptr + row, y.to(y_ptr.dtype.element_ty), mask=row < m)


def launch(
    x: Tensor,
    dim: int,
    *,
    half_accumulator: bool = False,
    drop_tail: bool = False,
    whole_programs: bool = False,
    neighbours: bool = False,
) -> Tensor:
    """Return sum(x, dim); a flag that is not at its default is a fault."""
    rows = as_rows(x, dim)
    n = rows.shape[1]
    end = n
    if drop_tail and n > BLOCK:
        end = n // BLOCK * BLOCK
    y = rows.new_empty(rows.shape[0])
    programs = triton.cdiv(rows.shape[0], ROWS)
    if whole_programs:
        programs = rows.shape[0] // ROWS
    if programs:
        sum_kernel[(programs,)](
            rows,
            y,
            rows.stride(0),
            1 if neighbours else rows.stride(1),
            *rows.shape,
            end,
            ROWS=ROWS,
            BLOCK=BLOCK,
            HALF_ACCUMULATOR=half_accumulator,
        )
    return y.reshape(reduced_shape(x, dim))


@witness(LONG_ROWS)
@kernel(ops.sum)
def triton_sum(x: Tensor, dim: int) -> Tensor:
    """Conforming."""
    return launch(x, dim)


# Short rows: a 16-bit accumulator passes allclose only where little is accumulated.
@witness(
    (16, 16), dtype="float16", breaks="C-PRC-01", most=(257, 3),
    minimal="one row one longer than a block; 2048 swallows a 1 twice",
)  # fmt: skip
@kernel(ops.sum)
def sum_half_accumulator(x: Tensor, dim: int) -> Tensor:
    """Violates C-PRC-01: 16-bit input is accumulated in its own format."""
    return launch(x, dim, half_accumulator=True)


@witness(
    LONG_ROWS, breaks="C-CMP-03", most=(257, 1),
    minimal="one row one longer than a block, only its last element set",
)  # fmt: skip
@kernel(ops.sum)
def sum_drop_tail(x: Tensor, dim: int) -> Tensor:
    """Violates C-CMP-03: rows longer than a block lose their last, partial one."""
    return launch(x, dim, drop_tail=True)


@witness(
    LONG_ROWS, breaks="K-MEM-02", most=(1, 0),
    minimal="one element, any value: fewer rows than a program takes",
)  # fmt: skip
@kernel(ops.sum)
def sum_rows_unwritten(x: Tensor, dim: int) -> Tensor:
    """Violates K-MEM-02: rows that do not fill a program are never written."""
    return launch(x, dim, whole_programs=True)


@witness(
    LONG_ROWS, breaks="K-REF-01", most=(8, 8),
    minimal="one row, a few values whose rounded sum depends on their order",
)  # fmt: skip
@kernel(ops.sum, dtypes="float32")  # 16 bits hide most of it
def sum_random_order(x: Tensor, dim: int) -> Tensor:
    """Violates K-REF-01: adds in an order that torch's random generator gives."""
    order = torch.randperm(x.shape[dim], device=x.device)
    return launch(x.index_select(dim, order), dim)
