"""Torch's normalisations."""

from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from kfuzz.contracts import operators as ops
from kfuzz.contracts.platform.table import Claim, implements, stored


@implements(ops.layer_norm)
def torch_layer_norm(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5
) -> Tensor:
    """Normalise over the last dimension with `torch.nn.functional.layer_norm`."""
    return functional.layer_norm(x, x.shape[-1:], weight, bias, eps)


@implements(ops.rms_norm)
def torch_rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    """Normalise over the last dimension with `torch.nn.functional.rms_norm`."""
    return functional.rms_norm(x, x.shape[-1:], weight, eps)


@implements(ops.add_rms_norm)
def torch_add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """Add, then normalise the stored sum."""
    h = x + residual
    return functional.rms_norm(h, h.shape[-1:], weight, eps), h


@implements(
    ops.group_norm,
    Claim(
        "shape_class", "B * C * L != num_groups",
        "torch/nn/functional.py (_verify_batch_size) rejects a group of one element in "
        "a batch of one",
    ),
    stored(
"aten/src/ATen/native/cuda/group_norm_kernel.cu: eps, mean and the root of 16-"
        "bit data are held in its format; the latter two no longer since pull request "
        "183946 of May 2026",
        device="cuda",
    ),
)  # fmt: skip
def torch_group_norm(
    x: Tensor, weight: Tensor, bias: Tensor, num_groups: int = 1, eps: float = 1e-5
) -> Tensor:
    """Normalise groups of channels with `torch.nn.functional.group_norm`."""
    return functional.group_norm(x, num_groups, weight, bias, eps)


@implements(
    ops.batch_norm,
    Claim("shape_class", "C >= 1", "measured on torch 2.13: 0 channels are rejected"),
    stored(
"measured on torch 2.13: each step on strided 16-bit data is stored in its "
        "format",
        device="cpu",
    ),
)  # fmt: skip
def torch_batch_norm(
    x: Tensor, mean: Tensor, var: Tensor, weight: Tensor, bias: Tensor,
    eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Normalise by given statistics with `torch.nn.functional.batch_norm`."""
    return functional.batch_norm(x, mean, var, weight, bias, eps=eps)


@implements(ops.layer_norm, name="torch_layer_norm_plain")
def _layer_norm_plain(x: Tensor, eps: float = 1e-5) -> Tensor:
    """Normalise without weight and bias."""
    return functional.layer_norm(x, x.shape[-1:], eps=eps)


@implements(ops.rms_norm, name="torch_rms_norm_plain")
def _rms_norm_plain(x: Tensor, eps: float = 1e-6) -> Tensor:
    """Normalise without a weight."""
    return functional.rms_norm(x, x.shape[-1:], eps=eps)


@implements(
    ops.instance_norm,
    Claim(
        "shape_class", "L >= 2 and B >= 1 and C >= 1",
        "torch/nn/functional.py (_verify_spatial_size) rejects one element a channel; "
        "measured on torch 2.13: none is rejected too",
    ),
    stored(
        "aten/src/ATen/native/Normalization.cpp (instance_norm) calls batch_norm: "
        "scale and shift of 16-bit data are held in its format",
        device="cpu",
    ),
)  # fmt: skip
def torch_instance_norm(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5
) -> Tensor:
    """Normalise channels with `torch.nn.functional.instance_norm`."""
    return functional.instance_norm(x, weight=weight, bias=bias, eps=eps)


@implements(
    ops.weight_norm,
    stored(
        "aten/src/ATen/native/WeightNorm.cpp: norms and their quotients are tensors of "
        "the data's format"
    ),
)
def torch_weight_norm(v: Tensor, g: Tensor) -> Tensor:
    """Scale rows with `torch._weight_norm`."""
    return torch._weight_norm(v, g[:, None], 0)


CHAIN: Final = stored("a chain of torch's operators, each of which stores its result")


@implements(ops.gated_rms_norm, CHAIN)
def torch_gated_rms_norm(
    x: Tensor, gate: Tensor, weight: Tensor, eps: float = 1e-5,
    norm_before_gate: bool = True,
) -> Tensor:  # fmt: skip
    """Normalise with `torch.nn.functional.rms_norm`, before or behind the gate."""
    if norm_before_gate:
        return functional.rms_norm(x, x.shape[-1:], weight, eps) * functional.silu(gate)
    return functional.rms_norm(x * functional.silu(gate), x.shape[-1:], weight, eps)


@implements(ops.gated_layer_norm, CHAIN)
def torch_gated_layer_norm(
    x: Tensor, gate: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5,
    norm_before_gate: bool = True,
) -> Tensor:  # fmt: skip
    """Normalise with `torch.nn.functional.layer_norm`, before or behind the gate."""
    h = x if norm_before_gate else x * functional.silu(gate)
    y = functional.layer_norm(h, h.shape[-1:], weight, bias, eps)
    return y * functional.silu(gate) if norm_before_gate else y
