"""Pooled embeddings: pairs of rows are added in their own format, then in float32.

Thread: meta-pytorch/torchrec#3730 (2026-02). Own re-creation.
"""

import torch
import triton
import triton.language as tl

import kfuzz
from kfuzz import strategies as ks


def pooled(table, index):
    """The sum of the rows that each bag names."""
    return table[index].sum(1)


operator = kfuzz.reference(
    pooled,
    inputs=dict(table=ks.tensors("V D"), index=ks.indices("B L", below="V")),
    results={"y": "float32"},
    shape_class="V >= 1 and D >= 1 and B >= 1 and L >= 1",
)


@triton.jit
def _row(table, at, real, t0, t1, d, D):
    row = tl.load(at, mask=real, other=0)
    return tl.load(table + row * t0 + d * t1, mask=(d < D) & real, other=0.0)


@triton.jit
def _pool(
    table, index, y, t0, t1, i0, i1, L, D, BLOCK: tl.constexpr, WIDE: tl.constexpr
):
    bag = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    total = tl.zeros([BLOCK], tl.float32)
    at = index + bag * i0
    for j in range(0, L, 2):
        a = _row(table, at, j < L, t0, t1, d, D)
        at += i1
        b = _row(table, at, j + 1 < L, t0, t1, d, D)
        at += i1
        if WIDE:
            total += a.to(tl.float32) + b.to(tl.float32)
        else:
            total += (a + b).to(tl.float32)
    tl.store(y + bag * D + d, total, mask=d < D)


def _run(table, index, wide):
    (n, k), d = index.shape, table.shape[1]
    y = torch.empty(n, d, dtype=torch.float32, device=table.device)
    _pool[(n, triton.cdiv(d, 16))](
        table, index, y, *table.stride(), *index.stride(), k, d, BLOCK=16, WIDE=wide
    )
    return y


@kfuzz.kernel(operator, out_of_bounds="undefined")
def faulty(table, index):
    return _run(table, index, False)


@kfuzz.kernel(operator, out_of_bounds="undefined")
def fixed(table, index):
    return _run(table, index, True)
