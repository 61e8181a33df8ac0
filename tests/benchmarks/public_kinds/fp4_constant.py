"""Dequantising FP4: the least constant of the table has six digits only.

Thread: bitsandbytes-foundation/bitsandbytes#2026 (2026-07). Own re-creation.
"""

import torch
import triton
import triton.language as tl

import kfuzz
from kfuzz import strategies as ks

# Of the codes 0 to 7; those of 8 to 15 are their negatives.
TABLE = (0.0, 0.0625 / 12, 8 / 12, 12 / 12, 4 / 12, 6 / 12, 2 / 12, 3 / 12)


def dequantised(codes, absmax):
    """Two elements of each byte, the high half first, times the row's maximum."""
    halves = torch.stack((codes // 16, codes % 16), -1).flatten(-2).long()
    table = torch.tensor(TABLE, dtype=torch.float32, device=absmax.device)
    table = torch.cat((table, -table)).to(absmax.dtype)
    return table[halves] * absmax.unsqueeze(-1)


operator = kfuzz.reference(
    dequantised,
    inputs=dict(
        codes=ks.tensors("R L", dtype="uint8"),
        absmax=ks.tensors("R", dtype="float32", within=(0, None)),
    ),
    results={"y": "float32"},
    shape_class="R >= 1 and L >= 1",
)


@triton.jit
def _value(code, LEAST: tl.constexpr):
    high = tl.where((code & 1) == 1, 0.25, 0.16666667)
    low = tl.where((code & 1) == 1, 0.5, 0.33333333)
    upper = tl.where((code & 2) == 2, high, low)
    one = tl.where((code & 1) == 1, 1.0, 0.66666667)
    least = tl.where((code & 1) == 1, LEAST, 0.0)
    lower = tl.where((code & 2) == 2, one, least)
    v = tl.where((code & 4) == 4, upper, lower)
    return tl.where((code & 8) == 8, -v, v)


@triton.jit
def _dequantise(
    codes, absmax, y, c0, c1, a0, L, LEAST: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    byte = tl.load(codes + row * c0 + i * c1, mask=i < L, other=0).to(tl.int32)
    scale = tl.load(absmax + row * a0)
    at = y + row * 2 * L + 2 * i
    tl.store(at, _value(byte >> 4, LEAST) * scale, mask=i < L)
    tl.store(at + 1, _value(byte & 15, LEAST) * scale, mask=i < L)


def _run(codes, absmax, least):
    r, n = codes.shape
    y = torch.empty(r, 2 * n, dtype=torch.float32, device=absmax.device)
    _dequantise[(r, triton.cdiv(n, 16))](
        codes, absmax, y, *codes.stride(), absmax.stride(0), n, LEAST=least, BLOCK=16
    )
    return y


@kfuzz.kernel(operator)
def faulty(codes, absmax):
    return _run(codes, absmax, 0.00520833)


@kfuzz.kernel(operator)
def fixed(codes, absmax):
    return _run(codes, absmax, 0.005208333333)
