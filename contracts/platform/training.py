"""Torch's steps of optimizers, and its dropout."""

import torch
from torch import Tensor
from torch.optim import adamw, sgd

from kfuzz.contracts import operators as ops
from kfuzz.contracts.platform.table import implements, stored


@implements(
    ops.adamw,
    stored(
        "torch/optim/adam.py (_single_tensor_adam): each step is an operator whose "
        "result is a tensor of the data's format"
    ),
)
def torch_adamw(
    param: Tensor, grad: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, *, step: int = 1,
    lr: float = 1e-3, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8,
    weight_decay: float = 0.01,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Take a step of copies with `torch.optim.adamw.adamw`."""
    made = param.clone(), exp_avg.clone(), exp_avg_sq.clone()
    adamw.adamw(
        [made[0]], [grad], [made[1]], [made[2]], [], [torch.tensor(step - 1.0)],
        foreach=False, amsgrad=False, beta1=beta1, beta2=beta2, lr=lr,
        weight_decay=weight_decay, eps=eps, maximize=False,
    )  # fmt: skip
    return made


@implements(
    ops.sgd,
    stored(
        "torch/optim/sgd.py (_single_tensor_sgd): each step is an operator whose "
        "result is a tensor of the data's format"
    ),
)
def torch_sgd(
    param: Tensor, grad: Tensor, momentum_buffer: Tensor, *, lr: float = 1e-3,
    momentum: float = 0.9, dampening: float = 0.0, weight_decay: float = 0.0,
    nesterov: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Take a step of copies with `torch.optim.sgd.sgd`."""
    made, buffer = param.clone(), momentum_buffer.clone()
    sgd.sgd(
        [made], [grad], [buffer], foreach=False, weight_decay=weight_decay,
        momentum=momentum, lr=lr, dampening=dampening, nesterov=nesterov,
        maximize=False,
    )  # fmt: skip
    return made, buffer


@implements(
    ops.dropout,
    stored(
        "aten/src/ATen/native/Dropout.cpp (_dropout_impl): noise over 1 - p is a "
        "tensor of the data's format"
    ),
)
def torch_dropout(x: Tensor, p: float = 0.0, seed: int = 0) -> Tensor:
    """Multiply by noise as `torch.dropout` does, from a generator of its own."""
    random = torch.Generator(x.device).manual_seed(seed)
    noise = torch.empty_like(x).bernoulli_(1 - p, generator=random)
    return x * noise.div_(1 - p)
