"""Torch's reductions, scans and what is made of sums of exponentials."""

from itertools import pairwise
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from kfuzz.contracts import operators as ops
from kfuzz.contracts.platform.products import product
from kfuzz.contracts.platform.table import (
    Claim,
    as_written,
    implements,
    namesakes,
    narrowing,
    stored,
)

namesakes("sum mean amax amin argmax var", torch)


narrowing(
    ops.prod, accumulator="{dtype}", device="cpu", name="torch_prod",
    source="measured on torch 2.13: 16-bit products are kept in the data's format",
)(torch.prod)  # fmt: skip
narrowing(
    ops.cumsum,
    Claim(
        "determinism", "none",
        "torch.use_deterministic_algorithms lists torch.cumsum on CUDA for floats",
        device="cuda",
    ),
    accumulator="{dtype}", device="cuda", name="torch_cumsum",
    source="aten/src/ATen/native/cuda/CumsumKernel.cu: scan_dim<scalar_t> adds and "
    "holds sums in the data's format",
)(torch.cumsum)  # fmt: skip

implements(
    ops.softmax,
    stored(
        "measured on torch 2.13: along any dimension but the last, the exp of 16-bit "
        "data is stored in its format before the division",
        device="cpu",
    ),
    name="torch_softmax",
)(torch.softmax)
implements(
    ops.log_softmax,
    stored(
        "measured on torch 2.13: logarithms and differences of 16-bit data are stored "
        "in its format",
        device="cpu",
    ),
    name="torch_log_softmax",
)(torch.log_softmax)
implements(
    ops.logsumexp,
    stored(
        "aten/src/ATen/native/ReduceOps.cpp (logsumexp_out_impl): differences, sums of "
        "exponentials and logarithms are tensors of the data's format",
    ),
    name="torch_logsumexp",
)(torch.logsumexp)


implements(
    ops.l2_normalize,
    stored(
        "torch/nn/functional.py (normalize): the norm is a tensor of the data's "
        "format, in which an eps of 1e-12 is 0 for float16",
    ),
    name="torch_l2_normalize",
)(functional.normalize)


LOG_PROBABILITIES: Final = stored(
    "aten/src/ATen/native/LossNLL.cpp (cross_entropy_loss): log-probabilities are a "
    "tensor of the data's format; on the CPU nll_loss_out_frame sums in it too",
)


implements(ops.cross_entropy, LOG_PROBABILITIES, name="torch_cross_entropy")(
    functional.cross_entropy
)


# Torch's normalisations.


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
        "shape_class",
        "B * C * L != num_groups",
        "torch/nn/functional.py (_verify_batch_size) rejects a group of one element in "
        "a batch of one",
    ),
    stored(
        "aten/src/ATen/native/cuda/group_norm_kernel.cu: eps, mean and the root of 16-"
        "bit data are held in its format; the latter two no longer since pull request "
        "183946 of May 2026",
        device="cuda",
    ),
)
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
)
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


as_written(ops.gated_layer_norm, "x")


# Torch's losses.

IN_STEPS: Final = stored(
    "torch/nn/functional.py and aten/src/ATen/native/Loss.cpp: each step is an "
    "operator whose result is a tensor of the data's format",
)  # fmt: skip
POINTWISE: Final = stored(
    "aten/src/ATen/native/Loss.cpp: losses of elements are a tensor of the data's "
    "format, of which the mean or the sum is taken",
)  # fmt: skip


@implements(ops.kl_div, IN_STEPS)
def torch_kl_div(
    x: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False
) -> Tensor:
    """Take the divergence with `torch.nn.functional.kl_div`."""
    if reduction == "mean":  # which that warns of, and hands on as the number 1
        return torch.kl_div(x, target, 1, log_target=log_target)
    return functional.kl_div(x, target, reduction=reduction, log_target=log_target)


as_written(ops.js_div, "x")


implements(ops.nll_loss, POINTWISE, name="torch_nll_loss")(functional.nll_loss)


@implements(ops.linear_cross_entropy, IN_STEPS)
def torch_linear_cross_entropy(
    x: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None = None,
    ignore_index: int = -100, label_smoothing: float = 0.0, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Take the loss of stored logits."""
    return functional.cross_entropy(
        functional.linear(x, weight, bias),
        target,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
        reduction=reduction,
    )


@implements(ops.bce_with_logits, IN_STEPS)
def torch_bce_with_logits(
    x: Tensor, target: Tensor, weight: Tensor | None = None,
    pos_weight: Tensor | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Take the loss with `torch.nn.functional.binary_cross_entropy_with_logits`."""
    return functional.binary_cross_entropy_with_logits(
        x, target, weight, pos_weight=pos_weight, reduction=reduction
    )


for _name in ("mse_loss", "smooth_l1_loss", "huber_loss"):
    implements(ops.OPERATORS[_name], POINTWISE, name=f"torch_{_name}")(
        getattr(functional, _name)
    )


# Routing of tokens to experts, and filters of logits, as chains of torch's calls.


as_written(ops.topk_routing, "float32", "")


@implements(ops.moe_permute)
def torch_moe_permute(
    x: Tensor, experts: Tensor, *, count: int = 4
) -> tuple[Tensor, Tensor, Tensor]:
    """Apply `torch.argsort`, `torch.bincount` and `torch.index_select`."""
    flat = experts.flatten()
    if bool(((flat < 0) | (flat >= count)).any()):
        raise IndexError("an expert that does not exist")
    source = flat.argsort(stable=True)
    counts = torch.bincount(flat, minlength=count).cumsum(0)
    offsets = torch.cat((counts.new_zeros(1), counts))
    return x.index_select(0, source // max(experts.shape[1], 1)), offsets, source


@product(ops.grouped_matmul)
def torch_grouped_matmul(x: Tensor, weight: Tensor, offsets: Tensor) -> Tensor:
    """Multiply the rows of each group in turn."""
    x, y = x.contiguous(), x.new_empty(x.shape[0], weight.shape[-1])
    ends = offsets.tolist()
    for group, (start, end) in enumerate(pairwise(ends)):
        y[start:end] = x[start:end] @ weight[group]
    return y


@product(ops.moe_combine)
def torch_moe_combine(y: Tensor, rows: Tensor, weights: Tensor) -> Tensor:
    """Select the rows and multiply by the weights in a batch of products."""
    chosen = y.index_select(0, rows.flatten()).unflatten(0, rows.shape)  # type: ignore[no-untyped-call]
    return torch.bmm(weights.unsqueeze(-2), chosen).squeeze(-2)


as_written(ops.top_k_filter, "logits")
as_written(ops.top_p_filter, "logits")
as_written(ops.linear_attention, "v", "float32")
as_written(ops.delta_rule, "v", "float32")
