"""Sums in Triton whose order of additions is known: what `kfuzz probe` tells apart."""

import torch
import triton
import triton.language as tl
from torch import Tensor

import kfuzz
from kfuzz.contracts import operators as ops

ROWS, PARTS = 16, 4


@triton.jit
def in_turn(
    x_ptr, y_ptr, m, n, size,
    ROWS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """y[i, p] = the sum of a part of row i, one term after the other."""
    row, part = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1)
    acc = tl.zeros([ROWS], tl.float32)
    for step in range(0, size):
        k = part * size + step + tl.zeros([ROWS], tl.int32)
        mask = (row < m) & (k < n)
        acc += tl.load(x_ptr + row * n + k, mask=mask, other=0.0)
    tl.store(y_ptr + row * PARTS + part, acc, mask=row < m)


@triton.jit
def in_pairs(x_ptr, y_ptr, m, n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """y[i] = the sum of row i, by a tree."""
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, BLOCK)
    mask = (row[:, None] < m) & (column[None, :] < n)
    x = tl.load(x_ptr + row[:, None] * n + column[None, :], mask=mask, other=0.0)
    tl.store(y_ptr + row, tl.sum(x.to(tl.float32), axis=1), mask=row < m)


def serial(x: Tensor, parts: int) -> Tensor:
    """Return the sums of equal parts of each row."""
    m, n = x.shape
    y = torch.empty((m, parts), dtype=torch.float32, device=x.device)
    if m:
        size = triton.cdiv(n, parts)
        in_turn[(triton.cdiv(m, ROWS), parts)](x, y, m, n, size, ROWS=ROWS, PARTS=parts)
    return y


CLAIMS = {
    "dtypes": "float32", "dims": {-1}, "layouts": "contiguous",
    "shape_class": "N >= 1 and N <= 256",
}  # fmt: skip


@kfuzz.kernel(ops.sum, **CLAIMS)
def serial_sum(x: Tensor, dim: int = -1) -> Tensor:
    """Add one term after the other."""
    rows = x.reshape(-1, x.shape[-1])
    return serial(rows, 1).reshape(x.shape[:-1])


@kfuzz.kernel(ops.sum, **CLAIMS)
def tree_sum(x: Tensor, dim: int = -1) -> Tensor:
    """Add in pairs."""
    rows = x.reshape(-1, x.shape[-1])
    m, n = rows.shape
    y = torch.empty(m, dtype=x.dtype, device=x.device)
    if m:
        block = triton.next_power_of_2(n)
        in_pairs[(triton.cdiv(m, ROWS),)](rows, y, m, n, ROWS=ROWS, BLOCK=block)
    return y.reshape(x.shape[:-1])


@kfuzz.kernel(ops.sum, **CLAIMS)
def split_sum(x: Tensor, dim: int = -1) -> Tensor:
    """Add four parts apart, then the parts one after the other."""
    rows = x.reshape(-1, x.shape[-1])
    return serial(serial(rows, PARTS), 1).reshape(x.shape[:-1])
