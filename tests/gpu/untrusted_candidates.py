"""Kernels for a GPU that are honest, late, endless, astray or greedy."""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    tl.store(y_ptr + offs, tl.maximum(x, 0.0), mask=offs < n)


@triton.jit
def endless_kernel(x_ptr, y_ptr):
    while tl.load(x_ptr, volatile=True) != 12345.0:
        tl.store(y_ptr, 1.0)


@triton.jit
def astray_kernel(x_ptr, far):
    tl.store(x_ptr + far.to(tl.int64) * 1048576, 1.0)


@triton.jit
def beyond_kernel(x_ptr, n):
    tl.store(x_ptr + n + tl.arange(0, 64), 1.0)


def honest(x: Tensor) -> Tensor:
    x = x.contiguous()
    y = torch.empty_like(x)
    n = x.numel()
    relu_kernel[(triton.cdiv(n, 256),)](x, y, n, BLOCK=256)
    return y


STREAMS: list[torch.cuda.Stream] = []


def late(x: Tensor) -> Tensor:
    """Return while a stream of its own has yet to write the result."""
    if not STREAMS:
        STREAMS.append(torch.cuda.Stream())
    y = torch.zeros_like(x)
    stream = STREAMS[0]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        y.copy_(torch.relu(x))
    return y


def joined(x: Tensor) -> Tensor:
    """Use a stream of its own, and have the caller's wait for it."""
    if not STREAMS:
        STREAMS.append(torch.cuda.Stream())
    stream = STREAMS[0]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        y = torch.relu(x)
    torch.cuda.current_stream().wait_stream(stream)
    return y


def endless(x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    endless_kernel[(1,)](x, y)
    return y


def astray(x: Tensor) -> Tensor:
    astray_kernel[(1,)](x, 1 << 24)
    return torch.relu(x)


HELD: list[Tensor] = []


def greedy(x: Tensor) -> Tensor:
    while True:
        HELD.append(torch.empty(1 << 30, dtype=torch.uint8, device=x.device))


def on_the_cpu(x: Tensor) -> Tensor:
    return torch.relu(x).cpu()


def past_the_end(x: Tensor) -> Tensor:
    """Store 64 elements past the end of its argument."""
    beyond_kernel[(1,)](x, x.numel())
    return torch.relu(x)
