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


IN_STEPS: Final = (
    Claim("algorithm", "unfused", "each step is stored in the data's format"),
    Claim("masked_row", "nan", "torch.softmax of a row of -Inf is NaN"),
)


def scores(
    q: Tensor, k: Tensor, mask: Tensor | None, *, causal: bool, scale: float | None,
    window: int | None, softcap: float | None,
) -> Tensor:  # fmt: skip
    """Return scale q k^T, capped and masked, each step a call."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    made = (q @ k.transpose(-1, -2)) * scale
    if softcap is not None:
        made = torch.tanh(made / softcap) * softcap
    if mask is not None:
        made = made + mask
    seen = torch.ones(made.shape[-2:], dtype=torch.bool, device=q.device)
    if window is not None:
        seen = seen.tril(window - 1).triu(1 - window)
    if causal:
        seen = seen.tril()
    return made.masked_fill(~seen, float("-inf"))


@product(ops.attention, *IN_STEPS)
def torch_attention_unfused(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None,
    sinks: Tensor | None = None, *, causal: bool = False, scale: float | None = None,
    window: int | None = None, softcap: float | None = None,
) -> Tensor:  # fmt: skip
    """Multiply, cap, mask, `torch.softmax` with the sinks, multiply."""
    repeats = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
    made = scores(
        q, k, mask, causal=causal, scale=scale, window=window, softcap=softcap
    )
    if sinks is not None:
        more = sinks.reshape(1, -1, 1, 1).expand(*made.shape[:-1], 1)
        made = torch.cat((made, more), -1)
    return torch.softmax(made, -1)[..., : k.shape[2]] @ v


@product(ops.attention_lse, *IN_STEPS)
def torch_attention_lse(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *,
    causal: bool = False, scale: float | None = None, window: int | None = None,
    softcap: float | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Multiply, cap, mask, `torch.softmax` and `torch.logsumexp`, multiply."""
    repeats = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
    made = scores(
        q, k, mask, causal=causal, scale=scale, window=window, softcap=softcap
    )
    return torch.softmax(made, -1) @ v, torch.logsumexp(made.float(), -1)


@product(ops.attention_varlen, *IN_STEPS)
def torch_attention_varlen(
    q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor, cu_k: Tensor, *,
    causal: bool = False, scale: float | None = None, window: int | None = None,
    softcap: float | None = None,
) -> Tensor:  # fmt: skip
    """Apply the chain to each sequence."""
    y = q.new_empty(*q.shape[:2], v.shape[-1])
    starts, lows = cu_q.tolist(), cu_k.tolist()
    for i in range(len(starts) - 1):
        rows, keys = slice(*starts[i : i + 2]), slice(*lows[i : i + 2])
        parts = (t.transpose(0, 1).unsqueeze(0) for t in (q[rows], k[keys], v[keys]))
        made = torch_attention_unfused(
            *parts, causal=causal, scale=scale, window=window, softcap=softcap
        )
        y[rows] = made[0].transpose(0, 1)
    return y


@product(ops.attention_paged, *IN_STEPS)
def torch_attention_paged(
    q: Tensor, k: Tensor, v: Tensor, pages: Tensor, lengths: Tensor, *,
    limit: int = 16, scale: float | None = None, softcap: float | None = None,
) -> Tensor:  # fmt: skip
    """Gather the keys of each sequence and apply the chain."""
    y = q.new_empty(*q.shape[:2], v.shape[-1])
    for i, length in enumerate(lengths.tolist()):
        parts = (t[pages[i]].flatten(0, 1)[:length].transpose(0, 1) for t in (k, v))
        made = torch_attention_unfused(
            q[i, None, :, None],
            *(t.unsqueeze(0) for t in parts),
            scale=scale,
            softcap=softcap,
        )
        y[i] = made[0, :, 0]
    return y
