"""Recurrent states: linear attention and the delta rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Structure
from kfuzz.contracts.prose import bounded, defined
from kfuzz.core.declaration import Declaration


def reference_linear_attention(
    q: Any, k: Any, v: Any, decay: Any = None, gate: Any = None, state: Any = None, *,
    scale: float | None,
) -> Any:  # fmt: skip
    """y_t = scale q_t h_t with h_t = exp(decay_t + gate_t) h_{t-1} + k_t^T v_t.

    `decay` [B, T, H] is one of a head, `gate` [B, T, H, D] one of each key dimension;
    both are logarithms, 0 by default. The state [B, H, D, E] starts from `state`, or 0,
    and is returned as it ends.
    """
    import torch

    scale = q.shape[-1] ** -0.5 if scale is None else scale
    b, steps, h, d = k.shape
    held = k.new_zeros((b, h, d, v.shape[-1])) if state is None else state
    g = torch.zeros_like(k)
    for given in (None if decay is None else decay.unsqueeze(-1), gate):
        g = g if given is None else g + given
    rows = []
    for t in range(steps):
        extended = k[:, t].unsqueeze(-1) * v[:, t].unsqueeze(-2)
        held = torch.exp(g[:, t]).unsqueeze(-1) * held + extended
        rows.append(scale * (q[:, t].unsqueeze(-2) @ held).squeeze(-2))
    return torch.stack(rows, 1) if rows else torch.zeros_like(v), held


# What a logarithm of a decay is.
DECAYS: Final = "(-inf, 0]"

linear_attention = defined(
    "linear_attention",
    inputs={
        "q": ks.tensors("B T H D"),
        "k": ks.tensors("B T H D"),
        "v": ks.tensors("B T H E"),
        "decay": ks.tensors("B T H", role="bias", optional=True, within=DECAYS),
        "gate": ks.tensors("B T H D", role="bias", optional=True, within=DECAYS),
        "state": ks.tensors("B H D E", dtype="float32", optional=True),
        "scale": ks.scalar(None, domain=(1.0, 0.125)),
    },
    oracle=reference_linear_attention,
    error_model=lambda problem: nm.recurrence.linear(problem),
    outputs=("y", "final_state"),
    batch="B",
    shape_class="D >= 1",
    # The steps are gone through one by one: few enough of them.
    workspaces=("B H T T D", "B H D E T"),
    usual={"B": 2, "H": 2, "T": 16},
    defaults=Declaration(intermediates="output"),
)


def reference_delta_rule(
    q: Any, k: Any, v: Any, beta: Any, decay: Any = None, state: Any = None, *, scale:
    float | None, normalize: bool,
) -> Any:  # fmt: skip
    """y_t = scale q_t h_t, h_t = d_t h_{t-1} + k_t^T beta_t (v_t - k_t d_t h_{t-1}).

    d_t = exp(decay_t), 1 by default. With `normalize` rows of q and k are divided by
    sqrt(sum x^2 + 1e-6) first. The state [B, H, D, E] starts from `state`, or 0, and is
    returned as it ends.
    """
    import torch

    if normalize:
        q, k = nm.recurrence.normalized(q), nm.recurrence.normalized(k)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    b, steps, h, d = k.shape
    held = k.new_zeros((b, h, d, v.shape[-1])) if state is None else state
    rows = []
    for t in range(steps):
        if decay is not None:
            held = torch.exp(decay[:, t])[..., None, None] * held
        known = (k[:, t].unsqueeze(-2) @ held).squeeze(-2)
        u = beta[:, t].unsqueeze(-1) * (v[:, t] - known)
        held = held + k[:, t].unsqueeze(-1) * u.unsqueeze(-2)
        rows.append(scale * (q[:, t].unsqueeze(-2) @ held).squeeze(-2))
    return torch.stack(rows, 1) if rows else torch.zeros_like(v), held


delta_rule = replace(
    linear_attention,
    name="delta_rule",
    inputs={
        "q": ks.tensors("B T H D"),
        "k": ks.tensors("B T H D"),
        "v": ks.tensors("B T H E"),
        "beta": ks.tensors("B T H", role="bias", within=(0, 1)),
        "decay": ks.tensors("B T H", role="bias", optional=True, within=DECAYS),
        "state": ks.tensors("B H D E", dtype="float32", optional=True),
        "scale": ks.scalar(None, domain=(1.0, 0.125)),
        "normalize": ks.scalar(False, domain=(True,)),
    },
    oracle=reference_delta_rule,
    error_model=lambda problem: nm.recurrence.delta(problem),
    **bounded("delta_rule", Structure.INTERVAL),
)
