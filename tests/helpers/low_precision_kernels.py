"""Kernels of one operation each, for every format: in the interpreter and on a GPU."""

import triton
import triton.language as tl


@triton.jit
def copy(x, y, z, out, N: tl.constexpr):
    """Load, cast to the output's type, store."""
    i = tl.arange(0, N)
    tl.store(out + i, tl.load(x + i).to(out.dtype.element_ty))


@triton.jit
def copy_rtz(x, y, z, out, N: tl.constexpr):
    """The same, towards zero."""
    i = tl.arange(0, N)
    value = tl.load(x + i).to(out.dtype.element_ty, fp_downcast_rounding="rtz")
    tl.store(out + i, value)


@triton.jit
def add(x, y, z, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.load(x + i) + tl.load(y + i))


@triton.jit
def sub(x, y, z, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.load(x + i) - tl.load(y + i))


@triton.jit
def mul(x, y, z, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.load(x + i) * tl.load(y + i))


@triton.jit
def add_as_float32(x, y, z, out, N: tl.constexpr):
    i = tl.arange(0, N)
    total = tl.load(x + i).to(tl.float32) + tl.load(y + i).to(tl.float32)
    tl.store(out + i, total.to(out.dtype.element_ty))


@triton.jit
def fma(x, y, z, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.fma(tl.load(x + i), tl.load(y + i), tl.load(z + i)))


@triton.jit
def maximum(x, y, z, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.maximum(tl.load(x + i), tl.load(y + i)))


@triton.jit
def minimum(x, y, z, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.minimum(tl.load(x + i), tl.load(y + i)))


@triton.jit
def maximum_nan(x, y, z, out, N: tl.constexpr):
    i = tl.arange(0, N)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(out + i, tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL))


@triton.jit
def clamp(x, y, z, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.clamp(tl.load(x + i), tl.load(y + i), tl.load(z + i)))


@triton.jit
def less(x, y, z, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.load(x + i) < tl.load(y + i))


@triton.jit
def equal(x, y, z, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.load(x + i) == tl.load(y + i))


@triton.jit
def not_equal(x, y, z, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.load(x + i) != tl.load(y + i))


@triton.jit
def where(x, y, z, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.where(i % 3 == 0, tl.load(x + i), tl.load(y + i)))


@triton.jit
def negative(x, y, z, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, -tl.load(x + i))


@triton.jit
def absolute(x, y, z, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.abs(tl.load(x + i)))


@triton.jit
def times_scalar(x, y, z, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.load(x + i) * 0.3)


@triton.jit
def plus_tiny_scalar(x, y, z, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.load(x + i) * 0.0 + 1e-7)


@triton.jit
def full(x, y, z, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.full([N], 0.1, tl.bfloat16))


@triton.jit
def masked(x, y, z, out, N: tl.constexpr):
    i = tl.arange(0, N)
    value = tl.load(x + i, mask=i % 5 != 0, other=-3.14)
    tl.store(out + i, value, mask=i % 7 != 0)


@triton.jit
def sum_rows(x, y, z, out, N: tl.constexpr):
    """Sums of groups of 32."""
    i = tl.arange(0, N // 32)
    tile = i[:, None] * 32 + tl.arange(0, 32)[None, :]
    tl.store(out + i, tl.sum(tl.load(x + tile), axis=1))


@triton.jit
def max_rows(x, y, z, out, N: tl.constexpr):
    """Maxima of groups of 32, in float32."""
    i = tl.arange(0, N // 32)
    tile = i[:, None] * 32 + tl.arange(0, 32)[None, :]
    tl.store(out + i, tl.max(tl.load(x + tile), axis=1).to(out.dtype.element_ty))


@triton.jit
def _larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def reduce_rows(x, y, z, out, N: tl.constexpr):
    """Maxima of groups of 32, by a function of the kernel's own."""
    i = tl.arange(0, N // 32)
    tile = i[:, None] * 32 + tl.arange(0, 32)[None, :]
    tl.store(out + i, tl.reduce(tl.load(x + tile), 1, _larger))


@triton.jit
def argmax_rows(x, y, z, out, N: tl.constexpr):
    i = tl.arange(0, N // 32)
    tile = i[:, None] * 32 + tl.arange(0, 32)[None, :]
    tl.store(out + i, tl.argmax(tl.load(x + tile), axis=1))


@triton.jit
def argmin_rows_fast(x, y, z, out, N: tl.constexpr):
    i = tl.arange(0, N // 32)
    tile = i[:, None] * 32 + tl.arange(0, 32)[None, :]
    tl.store(out + i, tl.argmin(tl.load(x + tile), axis=1, tie_break_left=False))


@triton.jit
def sum_all(x, out, N: tl.constexpr, T: tl.constexpr):
    row = tl.program_id(0)
    values = tl.load(x + row * N + tl.arange(0, N))
    tl.store(out + row, tl.sum(values, dtype=T))


@triton.jit
def cumsum_rows(x, y, z, out, N: tl.constexpr):
    i = tl.arange(0, N // 32)
    tile = i[:, None] * 32 + tl.arange(0, 32)[None, :]
    tl.store(out + tile, tl.cumsum(tl.load(x + tile), axis=1))


@triton.jit
def dot(x, y, z, out, N: tl.constexpr):
    """The product of two 32×32 matrices, in float32."""
    tile = tl.arange(0, 32)[:, None] * 32 + tl.arange(0, 32)[None, :]
    tl.store(out + tile, tl.dot(tl.load(x + tile), tl.load(y + tile)))


@triton.jit
def atomic_add(x, y, z, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.atomic_add(out + i % 4, tl.load(x + i), mask=i % 5 != 0)
