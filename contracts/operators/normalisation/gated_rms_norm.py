"""gated_rms_norm(x, gate, weight, eps, norm_before_gate): with a silu gate."""

from typing import Any

from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded


def reference(
    x: Any,
    gate: Any,
    weight: Any = None,
    *,
    eps: float,
    norm_before_gate: bool,
) -> Any:
    """The RMS norm of x, weighted, times silu(gate), or that of x silu(gate)."""
    gate = gate * gate.sigmoid()
    h = x if norm_before_gate else x * gate
    scale = ((h * h).mean(-1, keepdim=True) + eps).rsqrt()
    y = h * scale if weight is None else h * scale * weight
    return y * gate if norm_before_gate else y


gated_rms_norm = Operator(
    "gated_rms_norm",
    inputs={
        "x": ks.tensors("* N"),
        "gate": ks.tensors("* N"),
        "weight": ks.tensors("N", role="weight", optional=True),
        "eps": ks.scalar(1e-5, domain=(1e-5, 1e-6, 1e-12, 1e-3)),
        "norm_before_gate": ks.scalar(True, domain=(False,)),
    },
    oracle=reference,
    reduced="N",
    empty_reduction=False,
    **bounded("gated_rms_norm", Structure.INTERVAL),
)
