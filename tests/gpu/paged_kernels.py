"""Triton kernels that touch memory beside what they are given, and their twins.

All compute relu; what they load besides is used by nothing, and what they store
besides is on no element. They are compiled on a GPU when they are first called.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops

BLOCK = 256
# Past any gap that alignment leaves behind an own allocation.
FAR = 64


@triton.jit(do_not_specialize=["first", "last", "never"])
def touch_kernel(x, sink, first, last, never, BLOCK: tl.constexpr):
    """Load x[first:last]; `never` is 0, which the compiler does not know."""
    offs = first + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + offs, mask=offs < last, volatile=True)
    tl.store(sink + offs * 0, value, mask=(offs < last) & (never != 0))


@triton.jit(do_not_specialize=["n", "stored"])
def relu_kernel(x, y, n, stored, BLOCK: tl.constexpr):
    """Write max(x, 0) to y[:n], and what a masked lane holds to y[n:stored]."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + offs, mask=offs < n, other=1.0)
    tl.store(y + offs, tl.where(value < 0, 0.0, value), mask=offs < stored)


def touched(x: Tensor, first: int, last: int, sink: Tensor) -> None:
    """Load elements [first, last) from where x begins."""
    if last > first and sink.numel():
        grid = (triton.cdiv(last - first, BLOCK),)
        touch_kernel[grid](x, sink, first, last, 0, BLOCK=BLOCK)


def relu_stored(x: Tensor, y: Tensor, stored: int) -> Tensor:
    """Store relu of contiguous x to contiguous y, to so many elements."""
    if x.numel():
        grid = (triton.cdiv(stored, BLOCK),)
        relu_kernel[grid](x, y, x.numel(), stored, BLOCK=BLOCK)
    return y


plain = kernel(ops.relu, dtypes="float32", layouts="contiguous")


@plain
def reads_one_past(x: Tensor) -> Tensor:
    """Violates K-MEM-01: one element behind x."""
    y = torch.relu(x)
    touched(x, 0, x.numel() + 1, y)
    return y


@plain
def reads_one_vector_past(x: Tensor) -> Tensor:
    """Violates K-MEM-01: 16 bytes behind x."""
    y = torch.relu(x)
    touched(x, 0, x.numel() + 4, y)
    return y


@plain
def reads_one_before(x: Tensor) -> Tensor:
    """Violates K-MEM-01: the element before x."""
    y = torch.relu(x)
    touched(x, -1, x.numel(), y)
    return y


@kernel(ops.relu, dtypes="float32")
def reads_expanded_as_whole(x: Tensor) -> Tensor:
    """Violates K-MEM-01: as many elements as x shows, however few it has."""
    y = torch.relu(x)
    touched(x, 0, x.numel(), y)
    return y


@plain
def reads_own_past(x: Tensor) -> Tensor:
    """Violates K-MEM-01: behind the second tensor that it allocates."""
    y, scratch = torch.empty_like(x), torch.empty_like(x)
    relu_stored(x, y, x.numel())
    touched(scratch, 0, x.numel() + FAR, y)
    return y


@plain
def writes_own_past(x: Tensor) -> Tensor:
    """Violates K-MEM-01: behind its result, which it allocates."""
    return relu_stored(x, torch.empty_like(x), x.numel() + FAR)


@kernel(ops.relu, dtypes="float32", layouts="contiguous", out=("y",))
def writes_one_past(x: Tensor, y: Tensor) -> Tensor:
    """Violates K-MEM-01: one element behind its destination, into a neighbour."""
    return relu_stored(x, y, x.numel() + 1)


@kernel(ops.relu, dtypes="float32", layouts="any", out=("y",))
def writes_slack(x: Tensor, y: Tensor) -> Tensor:
    """Violates K-MEM-01: between the elements of a strided destination too."""
    if x.numel():
        span = 1 + sum((n - 1) * s for n, s in zip(y.shape, y.stride(), strict=True))
        whole = y.as_strided((span,), (1,))
        relu_stored(torch.ones_like(whole), whole, span)
    return y.copy_(torch.relu(x))


@plain
def twin_reads(x: Tensor) -> Tensor:
    """Conforming: loads all of x and of a tensor that it allocates, no more."""
    y, scratch = torch.empty_like(x), torch.empty_like(x)
    relu_stored(x, y, x.numel())
    relu_stored(x, scratch, x.numel())
    touched(x, 0, x.numel(), y)
    touched(scratch, 0, x.numel(), y)
    return y


@kernel(ops.relu, dtypes="float32", layouts="contiguous", out=("y",))
def twin_writes(x: Tensor, y: Tensor) -> Tensor:
    """Conforming: stores all of its destination, no more."""
    return relu_stored(x, y, x.numel())


@kernel(ops.relu, dtypes="float32")
def twin_reads_slack(x: Tensor) -> Tensor:
    """Conforming: loads what a strided x spans, its slack included."""
    y = torch.relu(x)
    span = 1 + sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True))
    touched(x, 0, span if x.numel() else 0, y)
    return y
