"""Convolutions as sums over the taps of the filter."""

import itertools
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.witness import witness

BLOCK = 128


def by_taps(
    x: Tensor, weight: Tensor, bias: Tensor, *, stride: int = 1, padding: int = 0,
    dilation: int = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Return a convolution of any dimensions, one product of channels for each tap."""
    dims = x.dim() - 2
    wide = functional.pad(x.float(), (padding,) * 2 * dims)
    wide = wide.unflatten(1, (groups, -1))  # type: ignore[no-untyped-call]
    filters = weight.float().unflatten(0, (groups, -1))  # type: ignore[no-untyped-call]
    taps = weight.shape[2:]
    places = [
        (n - dilation * (size - 1) - 1) // stride + 1
        for n, size in zip(wide.shape[3:], taps, strict=True)
    ]
    total: Any = 0.0
    for tap in itertools.product(*map(range, taps)):
        index = tuple(
            slice(at * dilation, at * dilation + (n - 1) * stride + 1, stride)
            for at, n in zip(tap, places, strict=True)
        )
        met = wide[(..., *index)].flatten(3)
        total = total + filters[(..., *tap)] @ met
    shape = (x.shape[0], weight.shape[0], *places)
    made = total.reshape(shape) + bias.float().reshape(-1, *[1] * dims)
    return made.to(x.dtype)  # type: ignore[no-any-return]


def scattered(
    x: Tensor, weight: Tensor, bias: Tensor, *, stride: int = 1, padding: int = 0,
    output_padding: int = 0, groups: int = 1, dilation: int = 1,
) -> Tensor:  # fmt: skip
    """Return a transposed convolution, each tap's products added where they fall."""
    dims, taps = x.dim() - 2, weight.shape[2:]
    wide = x.float().unflatten(1, (groups, -1)).flatten(3)  # type: ignore[no-untyped-call]
    filters = weight.float().unflatten(0, (groups, -1)).transpose(1, 2)  # type: ignore[no-untyped-call]
    sizes = [
        (n - 1) * stride + dilation * (size - 1) + 1 + output_padding
        for n, size in zip(x.shape[2:], taps, strict=True)
    ]
    channels = groups * weight.shape[1]
    total = torch.zeros((x.shape[0], channels, *sizes), device=x.device)
    for tap in itertools.product(*map(range, taps)):
        index = tuple(
            slice(at * dilation, at * dilation + (n - 1) * stride + 1, stride)
            for at, n in zip(tap, x.shape[2:], strict=True)
        )
        made = filters[(..., *tap)] @ wide
        total[(..., *index)] += made.reshape(x.shape[0], channels, *x.shape[2:])  # type: ignore[index]
    kept = tuple(slice(padding, n - padding) for n in sizes)
    cut = total[(..., *kept)] + bias.float().reshape(-1, *[1] * dims)  # type: ignore[index]
    return cut.to(x.dtype)


conv1d_by_taps = witness((2, 2, 16), (4, 2, 1), (4,), backends=("cpu",))(
    kernel(ops.conv1d, name="conv1d_by_taps")(by_taps)
)
conv3d_by_taps = witness((2, 2, 4, 4, 4), (4, 2, 1, 1, 1), (4,), backends=("cpu",))(
    kernel(ops.conv3d, name="conv3d_by_taps")(by_taps)
)
conv_transpose1d_scattered = witness((2, 2, 16), (2, 4, 1), (4,), backends=("cpu",))(
    kernel(ops.conv_transpose1d, name="conv_transpose1d_scattered")(scattered)
)
conv_transpose2d_scattered = witness(
    (2, 2, 8, 8), (2, 4, 1, 1), (4,), backends=("cpu",)
)(kernel(ops.conv_transpose2d, name="conv_transpose2d_scattered")(scattered))


@triton.jit(do_not_specialize=["channels", "n", "width"])
def causal_kernel(
    x_ptr, w_ptr, b_ptr, y_ptr, channels, n, width, stride_wd, stride_ww, stride_b,
    SILU: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the causal convolution of one row, [width - 1 + n] before, to y."""
    row = tl.program_id(0).to(tl.int64)
    channel = row % channels
    offs = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    bias = tl.load(b_ptr + channel * stride_b).to(tl.float32)
    acc = tl.zeros([BLOCK], tl.float32) + bias
    w_at = w_ptr + channel * stride_wd
    for tap in range(0, width):
        w = tl.load(w_at).to(tl.float32)
        w_at += stride_ww  # a pointer: tap * stride would be a product of 32 bits
        at = row * (n + width - 1) + offs + tap
        acc += w * tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
    if SILU:
        acc = acc / (1.0 + tl.exp(-acc))
    tl.store(y_ptr + row * n + offs, acc.to(y_ptr.dtype.element_ty), mask=mask)


@witness((2, 8, 16), (8, 4), (8,), (2, 8, 3))
@kernel(ops.causal_conv1d)
def triton_causal_conv1d(
    x: Tensor, weight: Tensor, bias: Tensor, initial_state: Tensor,
    activation: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Conforming."""
    (batch, channels, n), width = x.shape, weight.shape[1]
    padded = torch.cat((initial_state, x), -1)
    y = torch.empty((batch, channels, n), dtype=x.dtype, device=x.device)
    if y.numel():
        causal_kernel[(batch * channels, triton.cdiv(n, BLOCK))](
            padded, weight, bias, y, channels, n, width, *weight.stride(),
            bias.stride(0), SILU=activation == "silu", BLOCK=BLOCK,
        )  # fmt: skip
    return y, padded[..., n:].clone()
