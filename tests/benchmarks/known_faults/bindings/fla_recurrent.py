"""Linear attention of flash-linear-attention, against its recurrence step by step.

Sequences are short, for most references are loops over time. They take the scale that
the kernels are given.
"""

from typing import Any

import torch

import kfuzz
from kfuzz import strategies as ks
from tests.benchmarks.known_faults.bindings.released import call, first

_SHORT = "B >= 1 and T >= 1 and T <= 12 and H >= 1 and H <= 3 and K >= 1 and V >= 1"
_SMALL = f"{_SHORT} and K <= 32 and V <= 32"
_HEADS = {
    "q": ks.tensors("B T H K"),
    "k": ks.tensors("B T H K"),
    "v": ks.tensors("B T H V"),
}


def _outer(k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return k.unsqueeze(-1) * v.unsqueeze(-2)


def _read(state: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return (state * k.unsqueeze(-1)).sum(-2)


def _empty_state(k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(_outer(k[:, 0], v[:, 0]))


def _gated_delta_rule_by_key(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
) -> torch.Tensor:
    state, outputs = _empty_state(k, v), []
    for t in range(q.shape[1]):
        state = state * torch.exp(-g[:, t].abs()).unsqueeze(-1)
        new = beta[:, t].unsqueeze(-1) * (v[:, t] - _read(state, k[:, t]))
        state = state + _outer(k[:, t], new)
        outputs.append(_read(state, q[:, t]))
    return torch.stack(outputs, 1)


def _decayed(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    # All steps at once: as in the kernels, the gradient of a gate is then a difference
    # of products, which is 0 of the first gate but for rounding.
    total, steps = g.cumsum(1), torch.arange(g.shape[1], device=g.device)
    seen = (steps.unsqueeze(1) >= steps).unsqueeze(-1)
    gaps = total.unsqueeze(2) - total.unsqueeze(1)
    decay = torch.where(seen, torch.exp(torch.where(seen, gaps, 0.0)), 0.0)
    scores = (q.unsqueeze(2) * k.unsqueeze(1)).sum(-1) * decay
    outputs = (scores.unsqueeze(-1) * v.unsqueeze(1)).sum(2)
    state = (decay[:, -1].unsqueeze(-1).unsqueeze(-1) * _outer(k, v)).sum(1)
    return outputs, state


def _normalised(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    q, k = q.abs(), k.abs()
    state, total, outputs = _empty_state(k, v), torch.zeros_like(k[:, 0]), []
    for t in range(q.shape[1]):
        state = state + _outer(k[:, t], v[:, t])
        total = total + k[:, t]
        weight = (q[:, t] * total).sum(-1, keepdim=True) + 1e-10
        outputs.append(_read(state, q[:, t]) / weight)
    return torch.stack(outputs, 1)


gated_delta_rule_by_key = kfuzz.Operator(
    "gated_delta_rule_by_key",
    inputs={**_HEADS, "g": ks.tensors("B T H K"), "beta": ks.tensors("B T H")},
    oracle=_gated_delta_rule_by_key,
    shape_class=_SMALL,
)
decayed_attention = kfuzz.Operator(
    "decayed_attention",
    inputs={**_HEADS, "g": ks.tensors("B T H", within=(None, 0))},
    oracle=_decayed,
    outputs=("o", "state"),
    shape_class=_SMALL,
)
normalised_attention = kfuzz.Operator(
    "normalised_attention",
    inputs=_HEADS,
    oracle=_normalised,
    shape_class=_SMALL,
)


@kfuzz.kernel(gated_delta_rule_by_key, dtypes=("float32",), nonfinite="undefined")
def kda(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
) -> torch.Tensor:
    result: torch.Tensor = call(
        first("fused_recurrent_kda", "ops.kda.fused_recurrent"),
        q=q,
        k=k,
        v=v,
        g=-g.abs(),
        beta=beta,
        scale=1.0,
    )[0]
    return result


@kfuzz.kernel(
    decayed_attention, dtypes=("float32",), nonfinite="undefined", gradients=("q", "g")
)
def simple_gla(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    o, state = call(
        first("fused_recurrent_simple_gla", "ops.simple_gla.fused_recurrent"),
        q=q,
        k=k,
        v=v,
        g=g,
        scale=1.0,
        output_final_state=True,
    )
    return o, state


@kfuzz.kernel(
    normalised_attention, dtypes=("float32",), nonfinite="undefined", gradients=("k",)
)
def normalised_linear_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> torch.Tensor:
    result: Any = call(
        first("fused_recurrent_linear_attn", "ops.linear_attn.fused_recurrent"),
        q=q.abs(),
        k=k.abs(),
        v=v,
        scale=1.0,
        normalize=True,
    )
    o: torch.Tensor = result[0]
    return o
