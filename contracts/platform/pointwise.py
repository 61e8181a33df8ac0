"""Torch's elementwise operators, and those that move elements."""

from functools import partial
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional
from torch.optim import adamw, sgd

from kfuzz.contracts import operators as ops
from kfuzz.contracts.operators.elementwise import turned
from kfuzz.contracts.platform.table import (
    Claim,
    as_written,
    implements,
    namesakes,
    narrowing,
    stored,
)

namesakes("add mul where clamp relu sigmoid tanh exp log", torch)
namesakes("leaky_relu silu", functional)
implements(ops.copy, name="torch_copy")(torch.clone)
implements(
    ops.elu,
    Claim(
        "algorithm", "expm1",
        "aten/src/ATen/native/cpu/Activation.cpp (elu_kernel) and "
        "cuda/ActivationEluKernel.cu call expm1",
    ),
    name="torch_elu",
)(functional.elu)  # fmt: skip
implements(
    ops.softplus,
    Claim(
        "algorithm", "log1p",
        "aten/src/ATen/native/cpu/Activation.cpp (softplus_kernel) and "
        "cuda/ActivationSoftplusKernel.cu call log1p",
    ),
    name="torch_softplus",
)(functional.softplus)  # fmt: skip

# CUDA calls erff, documented to 2 ulp.
FAST_ERF: Final = Claim(
    "approx", True,
    "measured on torch 2.13: gelu goes through oneDNN, whose erf misses 4 ulp, by 3 % "
    "at -3.47",
    device="cpu",
)  # fmt: skip
TWO_CALLS: Final = stored(
    "two operators: the activation is stored in the data's format between them",
)

implements(ops.gelu, FAST_ERF, name="torch_gelu")(functional.gelu)


implements(ops.gelu_tanh, name="torch_gelu_tanh")(
    partial(functional.gelu, approximate="tanh")
)


@implements(ops.swiglu, TWO_CALLS)
def torch_swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """Gate by `torch.nn.functional.silu`."""
    return functional.silu(gate) * up


@implements(ops.geglu, TWO_CALLS, FAST_ERF)
def torch_geglu(gate: Tensor, up: Tensor) -> Tensor:
    """Gate by `torch.nn.functional.gelu`."""
    return functional.gelu(gate) * up


@implements(ops.transpose)
def torch_transpose(x: Tensor) -> Tensor:
    """Exchange the last two axes; torch's own transposition is a view."""
    return x.transpose(-1, -2).clone()


@implements(
    ops.rope,
    stored(
        "a chain of operators: each of its steps is stored in the data's format",
    ),
)
def torch_rope(
    x: Tensor, cos: Tensor, sin: Tensor, *, interleaved: bool = False
) -> Tensor:
    """Multiply, turn, multiply, add, with tables as wide as the heads."""
    other: Tensor = turned(x, interleaved=interleaved)
    return x * cos[:, None] + other * sin[:, None]


@implements(
    ops.rope.fixed(interleaved=True, repeats=2),
    Claim("dtypes", "float32", "torch has no complex numbers of bfloat16"),
)
def torch_rope_complex(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Multiply complex numbers, with tables half as wide as the heads."""
    pairs = torch.unflatten(x, -1, (cos.shape[-1], 2))
    pairs = torch.view_as_complex(pairs.clone(memory_format=torch.contiguous_format))
    return torch.view_as_real(pairs * torch.complex(cos, sin)[:, None]).flatten(-2)


as_written(ops.rope_sections, "x")


@implements(
    ops.rope_positions,
    stored("a chain of torch's operators, each of which stores its result"),
)
def torch_rope_positions(
    x: Tensor, cos: Tensor, sin: Tensor, positions: Tensor, interleaved: bool = False,
    part: int = 1,
) -> Tensor:  # fmt: skip
    """Turn the pairs of leading columns with torch's operators."""
    half = cos.shape[-1]
    # An index in brackets may be negative.
    c, s = (functional.embedding(positions, table)[:, :, None] for table in (cos, sin))
    head = x[..., : 2 * half]
    if interleaved:
        a, b = head[..., ::2], head[..., 1::2]
        made = torch.stack((a * c - b * s, b * c + a * s), -1).flatten(-2)
    else:
        a, b = head[..., :half], head[..., half:]
        made = torch.cat((a * c - b * s, b * c + a * s), -1)
    return torch.cat((made, x[..., 2 * half :]), -1)


# Torch's operators that select by indices, add by them, or put in order.


@implements(ops.embedding)
def torch_embedding(weight: Tensor, indices: Tensor) -> Tensor:
    """Look rows up with `torch.nn.functional.embedding`."""
    return functional.embedding(indices, weight)


@implements(ops.gather)
def torch_gather(x: Tensor, index: Tensor) -> Tensor:
    """Gather along the last dimension with `torch.gather`."""
    return torch.gather(x, -1, index)


@implements(ops.gather)
def torch_take_along_dim(x: Tensor, index: Tensor) -> Tensor:
    """Gather along the last dimension with `torch.take_along_dim`."""
    return torch.take_along_dim(x, index, -1)


@implements(ops.index_select)
def torch_index_select(x: Tensor, index: Tensor) -> Tensor:
    """Select rows with `torch.index_select`."""
    return torch.index_select(x, 0, index)


ANY_ORDER: Final = Claim(
    "determinism", "none",
    "docs/source/notes/randomness.rst and torch.use_deterministic_algorithms: atomic "
    "additions in any order",
    device="cuda",
)  # fmt: skip


# On the CPU 16-bit sums are kept in float32 (aten/src/ATen/native/cpu/
# ScatterGatherKernel.cpp: create_acc_buffer).
@narrowing(
    ops.scatter_add,
    ANY_ORDER,
    accumulator="atomic({dtype})",
    source="aten/src/ATen/native/cuda/ScatterGatherKernel.cu (ReduceAdd): "
    "fastAtomicAdd on elements of the data's format",
    device="cuda",
)
def torch_scatter_add(x: Tensor, index: Tensor, src: Tensor) -> Tensor:
    """Add along the last dimension with `torch.scatter_add`."""
    return torch.scatter_add(x, -1, index, src)


@narrowing(
    ops.index_add,
    ANY_ORDER,
    stored(
        "measured on torch 2.13: on the CPU each row that is added is stored in the "
        "data's format; so are products with alpha in aten/src/ATen/native/cuda/"
        "Indexing.cu",
    ),
    accumulator="atomic({dtype})",
    source="aten/src/ATen/native/cuda/Indexing.cu (index_add_cuda_impl): "
    "fastAtomicAdd on elements of the data's format",
    device="cuda",
)
def torch_index_add(
    x: Tensor, index: Tensor, src: Tensor, *, alpha: float = 1.0
) -> Tensor:
    """Add rows with `torch.index_add`."""
    return torch.index_add(x, 0, index, src, alpha=alpha)


namesakes("topk sort", torch)


implements(
    ops.sort,
    Claim("ties", "first", "torch.sort: stable=True keeps the order"),
    name="torch_sort_stable",
)(partial(torch.sort, stable=True))


# Torch's steps of optimizers, and its dropout.


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
