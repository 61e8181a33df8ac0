"""Grouped products: the result of a group without rows is never written.

Thread: tgale96/grouped_gemm#36 (2026-01). Own re-creation.
"""

from itertools import pairwise

import torch
import triton
import triton.language as tl

import kfuzz
from kfuzz import strategies as ks


def grouped(x, y, offsets):
    """x.T @ y of the rows of each group; 0 of a group without any."""
    ends = offsets.tolist()
    pairs = pairwise(ends)
    return torch.stack([x[a:b].T @ y[a:b] for a, b in pairs])


operator = kfuzz.reference(
    grouped,
    inputs=dict(
        x=ks.tensors("T K"), y=ks.tensors("T N"), offsets=ks.offsets("S", of="T")
    ),
    outputs=("w",),
    results={"w": "float32"},
    shape_class="T >= 1 and K >= 1 and N >= 1 and S >= 2",
)


@triton.jit
def _multiply(
    x, y, offsets, w, x0, x1, y0, y1, o0, K, N, BLOCK: tl.constexpr, ALL: tl.constexpr
):
    group, k = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    start, end = tl.load(offsets + group * o0), tl.load(offsets + (group + 1) * o0)
    n = tl.arange(0, BLOCK).to(tl.int64)
    total = tl.zeros([BLOCK], tl.float32)
    if ALL or start < end:
        for t in range(start, end):
            a = tl.load(x + t * x0 + k * x1).to(tl.float32)
            b = tl.load(y + t * y0 + n * y1, mask=n < N, other=0.0).to(tl.float32)
            total += a * b
        tl.store(w + (group * K + k) * N + n, total, mask=n < N)


def _run(x, y, offsets, all_groups):
    (_, k), (_, n), groups = x.shape, y.shape, len(offsets) - 1
    w = torch.empty(groups, k, n, dtype=torch.float32, device=x.device)
    _multiply[(groups, k)](
        x, y, offsets, w, *x.stride(), *y.stride(), offsets.stride(0), k, n,
        BLOCK=triton.next_power_of_2(n), ALL=all_groups,
    )  # fmt: skip
    return w


@kfuzz.kernel(operator)
def faulty(x, y, offsets):
    return _run(x, y, offsets, False)


@kfuzz.kernel(operator)
def fixed(x, y, offsets):
    return _run(x, y, offsets, True)
