"""Triton kernels that stall, assert or fault, at few sizes."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.relu import unlucky
from kfuzz.contracts.witnesses.rows import empty, over_elements

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
    flag = torch.full((1,), int(ready), dtype=torch.int32, device=x.device)
    return over_elements(waiting_kernel, (flag, x.contiguous(), empty(x)))


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
    return over_elements(asserting_kernel, (x.contiguous(), empty(x)), limit)


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
    tensors = x.contiguous(), empty(x)
    return over_elements(far_kernel, tensors, int(rare(x)), FAR=FAR)
