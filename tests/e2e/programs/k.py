"""Kernels of the programs here."""

import torch
import triton
import triton.language as tl


@triton.jit
def _add(x, y, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


def add(x, y):
    o = torch.empty_like(x)
    _add[(triton.cdiv(x.numel(), 64),)](x, y, o, x.numel(), B=64)
    return o


@triton.autotune(
    [triton.Config({"B": 32}), triton.Config({"B": 64}, num_warps=8)], key=["n"]
)
@triton.jit
def _tuned(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


def tuned(x):
    o = torch.empty_like(x)
    _tuned[lambda m: (triton.cdiv(x.numel(), m["B"]),)](x, o, x.numel())
    return o
