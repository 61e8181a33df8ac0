"""scatter_add: the fast path addresses an expanded index as if it were dense.

Thread: flagos-ai/FlagGems#6017 (2026-09). Own re-creation.
"""

import triton
import triton.language as tl

import kfuzz
from kfuzz.contracts import operators as ops


@triton.jit
def _add(index, src, y, i0, i1, s0, s1, C, K, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    k = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    live = k < K
    at = tl.load(index + row * i0 + k * i1, mask=live, other=0)
    v = tl.load(src + row * s0 + k * s1, mask=live, other=0.0).to(tl.float32)
    tl.atomic_add(y + row * C + at, v, mask=live & (at >= 0) & (at < C))


def _run(x, index, src, dense):
    y = x.float().contiguous().clone()
    n, k = index.shape
    if index.numel():
        i0, i1 = (k, 1) if dense else index.stride()
        s0, s1 = (k, 1) if dense else src.stride()
        _add[(n, triton.cdiv(k, 16))](
            index, src, y, i0, i1, s0, s1, x.shape[1], k, BLOCK=16
        )
    return y.to(x.dtype)


@kfuzz.kernel(ops.scatter_add, out_of_bounds="undefined")
def faulty(x, index, src):
    return _run(x, index, src, True)


@kfuzz.kernel(ops.scatter_add, out_of_bounds="undefined")
def fixed(x, index, src):
    return _run(x, index, src, False)
