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


def linear_in_chunks(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor | None, gate: Tensor | None,
    state: Tensor | None, scale: float | None, kept: float = 1.0,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return linear attention and its last state.

    Args:
        q: [B, T, H, D], as k; v [B, T, H, E].
        k: keys.
        v: values.
        decay: [B, T, H].
        gate: [B, T, H, D].
        state: [B, H, D, E].
        scale: as of the operator.
        kept: what of the state is handed from chunk to chunk.
    """
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
        held = torch.exp(last).mT * held * (kept if start else 1.0)
        held = held + stored(kc * torch.exp(last - total)).mT @ vc
    return y, held


@witness(ROWS, ROWS, ROWS, ROWS[:3], ROWS, STATE, backends=("cpu",))
@kernel(ops.linear_attention)
def chunked_linear_attention(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor | None = None,
    gate: Tensor | None = None, state: Tensor | None = None, *,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Conforming."""
    return linear_in_chunks(q, k, v, decay, gate, state, scale)


def delta_in_chunks(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor | None,
    state: Tensor | None, scale: float | None, kept: float = 1.0, *, normalize: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return the delta rule and its last state, by a triangular system a chunk.

    Arguments as of `linear_in_chunks`; beta [B, T, H].
    """
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
        held = torch.exp(last) * held * (kept if start else 1.0)
        held = held + stored(kc * torch.exp(last - total)).mT @ u
    return y, held


@witness(ROWS, ROWS, ROWS, ROWS[:3], ROWS[:3], STATE, backends=("cpu",))
@kernel(ops.delta_rule)
def chunked_delta_rule(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor | None = None,
    state: Tensor | None = None, *, scale: float | None = None,
    normalize: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Conforming."""
    return delta_in_chunks(q, k, v, beta, decay, state, scale, normalize=normalize)


@witness(
    ROWS, ROWS, ROWS, ROWS[:3], breaks="C-CMP-03", most=(80, 80), backends=("cpu",),
    minimal="more steps than two chunks have",
)  # fmt: skip
@kernel(ops.delta_rule)
def corrections_are_lost_between_chunks(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, *, scale: float | None = None
) -> tuple[Tensor, Tensor]:
    """The third chunk starts from half of the state that the second one had."""
    return delta_in_chunks(q, k, v, beta, None, None, scale, 0.5, normalize=False)


@witness(
    ROWS, ROWS, ROWS, breaks="C-CMP-03", most=(60, 60), backends=("cpu",),
    minimal="more steps than two chunks have",
)  # fmt: skip
@kernel(ops.linear_attention)
def state_is_lost_between_chunks(
    q: Tensor, k: Tensor, v: Tensor, *, scale: float | None = None
) -> tuple[Tensor, Tensor]:
    """The third chunk starts from half of the state that the second one had."""
    return linear_in_chunks(q, k, v, None, None, None, scale, 0.5)
