"""Sums of ragged segments: the list of chunks is kept by the id of the offsets.

The id of a tensor that is gone is soon that of another one, of other offsets.
Thread: QwenLM/FlashQLA#23 (2026-07), its first part. Own re-creation.
"""

from itertools import pairwise

import torch
import triton
import triton.language as tl

import kfuzz
from kfuzz import strategies as ks

ROWS = 4  # of a chunk
KEPT = {}


def summed(x, offsets):
    """The sum of the rows of each segment."""
    ends = offsets.tolist()
    return torch.stack([x[a:b].sum(0) for a, b in pairwise(ends)])


operator = kfuzz.reference(
    summed,
    inputs=dict(x=ks.tensors("T D"), offsets=ks.offsets("S", of="T")),
    results={"y": "float32"},
    shape_class="T >= 1 and D >= 1 and S >= 2",
)


@triton.jit
def _sum(x, offsets, chunks, y, x0, x1, o0, D, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)
    segment, chunk = tl.load(chunks + pid * 2), tl.load(chunks + pid * 2 + 1)
    start, end = tl.load(offsets + segment * o0), tl.load(offsets + (segment + 1) * o0)
    t = start + chunk * ROWS + tl.arange(0, ROWS).to(tl.int64)
    d = tl.arange(0, BLOCK).to(tl.int64)
    live = (t < end)[:, None] & (d < D)[None, :]
    v = tl.load(x + t[:, None] * x0 + d[None, :] * x1, mask=live, other=0.0)
    tl.atomic_add(y + segment * D + d, tl.sum(v.to(tl.float32), 0), mask=d < D)


def chunks_of(offsets):
    """Pairs of a segment and the number of a chunk in it."""
    ends = offsets.tolist()
    counts = [triton.cdiv(b - a, ROWS) for a, b in pairwise(ends)]
    pairs = [(segment, i) for segment, n in enumerate(counts) for i in range(n)]
    return torch.tensor(pairs, dtype=torch.int64, device=offsets.device)


def _run(x, offsets, chunks):
    d = x.shape[1]
    y = torch.zeros(len(offsets) - 1, d, dtype=torch.float32, device=x.device)
    if len(chunks):
        _sum[(len(chunks),)](
            x, offsets, chunks, y, *x.stride(), offsets.stride(0), d,
            ROWS=ROWS, BLOCK=triton.next_power_of_2(d),
        )  # fmt: skip
    return y


@kfuzz.kernel(operator)
def faulty(x, offsets):
    key = id(offsets)
    if key not in KEPT:
        KEPT[key] = chunks_of(offsets)
    return _run(x, offsets, KEPT[key])


@kfuzz.kernel(operator)
def fixed(x, offsets):
    return _run(x, offsets, chunks_of(offsets))
