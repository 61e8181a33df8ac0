"""Convolutions as sums over the taps of the filter."""

import itertools
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.witness import witness


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


conv3d_by_taps = witness((2, 2, 4, 4, 4), (4, 2, 1, 1, 1), (4,), backends=("cpu",))(
    kernel(ops.conv3d, name="conv3d_by_taps")(by_taps)
)
conv_transpose2d_scattered = witness(
    (2, 2, 8, 8), (2, 4, 1, 1), (4,), backends=("cpu",)
)(kernel(ops.conv_transpose2d, name="conv_transpose2d_scattered")(scattered))
