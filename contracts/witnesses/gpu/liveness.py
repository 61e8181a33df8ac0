"""Triton kernels that stall, assert, fault or are not launched, at few sizes."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.relu import BLOCK, empty, unlucky

# Elements from the input to an address where no memory lies: 2^42 or more bytes.
FAR = 1 << 42


def rare(x: Tensor) -> bool:
    """Whether the one size in 61 strikes that no power of 2 is."""
    return x.numel() % 61 == 17


@triton.jit(do_not_specialize=["numel"])
def waiting_kernel(flag_ptr, x_ptr, y_ptr, numel, BLOCK: tl.constexpr):
    """Write max(x, 0) to y, both contiguous, once the flag is set."""
    seen = tl.load(flag_ptr, volatile=True)
    while seen == 0:
        seen = tl.load(flag_ptr, volatile=True)
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < numel)
    y = tl.where(x < 0, 0.0, x)
    tl.store(y_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=offs < numel)


def waited(x: Tensor, *, ready: bool) -> Tensor:
    """Return relu(x), computed once a flag is set: at once, or never."""
    x, y = x.contiguous(), empty(x)
    flag = torch.full((1,), int(ready), dtype=torch.int32, device=x.device)
    if x.numel():
        grid = (triton.cdiv(x.numel(), BLOCK),)
        waiting_kernel[grid](flag, x, y, x.numel(), BLOCK=BLOCK)
    return y


@kernel(ops.relu)
def triton_relu_waited(x: Tensor) -> Tensor:
    """Conforming: its flag is set."""
    return waited(x, ready=True)


@kernel(ops.relu)
def relu_waits_forever(x: Tensor) -> Tensor:
    """Violates K-LIV-01: waits at some sizes for a flag that nobody sets."""
    return waited(x, ready=not unlucky(x))


@triton.jit(do_not_specialize=["numel", "limit"], debug=True)
def asserting_kernel(x_ptr, y_ptr, numel, limit, BLOCK: tl.constexpr):
    """Write max(x, 0) to y, both contiguous; asserts that offsets are below a limit."""
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < numel)
    tl.device_assert((offs < limit) | (offs >= numel), "offset beyond the limit")
    y = tl.where(x < 0, 0.0, x)
    tl.store(y_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=offs < numel)


def asserted(x: Tensor, limit: int) -> Tensor:
    """Return relu(x); asserts on the device that no element lies beyond `limit`."""
    x, y = x.contiguous(), empty(x)
    if x.numel():
        grid = (triton.cdiv(x.numel(), BLOCK),)
        asserting_kernel[grid](x, y, x.numel(), limit, BLOCK=BLOCK)
    return y


@kernel(ops.relu)
def triton_relu_asserted(x: Tensor) -> Tensor:
    """Conforming: what it asserts is true."""
    return asserted(x, x.numel())


@kernel(ops.relu)
def relu_asserts_falsely(x: Tensor) -> Tensor:
    """Violates K-LIV-01: what it asserts on the device is false at some sizes."""
    return asserted(x, x.numel() - unlucky(x))


@triton.jit(do_not_specialize=["numel", "times"])
def far_kernel(x_ptr, y_ptr, numel, times, BLOCK: tl.constexpr, FAR: tl.constexpr):
    """Write max(x, 0) to y, both contiguous, after a load `times` FAR further on."""
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    place = x_ptr + offs + times.to(tl.int64) * FAR
    ahead = tl.load(place, mask=offs < numel, volatile=True)
    tl.store(y_ptr + offs, ahead, mask=offs < numel)
    x = tl.load(x_ptr + offs, mask=offs < numel)
    y = tl.where(x < 0, 0.0, x)
    tl.store(y_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=offs < numel)


@kernel(ops.relu)
def relu_rare_illegal_address(x: Tensor) -> Tensor:
    """Violates K-LIV-01: one size in 61 makes it load where no memory lies."""
    x, y = x.contiguous(), empty(x)
    if x.numel():
        grid = (triton.cdiv(x.numel(), BLOCK),)
        far_kernel[grid](x, y, x.numel(), int(rare(x)), BLOCK=BLOCK, FAR=FAR)
    return y


@triton.jit(do_not_specialize=["n"])
def rows_kernel(x_ptr, y_ptr, n, axis: tl.constexpr, BLOCK: tl.constexpr):
    """y[i, :] = max(x[i, :], 0), rows along a dimension of the grid."""
    start = tl.program_id(axis).to(tl.int64) * n
    for first in range(0, n, BLOCK):
        offs = first + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + start + offs, mask=offs < n)
        y = tl.where(x < 0, 0.0, x)
        tl.store(y_ptr + start + offs, y.to(y_ptr.dtype.element_ty), mask=offs < n)


def by_rows(x: Tensor, axis: int) -> Tensor:
    """Return relu(x), its rows along dimension `axis` of the grid."""
    x, y = x.contiguous(), empty(x)
    n = x.shape[-1] if x.dim() else 1
    if x.numel():
        m = x.numel() // n
        grid = (m,) if axis == 0 else (1, m)
        rows_kernel[grid](x, y, n, axis=axis, BLOCK=BLOCK)
    return y


@kernel(ops.relu, shape_class="M <= 2147483647")
def triton_relu_rows_in_x(x: Tensor) -> Tensor:
    """Conforming: the first dimension of a grid has room for 2^31 - 1 rows."""
    return by_rows(x, 0)


@kernel(ops.relu)
def relu_rows_in_y(x: Tensor) -> Tensor:
    """Violates K-LIV-01: more than 65,535 rows do not fit the grid."""
    return by_rows(x, 1)
