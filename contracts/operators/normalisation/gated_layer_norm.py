"""gated_layer_norm(x, gate, weight, bias, eps, norm_before_gate): with a silu gate."""

from typing import Any

from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded


def reference(
    x: Any,
    gate: Any,
    weight: Any = None,
    bias: Any = None,
    *,
    eps: float,
    norm_before_gate: bool,
) -> Any:
    """The layer norm of x, affine, times silu(gate), or that of x silu(gate)."""
    gate = gate * gate.sigmoid()
    h = x if norm_before_gate else x * gate
    centred = h - h.mean(-1, keepdim=True)
    scale = ((centred * centred).mean(-1, keepdim=True) + eps).rsqrt()
    y = centred * scale if weight is None else centred * scale * weight
    y = y if bias is None else y + bias
    return y * gate if norm_before_gate else y


gated_layer_norm = Operator(
    "gated_layer_norm",
    inputs={
        "x": ks.tensors("* N"),
        "gate": ks.tensors("* N"),
        "weight": ks.tensors("N", role="weight", optional=True),
        "bias": ks.tensors("N", role="bias", optional=True),
        "eps": ks.scalar(1e-5, domain=(1e-5, 1e-6, 1e-12, 1e-3)),
        "norm_before_gate": ks.scalar(True, domain=(False,)),
    },
    oracle=reference,
    reduced="N",
    recentres=True,
    subtracts_mean=True,
    empty_reduction=False,
    **bounded("gated_layer_norm", Structure.INTERVAL),
)
