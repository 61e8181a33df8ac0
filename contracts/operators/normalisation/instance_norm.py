"""instance_norm(x, weight, bias, eps): normalisation of each channel of each item."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded


def reference(x: Any, weight: Any = None, bias: Any = None, *, eps: float) -> Any:
    """(x - mean) / sqrt(var + eps) * weight + bias over the last dimension."""
    centred = x - x.mean(-1, keepdim=True)
    variance = (centred * centred).mean(-1, keepdim=True)
    y = centred / (variance + eps).sqrt()
    y = y if weight is None else y * weight[:, None]
    return y if bias is None else y + bias[:, None]


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return the interval of layer_norm for each channel, affine by channel.

    See `kfuzz.numerics.models.normalisation`.
    """
    import torch

    x = problem.tensors["x"]
    if x.numel() == 0:
        return nm.around(problem, x, 0.0)

    def by_channel(name: str, default: float) -> torch.Tensor:
        given = problem.tensors.get(name)
        if given is None:
            given = torch.full_like(x[:, 0, :, 0], default)
        return given[:, None, :, None].expand_as(x)

    return nm.normalised(problem, x, by_channel("weight", 1.0), by_channel("bias", 0.0))


instance_norm = Operator(
    "instance_norm",
    inputs={
        "x": ks.tensors("B C L"),
        "weight": ks.tensors("C", role="weight", optional=True),
        "bias": ks.tensors("C", role="bias", optional=True),
        "eps": ks.scalar(1e-5, domain=(1e-5, 1e-6, 1e-12, 1e-3, 0.1)),
    },
    oracle=reference,
    error_model=accept,
    batch="B",
    reduced="L",
    recentres=True,
    subtracts_mean=True,
    empty_reduction=False,
    **bounded("instance_norm", Structure.INTERVAL),
)
