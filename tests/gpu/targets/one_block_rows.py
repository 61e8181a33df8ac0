"""Correct row kernels that take a row as one block: each length is compiled for."""

import torch
import triton
import triton.language as tl
from torch import Tensor

import kfuzz
from kfuzz.contracts import operators as ops

WARPS = (1, 2, 4, 8)
DTYPES = ("float32", "float16")


@triton.jit
def softmax_row(x, y, n, LOG: tl.constexpr, BLOCK: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    value = tl.load(x + row * n + at, mask=at < n, other=-float("inf")).to(tl.float32)
    depth = value - tl.max(value, 0)
    power = tl.exp(depth)
    total = tl.sum(power, 0)
    made = depth - tl.log(total) if LOG else power / total
    tl.store(y + row * n + at, made.to(y.dtype.element_ty), mask=at < n)


@triton.jit
def norm_row(x, w, b, y, n, eps, MEAN: tl.constexpr, BLOCK: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    value = tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
    weight = tl.load(w + at, mask=at < n, other=0.0).to(tl.float32)
    if MEAN:
        value = tl.where(at < n, value - tl.sum(value, 0) / n, 0.0)
    made = value * tl.rsqrt(tl.sum(value * value, 0) / n + eps) * weight
    if MEAN:
        made += tl.load(b + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(y + row * n + at, made.to(y.dtype.element_ty), mask=at < n)


@triton.jit
def sum_row(x, y, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    value = tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(y + row, tl.sum(value, 0).to(y.dtype.element_ty))


def _softmax(x: Tensor, warps: int, *, log: bool) -> Tensor:
    y, n = torch.empty_like(x), x.shape[-1]
    if x.numel():
        softmax_row[(x.numel() // n,)](
            x, y, n, LOG=log, BLOCK=triton.next_power_of_2(n), num_warps=warps
        )
    return y


def _norm(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float, warps: int):
    y, n = torch.empty_like(x), x.shape[-1]
    if x.numel():
        norm_row[(x.numel() // n,)](
            x, weight, weight if bias is None else bias, y, n, eps,
            MEAN=bias is not None, BLOCK=triton.next_power_of_2(n), num_warps=warps,
        )  # fmt: skip
    return y


def _made(warps: int) -> None:
    """Bind the five kernels with a number of warps, under names of their own."""

    def bound(operator, name):
        claims = {"layouts": "contiguous", "dtypes": DTYPES}
        return kfuzz.kernel(operator, name=f"{name}_{warps}_warps", **claims)

    @bound(ops.softmax, "softmax")
    def softmax(x):
        return _softmax(x, warps, log=False)

    @bound(ops.log_softmax, "log_softmax")
    def log_softmax(x):
        return _softmax(x, warps, log=True)

    @bound(ops.rms_norm, "rms_norm")
    def rms_norm(x, weight, eps):
        return _norm(x, weight, None, eps, warps)

    @bound(ops.layer_norm, "layer_norm")
    def layer_norm(x, weight, bias, eps):
        return _norm(x, weight, bias, eps, warps)

    @bound(ops.sum, "sum")
    def row_sum(x):
        y = torch.empty(x.shape[:-1], dtype=x.dtype, device=x.device)
        n = x.shape[-1]
        if not x.numel():
            return y.zero_()
        block = triton.next_power_of_2(n)
        sum_row[(y.numel(),)](x, y, n, BLOCK=block, num_warps=warps)
        return y

    for made in (softmax, log_softmax, rms_norm, layer_norm, row_sum):
        globals()[made.name] = made


for number in WARPS:
    _made(number)
