"""Kernels that reach beyond what they were given, or step on each other's toes."""

import triton
import triton.language as tl
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.rows import (
    BLOCK,
    as_rows,
    empty,
    over_elements,
    reduced_shape,
)
from kfuzz.contracts.witnesses.sum import BLOCK as COLUMNS
from kfuzz.contracts.witnesses.sum import ROWS
from kfuzz.contracts.witnesses.sum import launch as total
from kfuzz.contracts.witnesses.witness import LONG_ROWS, SQUARE, witness

# Columns that one program takes in `amax_chunk_kernel`.
CHUNK = 16


@triton.jit(do_not_specialize=["numel", "load_end", "store_end"])
def relu_between_kernel(
    x_ptr, y_ptr, numel, load_end, store_end, BLOCK: tl.constexpr, READ_BEFORE:
    tl.constexpr,
):  # fmt: skip
    """Write max(x, 0) to y; loads and stores stop at ends of their own."""
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < load_end)
    if READ_BEFORE:
        # Its value is used by no lane: a compiler must not drop it for that.
        before = tl.load(x_ptr + offs - 1, mask=offs < numel, volatile=True)
        x = tl.where(offs < 0, before, x)
    y = tl.where(x < 0, 0.0, x)
    tl.store(y_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=offs < store_end)


def relu_between(
    x: Tensor, *, load_past: int = 0, store_past: int = 0, read_before: bool = False
) -> Tensor:
    """Return relu of `x`; what is not at its default is a fault.

    Args:
        x: any tensor.
        load_past: elements loaded past the end, as far as the last block goes.
        store_past: elements stored past it, likewise.
        read_before: whether each lane also loads the element before its own.
    """
    ends = x.numel() + load_past, x.numel() + store_past
    tensors = x.contiguous(), empty(x)
    return over_elements(relu_between_kernel, tensors, *ends, READ_BEFORE=read_before)


@witness(SQUARE, breaks="K-MEM-01")
@kernel(ops.relu)
def relu_tail_store_unmasked(x: Tensor) -> Tensor:
    """Violates K-MEM-01: the last block is stored whole."""
    return relu_between(x, store_past=BLOCK)


@witness(SQUARE, breaks="K-MEM-01", backends=("interpret",))
@kernel(ops.relu)
def relu_reads_one_past(x: Tensor) -> Tensor:
    """Violates K-MEM-01: a mask says <= where it means <; the value is unused."""
    return relu_between(x, load_past=1)


@witness(SQUARE, breaks="K-MEM-01", backends=("interpret",))
@kernel(ops.relu)
def relu_reads_one_before(x: Tensor) -> Tensor:
    """Violates K-MEM-01: with a padded block the element before the first is loaded."""
    return relu_between(x, read_before=x.numel() % BLOCK != 0)


@triton.jit(do_not_specialize=["stride_xm", "stride_xn", "n", "stride_y", "step"])
def amax_chunk_kernel(
    x_ptr, y_ptr, stride_xm, stride_xn, n, stride_y, step, BLOCK: tl.constexpr
):
    """Write max of x[i, chunk], by one program per row and chunk, each `step` on."""
    row, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    offs = chunk * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(
        x_ptr + row * stride_xm + offs * stride_xn, mask=offs < n, other=float("-inf")
    ).to(tl.float32)
    nans = tl.max((x != x).to(tl.int32), axis=0)
    y = tl.max(tl.where(x != x, float("-inf"), x), axis=0)
    y = tl.where(nans > 0, float("nan"), y)
    tl.store(y_ptr + row * stride_y + chunk * step, y.to(y_ptr.dtype.element_ty))


@witness((16, 16), breaks="C-ORD-02", backends=("interpret",))
@kernel(ops.amax)
def amax_last_chunk_wins(x: Tensor, dim: int) -> Tensor:
    """Violates C-ORD-02: the programs of one row store to one element."""
    rows = as_rows(x, dim)
    m, n = rows.shape
    y = rows.new_empty(m)
    if rows.numel():
        amax_chunk_kernel[(m, triton.cdiv(n, CHUNK))](
            rows, y, *rows.stride(), n, 1, 0, BLOCK=CHUNK
        )
    return y.reshape(reduced_shape(x, dim))


@triton.jit(do_not_specialize=["stride_xm", "stride_xn", "m", "n"])
def relu_rows_kernel(
    x_ptr, y_ptr, stride_xm, stride_xn, m, n, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """y[i, :] = max(x[i, :], 0); offsets are computed in 32 bits where they fit."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    for start in range(0, n, BLOCK):
        offs = start + tl.arange(0, BLOCK)[None, :]
        mask = (rows < m) & (offs < n)
        x = tl.load(x_ptr + rows * stride_xm + offs * stride_xn, mask=mask)
        y = tl.where(x < 0, 0.0, x)
        tl.store(y_ptr + rows * n + offs, y.to(y_ptr.dtype.element_ty), mask=mask)


@witness(SQUARE, breaks="K-MEM-01", backends=("interpret",))
@kernel(ops.relu, offsets="int64")
def relu_offsets_overflow(x: Tensor) -> Tensor:
    """Violates K-MEM-01: row * stride wraps from 2^31 on, in front of the input."""
    y = empty(x)
    rows = x.reshape(-1, x.shape[-1]) if x.dim() else x.reshape(1, 1)
    if x.numel():
        relu_rows_kernel[(triton.cdiv(rows.shape[0], ROWS),)](
            rows, y, *rows.stride(), *rows.shape, ROWS=ROWS, BLOCK=COLUMNS
        )
    return y


# Rows that are to keep their bits in every batch.

# Fewer rows leave a machine idle, where each is taken by one program.
FEW_ROWS = 2


@witness(LONG_ROWS)
@kernel(ops.sum, batch_invariant=True)
def triton_sum_batch_invariant(x: Tensor, dim: int) -> Tensor:
    """Conforming."""
    return total(x, dim)


@witness(LONG_ROWS, breaks="C-ORD-02")
@kernel(ops.sum, batch_invariant=True, dtypes="float32")
def sum_split_by_rows(x: Tensor, dim: int) -> Tensor:
    """Violates C-ORD-02: a row alone is summed by torch's scan."""
    n = x.shape[dim]
    if x.numel() >= FEW_ROWS * n:
        return total(x, dim)
    return x.cumsum(dim).select(dim, n - 1)
