"""Linear attention by torch: the recurrence, step by step in float32."""

import torch
from torch import Tensor

from kfuzz.contracts import operators as ops
from kfuzz.contracts.platform.table import implements


def _started(k: Tensor, v: Tensor, state: Tensor | None) -> Tensor:
    b, _, h, d = k.shape
    if state is not None:
        return state.clone()
    return torch.zeros(b, h, d, v.shape[-1], device=k.device)


@implements(ops.linear_attention)
def torch_linear_attention(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor | None = None,
    gate: Tensor | None = None, state: Tensor | None = None, *,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Decay, add an outer product, and read, for each step."""
    held = _started(k, v, state)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    y = torch.empty_like(v, memory_format=torch.contiguous_format)
    for t in range(k.shape[1]):
        if decay is not None:
            held = held * torch.exp(decay[:, t].float())[..., None, None]
        if gate is not None:
            held = held * torch.exp(gate[:, t].float()).unsqueeze(-1)
        held = held + k[:, t].float().unsqueeze(-1) * v[:, t].float().unsqueeze(-2)
        row = (q[:, t].float() * scale).unsqueeze(-2) @ held
        y[:, t] = row.squeeze(-2).to(v.dtype)
    return y, held


@implements(ops.delta_rule)
def torch_delta_rule(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor | None = None,
    state: Tensor | None = None, *, scale: float | None = None,
    normalize: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Decay, correct what the state holds for the key, and read, for each step."""
    held = _started(k, v, state)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    y = torch.empty_like(v, memory_format=torch.contiguous_format)
    q, k = q.float(), k.float()
    if normalize:
        q, k = (x * torch.rsqrt(x.square().sum(-1, True) + 1e-6) for x in (q, k))
    for t in range(k.shape[1]):
        if decay is not None:
            held = held * torch.exp(decay[:, t].float())[..., None, None]
        known = (k[:, t].unsqueeze(-2) @ held).squeeze(-2)
        u = beta[:, t].float().unsqueeze(-1) * (v[:, t].float() - known)
        held = held + k[:, t].unsqueeze(-1) * u.unsqueeze(-2)
        row = (q[:, t] * scale).unsqueeze(-2) @ held
        y[:, t] = row.squeeze(-2).to(v.dtype)
    return y, held
