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
