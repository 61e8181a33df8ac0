"""Linear attention in chunks: matrix products within a chunk, a state between chunks.

In torch, with operands rounded to the data's format as matrix units take them.
"""

import torch
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.witness import witness

CHUNK = 16
ROWS = (2, 4, 2, 4)
STATE = (2, 2, 4, 4)


def _heads(x: Tensor, start: int) -> Tensor:
    """Return a chunk of [B, T, H, ...] as float32 [B, H, C, ...]."""
    return x[:, start : start + CHUNK].transpose(1, 2).float()


def _differences(g: Tensor) -> tuple[Tensor, Tensor]:
    """Return running sums [B, H, C, D] and exp(G_i - G_j), 0 for j > i."""
    total = g.cumsum(2)
    apart = total.unsqueeze(3) - total.unsqueeze(2)
    lower = torch.ones(apart.shape[2:4], dtype=torch.bool).tril()[..., None]
    return total, torch.exp(apart.masked_fill(~lower, float("-inf")))


@witness(ROWS, ROWS, ROWS, ROWS[:3], ROWS, STATE, backends=("cpu",))
@kernel(ops.linear_attention)
def chunked_linear_attention(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor | None = None,
    gate: Tensor | None = None, state: Tensor | None = None, *,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Conforming."""
    (b, steps, h, d), e = k.shape, v.shape[-1]
    scale = d**-0.5 if scale is None else scale
    held = torch.zeros(b, h, d, e) if state is None else state.clone()
    y = torch.empty(b, steps, h, e, dtype=v.dtype)

    def stored(x: Tensor) -> Tensor:
        return x.to(q.dtype).float()

    for start in range(0, steps, CHUNK):
        qc, kc, vc = (_heads(x, start) for x in (q, k, v))
        g = torch.zeros_like(kc)
        if decay is not None:
            g = g + _heads(decay, start).unsqueeze(-1)
        if gate is not None:
            g = g + _heads(gate, start)
        total, apart = _differences(g)
        scores = (qc.unsqueeze(3) * kc.unsqueeze(2) * apart).sum(-1)
        made = stored(qc * torch.exp(total)) @ stored(held) + stored(scores) @ vc
        y[:, start : start + CHUNK] = (scale * made).transpose(1, 2).to(v.dtype)
        last = total[:, :, -1:]
        held = torch.exp(last).mT * held
        held = held + stored(kc * torch.exp(last - total)).mT @ vc
    return y, held


@witness(ROWS, ROWS, ROWS, ROWS[:3], ROWS[:3], STATE, backends=("cpu",))
@kernel(ops.delta_rule)
def chunked_delta_rule(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor | None = None,
    state: Tensor | None = None, *, scale: float | None = None,
    normalize: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Conforming: a triangular system for each chunk."""
    (b, steps, h, d), e = k.shape, v.shape[-1]
    scale = d**-0.5 if scale is None else scale
    held = torch.zeros(b, h, d, e) if state is None else state.clone()
    y = torch.empty(b, steps, h, e, dtype=v.dtype)

    def stored(x: Tensor) -> Tensor:
        return x.to(q.dtype).float()

    if normalize:
        q, k = (
            (x.float() * torch.rsqrt(x.float().square().sum(-1, True) + 1e-6)).to(
                q.dtype
            )
            for x in (q, k)
        )
    for start in range(0, steps, CHUNK):
        qc, kc, vc, bc = (_heads(x, start) for x in (q, k, v, beta.unsqueeze(-1)))
        g = torch.zeros_like(bc)
        if decay is not None:
            g = _heads(decay, start).unsqueeze(-1)
        total, apart = _differences(g)
        apart = apart.squeeze(-1)
        system = (bc * (kc @ kc.mT) * apart).tril(-1)
        one = torch.eye(system.shape[-1]).expand_as(system)
        inverse = stored(
            torch.linalg.solve_triangular(system, one, upper=False, unitriangular=True)
        )
        known = stored(inverse @ stored(bc * kc * torch.exp(total))) @ stored(held)
        u = stored(inverse @ stored(bc * vc) - known)
        inner = stored((qc @ kc.mT) * apart)
        made = stored(qc * torch.exp(total)) @ stored(held) + inner @ u
        y[:, start : start + CHUNK] = (scale * made).transpose(1, 2).to(v.dtype)
        last = total[:, :, -1:]
        held = torch.exp(last) * held
        held = held + stored(kc * torch.exp(last - total)).mT @ u
    return y, held
