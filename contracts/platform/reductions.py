"""Torch's reductions, scans and what is made of sums of exponentials."""

from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from kfuzz.contracts import operators as ops
from kfuzz.contracts.platform.table import (
    Claim,
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
)(torch.softmax)  # fmt: skip
implements(
    ops.log_softmax,
    stored(
"measured on torch 2.13: logarithms and differences of 16-bit data are stored "
        "in its format",
        device="cpu",
    ),
    name="torch_log_softmax",
)(torch.log_softmax)  # fmt: skip
implements(
    ops.logsumexp,
    stored(
"aten/src/ATen/native/ReduceOps.cpp (logsumexp_out_impl): differences, sums of "
        "exponentials and logarithms are tensors of the data's format",
    ),
    name="torch_logsumexp",
)(torch.logsumexp)  # fmt: skip


@implements(
    ops.l2_normalize,
    stored(
"torch/nn/functional.py (normalize): the norm is a tensor of the data's "
        "format, in which an eps of 1e-12 is 0 for float16",
    ),
)  # fmt: skip
def torch_l2_normalize(x: Tensor, dim: int = -1, eps: float = 1e-12) -> Tensor:
    """Normalise rows with `torch.nn.functional.normalize`."""
    return functional.normalize(x, 2.0, dim, eps)


LOG_PROBABILITIES: Final = stored(
"aten/src/ATen/native/LossNLL.cpp (cross_entropy_loss): log-probabilities are a "
    "tensor of the data's format; on the CPU nll_loss_out_frame sums in it too",
)  # fmt: skip


@implements(ops.cross_entropy, LOG_PROBABILITIES)
def torch_cross_entropy(
    logits: Tensor,
    target: Tensor,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """Take the loss with `torch.nn.functional.cross_entropy`."""
    return functional.cross_entropy(
        logits,
        target,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
        reduction=reduction,
    )


@implements(ops.cross_entropy.fixed(reduction="sum"), LOG_PROBABILITIES)
def torch_cross_entropy_sum(logits: Tensor, target: Tensor) -> Tensor:
    """Take the sum of the losses."""
    return functional.cross_entropy(logits, target, reduction="sum")


@implements(ops.cross_entropy.fixed(reduction="none"), LOG_PROBABILITIES)
def torch_cross_entropy_none(logits: Tensor, target: Tensor) -> Tensor:
    """Take the losses of the rows."""
    return functional.cross_entropy(logits, target, reduction="none")
