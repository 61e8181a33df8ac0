"""Sum along a dimension in Triton: partial sums per lane, reduced at the end."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.rows import one_of_rows
from kfuzz.contracts.witnesses.witness import LONG_ROWS, witness

ROWS, BLOCK = 16, 256

# One binary for all sizes and strides: a search tries hundreds of them.
SIZES = ("stride_xm", "stride_xn", "m", "n")


@triton.jit(do_not_specialize=SIZES)
def sum_kernel(
    x_ptr, y_ptr, stride_xm, stride_xn, m, n, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """y[i] = sum of x[i, :]."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    x_rows = x_ptr + row[:, None] * stride_xm
    lanes = tl.arange(0, BLOCK)[None, :].to(tl.int64)  # a stride may multiply it
    acc = tl.full([ROWS, BLOCK], 0.0, tl.float32)
    for start in range(0, n, BLOCK):
        offs = start + lanes
        mask = (row[:, None] < m) & (offs < n)
        acc += tl.load(x_rows + offs * stride_xn, mask=mask, other=0.0).to(tl.float32)
    y = tl.sum(acc, axis=1)
    tl.store(y_ptr + row, y.to(y_ptr.dtype.element_ty), mask=row < m)


def launch(x: Tensor, dim: int) -> Tensor:
    """Return sum(x, dim)."""
    return one_of_rows(sum_kernel, x, dim, lambda n: {"ROWS": ROWS, "BLOCK": BLOCK})


@witness(LONG_ROWS)
@kernel(ops.sum)
def triton_sum(x: Tensor, dim: int) -> Tensor:
    """Conforming."""
    return launch(x, dim)


@witness(LONG_ROWS, breaks="K-REF-01")
@kernel(ops.sum, dtypes="float32")  # 16 bits hide most of it
def sum_random_order(x: Tensor, dim: int) -> Tensor:
    """Violates K-REF-01: adds in an order that torch's random generator gives."""
    order = torch.randperm(x.shape[dim], device=x.device)
    return launch(x.index_select(dim, order), dim)
