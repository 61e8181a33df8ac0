"""Torch's attention: the fused operator, and a chain of calls."""

from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from kfuzz.contracts import operators as ops
from kfuzz.contracts.platform.products import product
from kfuzz.contracts.platform.table import Claim, implements

NO_KEYS_LEFT: Final = Claim(
    "masked_row", "zero",
    "aten/src/ATen/native/transformers/attention.cpp: _safe_softmax, and measured on "
    "torch 2.13 for the flash kernel of the CPU",
)  # fmt: skip
THREE_PRODUCTS: Final = Claim(
    "accumulator", "tf32x3",
    "aten/src/ATen/native/transformers/cuda/mem_eff_attention/gemm_kernel_utils.h: "
    "float32 goes through OpMultiplyAddFastF32, three TF32 products",
    device="cuda",
)  # fmt: skip


@implements(ops.attention, NO_KEYS_LEFT, THREE_PRODUCTS)
def torch_attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, scale: float | None = None
) -> Tensor:
    """Apply `torch.nn.functional.scaled_dot_product_attention`."""
    return functional.scaled_dot_product_attention(
        q, k, v, is_causal=causal, scale=scale, enable_gqa=True
    )


@implements(ops.attention, NO_KEYS_LEFT, THREE_PRODUCTS)
def torch_attention_masked(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, *, scale: float | None = None
) -> Tensor:
    """Apply the same with an additive mask."""
    return functional.scaled_dot_product_attention(
        q, k, v, mask, scale=scale, enable_gqa=True
    )


@product(
    ops.attention,
    Claim("algorithm", "unfused", "each step is stored in the data's format"),
    Claim("masked_row", "nan", "torch.softmax of a row of -Inf is NaN"),
)
def torch_attention_unfused(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, *, causal: bool = False,
    scale: float | None = None,
) -> Tensor:  # fmt: skip
    """Multiply, mask, `torch.softmax`, multiply."""
    repeats = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = (q @ k.transpose(-1, -2)) * scale + mask
    if causal:
        seen = torch.ones_like(scores, dtype=torch.bool).tril()
        scores = scores.masked_fill(~seen, float("-inf"))
    return torch.softmax(scores, -1) @ v
