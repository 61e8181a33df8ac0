"""Dropout: the address of the seed is used as the seed.

Thread: facebookresearch/xformers#173 (2022-01). Own re-creation.
"""

import torch
import triton
import triton.language as tl

import kfuzz
from kfuzz.contracts import operators as ops


@triton.jit
def _drop(x, y, n, p, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    keep = i < n
    v = tl.load(x + i, mask=keep, other=0.0).to(tl.float32)
    stays = tl.rand(seed, i) >= p
    tl.store(
        y + i, tl.where(stays, v / (1.0 - p), 0.0).to(y.dtype.element_ty), mask=keep
    )


def _run(x, p, seed):
    flat = x.contiguous().reshape(-1)
    y = torch.empty_like(flat)
    if len(flat):
        _drop[(triton.cdiv(len(flat), 64),)](flat, y, len(flat), p, seed, BLOCK=64)
    return y.reshape(x.shape)


@kfuzz.kernel(ops.dropout)
def faulty(x, p=0.0, seed=0):
    seeds = torch.full((1,), seed, dtype=torch.int64, device=x.device)
    return _run(x, p, (seeds.data_ptr() >> 4) & 0x7FFFFFFF)


@kfuzz.kernel(ops.dropout)
def fixed(x, p=0.0, seed=0):
    return _run(x, p, seed)
