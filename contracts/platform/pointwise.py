"""Torch's elementwise operators, and those that move elements."""

from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from kfuzz.contracts import operators as ops
from kfuzz.contracts.platform.table import Claim, implements, namesakes, stored

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
)  # fmt: skip

implements(ops.gelu, FAST_ERF, name="torch_gelu")(functional.gelu)


@implements(ops.gelu_tanh)
def torch_gelu_tanh(x: Tensor) -> Tensor:
    """Apply `torch.nn.functional.gelu` with its tanh approximation."""
    return functional.gelu(x, approximate="tanh")


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


def _turned(x: Tensor, *, interleaved: bool) -> Tensor:
    if interleaved:
        return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)


@implements(
    ops.rope,
    stored(
"a chain of operators: each of its steps is stored in the data's format",
    ),
)  # fmt: skip
def torch_rope(
    x: Tensor, cos: Tensor, sin: Tensor, *, interleaved: bool = False
) -> Tensor:
    """Multiply, turn, multiply, add, with tables as wide as the heads."""
    turned = _turned(x, interleaved=interleaved)
    return x * cos[:, None] + turned * sin[:, None]


@implements(
    ops.rope.fixed(interleaved=True, repeats=2),
    Claim("dtypes", "float32", "torch has no complex numbers of bfloat16"),
)
def torch_rope_complex(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Multiply complex numbers, with tables half as wide as the heads."""
    pairs = torch.unflatten(x, -1, (cos.shape[-1], 2))
    pairs = torch.view_as_complex(pairs.clone(memory_format=torch.contiguous_format))
    return torch.view_as_real(pairs * torch.complex(cos, sin)[:, None]).flatten(-2)


CHAIN: Final = stored("a chain of torch's operators, each of which stores its result")


@implements(ops.rope_positions, CHAIN)
def torch_rope_positions(
    x: Tensor, cos: Tensor, sin: Tensor, positions: Tensor, interleaved: bool = False,
    part: int = 1,
) -> Tensor:  # fmt: skip
    """Turn the pairs of leading columns with torch's operators."""
    half = cos.shape[-1]
    c, s = cos[positions][:, :, None], sin[positions][:, :, None]
    head = x[..., : 2 * half]
    if interleaved:
        a, b = head[..., ::2], head[..., 1::2]
        made = torch.stack((a * c - b * s, b * c + a * s), -1).flatten(-2)
    else:
        a, b = head[..., :half], head[..., half:]
        made = torch.cat((a * c - b * s, b * c + a * s), -1)
    return torch.cat((made, x[..., 2 * half :]), -1)


@implements(ops.rope_sections, CHAIN)
def torch_rope_sections(
    x: Tensor, cos: Tensor, sin: Tensor, first: int = 1, second: int = 1
) -> Tensor:
    """Turn pairs by tables put together with torch's operators."""
    half = cos.shape[-1]
    sizes = (first, second, half - first - second)

    def joined(table: Tensor) -> Tensor:
        parts = table.split(sizes, -1)  # type: ignore[no-untyped-call]
        return torch.cat([part[i] for i, part in enumerate(parts)], -1)[:, :, None]

    a, b, c, s = x[..., :half], x[..., half:], joined(cos), joined(sin)
    return torch.cat((a * c - b * s, b * c + a * s), -1)
