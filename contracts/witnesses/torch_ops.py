"""Torch's own implementations, which conform on the CPU as declared here."""

import torch
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops

# Measured on torch 2.13: on the CPU, along any dimension but the last, 16-bit data
# has its exp stored in its own format before the division.
torch_softmax = kernel(ops.softmax, name="torch_softmax", intermediates="output")(
    torch.softmax
)
torch_sum = kernel(ops.sum, name="torch_sum")(torch.sum)
torch_amax = kernel(ops.amax, name="torch_amax")(torch.amax)
torch_relu = kernel(ops.relu, name="torch_relu")(torch.relu)
torch_matmul = kernel(ops.matmul, name="torch_matmul")(torch.matmul)


@kernel(ops.layer_norm)
def torch_layer_norm(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5
) -> Tensor:
    """Normalise over the last dimension with `torch.nn.functional.layer_norm`."""
    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)


@kernel(ops.embedding)
def torch_embedding(weight: Tensor, indices: Tensor) -> Tensor:
    """Look rows up with `torch.nn.functional.embedding`."""
    return torch.nn.functional.embedding(indices, weight)


@kernel(ops.gather)
def torch_gather(x: Tensor, index: Tensor) -> Tensor:
    """Gather along the last dimension with `torch.gather`."""
    return torch.gather(x, -1, index)


# On the CPU 16-bit log-probabilities are stored, then summed over the rows, in
# their own format (aten/src/ATen/native/LossNLL.cpp: nll_loss_out_frame).
@kernel(ops.cross_entropy, intermediates="output")
def torch_cross_entropy(
    logits: Tensor,
    target: Tensor,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Tensor:
    """Take the mean loss with `torch.nn.functional.cross_entropy`."""
    return torch.nn.functional.cross_entropy(
        logits, target, ignore_index=ignore_index, label_smoothing=label_smoothing
    )
