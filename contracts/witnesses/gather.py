"""Gather along the last dimension in Triton: a program takes some rows."""

import triton
import triton.language as tl
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.rows import check_indices, tile
from kfuzz.contracts.witnesses.witness import witness

SIZES = ("stride_xn", "stride_xc", "stride_in", "stride_ik", "n", "k")


@triton.jit(do_not_specialize=SIZES)
def gather_kernel(
    x_ptr,
    index_ptr,
    y_ptr,
    stride_xn,
    stride_xc,
    stride_in,
    stride_ik,
    n,
    k,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """y[i, j] = x[i, index[i, j]], y contiguous."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]
    for start in range(0, k, BLOCK):
        offs = start + lanes
        mask = (rows < n) & (offs < k)
        place = index_ptr + rows * stride_in + offs.to(tl.int64) * stride_ik
        index = tl.load(place, mask=mask, other=0).to(tl.int64)
        x = tl.load(x_ptr + rows * stride_xn + index * stride_xc, mask=mask)
        tl.store(y_ptr + rows * k + offs, x, mask=mask)


@witness((64, 256), (64, 32))
@kernel(ops.gather)
def triton_gather(x: Tensor, index: Tensor) -> Tensor:
    """Conforming."""
    check_indices(index, x.shape[1])
    y = x.new_empty(index.shape)
    n, k = index.shape
    constants = tile(k)
    if y.numel():
        gather_kernel[(triton.cdiv(n, constants["ROWS"]),)](
            x, index, y, *x.stride(), *index.stride(), n, k, **constants
        )
    return y
