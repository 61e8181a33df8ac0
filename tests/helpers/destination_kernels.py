"""Kernels that write to a destination, one fault each."""

import ctypes
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

KEPT: list[Tensor] = []


def relu(x: Tensor, y: Tensor) -> None:
    y.copy_(x.clamp(min=0))


def relu_returned(x: Tensor, *, y: Tensor) -> Tensor:
    return y.copy_(x.clamp(min=0))


def relu_first(y: Tensor, x: Tensor, /) -> tuple[Tensor]:
    y.copy_(x.clamp(min=0))
    return (y,)


def relu_any(x: Tensor, **named: Tensor) -> None:
    torch.clamp(x, min=0, out=named["y"])


def relu_kept(x: Tensor, y: Tensor) -> None:
    # Its own workspace, whatever the destination is.
    KEPT[:] = [x.clamp(min=0)]
    y.copy_(KEPT[0])


def fresh(x: Tensor, y: Tensor) -> Tensor:
    y.copy_(x.clamp(min=0))
    return x.clamp(min=0)


def swapped(x: Tensor, y: Tensor) -> None:
    y.data = x.clamp(min=0)


def partial(x: Tensor, y: Tensor) -> None:
    y.copy_(x.clamp(min=0))
    y.view(-1)[-1:] = torch.empty(1, dtype=y.dtype)


def unwritten(x: Tensor, y: Tensor) -> None:
    y[:-1] = x.clamp(min=0)[:-1]


def as_if_dense(x: Tensor, y: Tensor) -> None:
    dense = y.as_strided(x.shape, torch.empty(x.shape).stride())
    dense.copy_(x.clamp(min=0))


def past(x: Tensor, y: Tensor) -> None:
    y.copy_(x.clamp(min=0))
    ctypes.memset(y.data_ptr() + y.numel() * y.element_size(), 0, 4)


def spoiling(x: Tensor, y: Tensor) -> None:
    y.copy_(x.clamp_(min=0))


def fused(x: Tensor, residual: Tensor, y: Tensor, h: Tensor, *, eps: float) -> Any:
    h.copy_(x + residual)
    y.copy_(h * (h.square().mean(-1, keepdim=True) + eps).rsqrt())
    return y, h


def fused_swapped(x: Tensor, residual: Tensor, *, eps: float, h: Any, y: Any) -> Any:
    fused(x, residual, y, h, eps=eps)
    return h, y


@triton.jit
def relu_kernel(
    x, y, m, n, sxm, sxn, sym, syn, FAULT: tl.constexpr, BLOCK: tl.constexpr
):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    mask = at < n
    value = tl.load(x + row * sxm + at * sxn, mask=mask)
    if FAULT == "reads":
        value += 0.0 * tl.load(y + row * sym + at * syn, mask=mask)
    if FAULT == "past":
        mask = at < n + 1
    tl.store(y + row * sym + at * syn, tl.maximum(value, 0.0), mask=mask)


def launched(x: Tensor, y: Tensor, *, fault: str = "", dense: bool = False) -> None:
    steps = (x.shape[1], 1) if dense else y.stride()
    relu_kernel[(x.shape[0],)](
        x, y, *x.shape, *x.stride(), *steps, FAULT=fault, BLOCK=16
    )
