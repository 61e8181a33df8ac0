"""Correct kernels by other algorithms than torch's, written with its operators."""

import itertools
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops

# Convolutions as sums over the taps of the filter.


def by_taps(
    x: Tensor, weight: Tensor, bias: Tensor, *, stride: int = 1, padding: int = 0,
    dilation: int = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Return a convolution of any dimensions, one product of channels for each tap."""
    dims = x.dim() - 2
    wide = functional.pad(x.float(), (padding,) * 2 * dims)
    wide = wide.unflatten(1, (groups, -1))  # type: ignore[no-untyped-call]
    filters = weight.float().unflatten(0, (groups, -1))  # type: ignore[no-untyped-call]
    taps = weight.shape[2:]
    places = [
        (n - dilation * (size - 1) - 1) // stride + 1
        for n, size in zip(wide.shape[3:], taps, strict=True)
    ]
    total: Any = 0.0
    for tap in itertools.product(*map(range, taps)):
        index = tuple(
            slice(at * dilation, at * dilation + (n - 1) * stride + 1, stride)
            for at, n in zip(tap, places, strict=True)
        )
        met = wide[(..., *index)].flatten(3)
        total = total + filters[(..., *tap)] @ met
    shape = (x.shape[0], weight.shape[0], *places)
    made = total.reshape(shape) + bias.float().reshape(-1, *[1] * dims)
    return made.to(x.dtype)  # type: ignore[no-any-return]


def scattered(
    x: Tensor, weight: Tensor, bias: Tensor, *, stride: int = 1, padding: int = 0,
    output_padding: int = 0, groups: int = 1, dilation: int = 1,
) -> Tensor:  # fmt: skip
    """Return a transposed convolution, each tap's products added where they fall."""
    dims, taps = x.dim() - 2, weight.shape[2:]
    wide = x.float().unflatten(1, (groups, -1)).flatten(3)  # type: ignore[no-untyped-call]
    filters = weight.float().unflatten(0, (groups, -1)).transpose(1, 2)  # type: ignore[no-untyped-call]
    sizes = [
        (n - 1) * stride + dilation * (size - 1) + 1 + output_padding
        for n, size in zip(x.shape[2:], taps, strict=True)
    ]
    channels = groups * weight.shape[1]
    total = torch.zeros((x.shape[0], channels, *sizes), device=x.device)
    for tap in itertools.product(*map(range, taps)):
        index = tuple(
            slice(at * dilation, at * dilation + (n - 1) * stride + 1, stride)
            for at, n in zip(tap, x.shape[2:], strict=True)
        )
        made = filters[(..., *tap)] @ wide
        total[(..., *index)] += made.reshape(x.shape[0], channels, *x.shape[2:])  # type: ignore[index]
    kept = tuple(slice(padding, n - padding) for n in sizes)
    cut = total[(..., *kept)] + bias.float().reshape(-1, *[1] * dims)  # type: ignore[index]
    return cut.to(x.dtype)


conv3d_by_taps = kernel(ops.conv3d, name="conv3d_by_taps")(by_taps)
conv_transpose2d_scattered = kernel(
    ops.conv_transpose2d, name="conv_transpose2d_scattered"
)(scattered)


# Normalisation of weights by another algorithm than torch's.


@kernel(ops.weight_norm)
def scaled_weight_norm(v: Tensor, g: Tensor) -> Tensor:
    """By the reciprocal root."""
    wide = v.float()
    scale = torch.rsqrt((wide * wide).sum(-1))
    return (wide * (g.float() * scale)[:, None]).to(v.dtype)


# Products of codes with scales, group by group, in torch.


def _by_blocks(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, columns: int
) -> Tensor:
    """Return the sum over groups of K; b has a scale for so many columns."""
    y = torch.zeros(a.shape[0], b.shape[1])
    width = a.shape[1] // max(scale_a.shape[1], 1)
    of_column = (torch.arange(b.shape[1]) // columns).clamp(max=scale_b.shape[1] - 1)
    for g in range(scale_a.shape[1]):
        part = slice(g * width, (g + 1) * width)
        scale = scale_a[:, g, None] * scale_b[g, of_column]
        y += (a[:, part].float() @ b[part].float()) * scale
    return y


@kernel(ops.scaled_matmul_blocks)
def promoted_scaled_matmul_blocks(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, *, block: int = 128,
    dtype: torch.dtype = torch.float32,
) -> Tensor:  # fmt: skip
    """Each block is scaled and added in float32."""
    return _by_blocks(a, b, scale_a, scale_b, block).to(dtype)


def _powers(codes: Tensor, none: float) -> Tensor:
    made = torch.exp2(codes.double() - 127).float()
    return torch.where(codes == 255, none, made)


@kernel(ops.mx_matmul)
def promoted_mx_matmul(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, *,
    dtype: torch.dtype = torch.float32,
) -> Tensor:  # fmt: skip
    """Each block of 32 is scaled and added in float32."""
    left, right = _powers(scale_a, torch.nan), _powers(scale_b, torch.nan)
    return _by_blocks(a, b, left, right, 1).to(dtype)


@kernel(ops.gptq_matmul, intermediates="float32")
def late_gptq_matmul(x: Tensor, codes: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    """Zero points are taken off the sums."""
    n = torch.stack([(codes >> 4 * i) & 15 for i in range(8)], 1).flatten(0, 1).float()
    z = torch.stack([(zero >> 4 * i) & 15 for i in range(8)], -1).flatten(-2) + 1
    y = torch.zeros(x.shape[0], codes.shape[1])
    width = n.shape[0] // scale.shape[0]
    for g in range(scale.shape[0]):
        part = slice(g * width, (g + 1) * width)
        xg = x[:, part].float()
        y += (xg @ n[part] - xg.sum(-1, True) * z[g]) * scale[g].float()
    return y.to(x.dtype)


# Linear attention in chunks: matrix products within a chunk, a state between chunks.

CHUNK = 16


def _heads(x: Tensor, start: int) -> Tensor:
    """Return a chunk of [B, T, H, ...] as float32 [B, H, C, ...]."""
    return x[:, start : start + CHUNK].transpose(1, 2).float()


def _differences(g: Tensor) -> tuple[Tensor, Tensor]:
    """Return running sums [B, H, C, D] and exp(G_i - G_j), 0 for j > i."""
    total = g.cumsum(2)
    apart = total.unsqueeze(3) - total.unsqueeze(2)
    lower = torch.ones(apart.shape[2:4], dtype=torch.bool).tril()[..., None]
    return total, torch.exp(apart.masked_fill(~lower, float("-inf")))


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


@kernel(ops.delta_rule)
def chunked_delta_rule(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor | None = None,
    state: Tensor | None = None, *, scale: float | None = None,
    normalize: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """A triangular system for each chunk."""
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


# Routing by k maxima in turn, products by expert, filters by sorting.

INF = float("inf")


@kernel(ops.topk_routing)
def routing_by_maxima(
    logits: Tensor, *, k: int = 2, renormalize: bool = False
) -> tuple[Tensor, Tensor]:
    """The softmax of the chosen logits where it is renormalised."""
    left = logits.float()
    top = left.amax(-1, keepdim=True)
    total = torch.exp(left - top).sum(-1, keepdim=True)
    found, named = [], []
    for _ in range(k):
        index = left.argmax(-1, keepdim=True)
        found.append(logits.float().gather(-1, index))
        named.append(index)
        left = left.scatter(-1, index, -INF)
        # What is -Inf already may be named again: the next place is taken.
        taken = torch.cat(named, -1)
        open_ = torch.ones_like(left, dtype=torch.bool).scatter(-1, taken, False)
        left = torch.where((left == -INF) & open_, torch.finfo(left.dtype).min, left)
    chosen = torch.cat(found, -1)
    if renormalize:
        return torch.softmax(chosen, -1), torch.cat(named, -1)
    return torch.exp(chosen - top) / total, torch.cat(named, -1)


@kernel(ops.top_k_filter)
def sorted_top_k_filter(logits: Tensor, *, k: int = 1) -> Tensor:
    """K elements are kept, however many are equal."""
    kept = logits.topk(k, -1).indices
    return torch.full_like(logits, -INF).scatter(-1, kept, logits.gather(-1, kept))


@kernel(ops.top_p_filter)
def rising_top_p_filter(logits: Tensor, *, p: float = 0.9) -> Tensor:
    """What lies below 1 - p is left out."""
    if logits.numel() == 0:
        return logits.clone()
    ordered, order = logits.sort(-1)
    tail = torch.softmax(ordered.float(), -1).cumsum(-1)
    gone = tail <= 1 - p
    gone[..., -1] = False
    return logits.masked_fill(gone.scatter(-1, order, gone), -INF)
