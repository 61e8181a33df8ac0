"""Grouped top-k routing: experts of dropped groups count as 0, not as out of the race.

Thread: sgl-project/sglang#3705 (2025-02). Own re-creation.
"""

import torch
import triton
import triton.language as tl

import kfuzz
from kfuzz import strategies as ks


def routed(scores, *, groups, kept, k):
    """The k best experts of the kept best groups; of equal ones the first."""
    t, e = scores.shape
    best = scores.reshape(t, groups, e // groups).amax(-1)
    chosen = best.sort(dim=-1, descending=True, stable=True).indices[:, :kept]
    alive = torch.zeros(t, groups, dtype=torch.bool, device=scores.device)
    alive = alive.scatter(1, chosen, True).repeat_interleave(e // groups, 1)
    masked = scores.masked_fill(~alive, float("-inf"))
    return masked.sort(dim=-1, descending=True, stable=True).indices[:, :k]


operator = kfuzz.reference(
    routed,
    inputs=dict(
        scores=ks.tensors("T E", within="(-inf, inf)"),
        groups=ks.scalar(2, (1, 4)),
        kept=ks.scalar(1, (2,)),
        k=ks.scalar(2, (1, 3)),
    ),
    outputs=("experts",),
    results={"experts": "int64"},
    shape_class="T >= 1 and E >= 1 and E <= 32 and E % groups == 0 and kept <= groups "
    "and k * groups <= kept * E",
)


@triton.jit
def _route(s, y, s0, s1, E, groups, kept, k, FILL: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK).to(tl.int64)
    real = i < E
    low = float("-inf")
    v = tl.load(s + row * s0 + i * s1, mask=real, other=low).to(tl.float32)
    width = E // groups
    mine = i // width
    alive = i < 0
    for _ in range(kept):
        rest = tl.where(alive | (real == 0), low, v)
        top = tl.max(rest, 0)
        first = tl.min(tl.where((rest == top) & real & (alive == 0), i, BLOCK), 0)
        alive = alive | (mine == first // width)
    v = tl.where(alive & real, v, FILL)
    free = real
    for j in range(k):
        rest = tl.where(free, v, low)
        top = tl.max(rest, 0)
        first = tl.min(tl.where((rest == top) & free, i, BLOCK), 0)
        tl.store(y + row * k + j, first.to(tl.int64))
        free = free & (i != first)


def _run(scores, groups, kept, k, fill):
    t, e = scores.shape
    y = torch.empty(t, k, dtype=torch.int64, device=scores.device)
    _route[(t,)](
        scores,
        y,
        *scores.stride(),
        e,
        groups,
        kept,
        k,
        FILL=fill,
        BLOCK=triton.next_power_of_2(e),
    )
    return y


@kfuzz.kernel(operator)
def faulty(scores, groups=2, kept=1, k=2):
    return _run(scores, groups, kept, k, 0.0)


@kfuzz.kernel(operator)
def fixed(scores, groups=2, kept=1, k=2):
    return _run(scores, groups, kept, k, float("-inf"))
