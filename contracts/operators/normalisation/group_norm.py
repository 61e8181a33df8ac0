"""group_norm(x, weight, bias, num_groups, eps): normalisation of channel groups."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded


def reference(
    x: Any, weight: Any = None, bias: Any = None, *, num_groups: int, eps: float
) -> Any:
    """(x - mean) / sqrt(var + eps) * weight + bias over the channels of a group."""
    groups = x.reshape(x.shape[0], num_groups, -1) if x.numel() else x
    centred = groups - groups.mean(-1, keepdim=True)
    variance = (centred * centred).mean(-1, keepdim=True)
    y = (centred / (variance + eps).sqrt()).reshape(x.shape)
    y = y if weight is None else y * weight[:, None]
    return y if bias is None else y + bias[:, None]


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return the interval of layer_norm over the n = C / num_groups * L of a group.

    See `kfuzz.numerics.models.normalisation`.
    """
    import torch

    x = problem.tensors["x"]
    members, batch, channels, length = x.shape
    if x.numel() == 0:
        return nm.around(problem, x, 0.0)
    groups = problem.axis("num_groups")

    def per_element(name: str, default: float) -> torch.Tensor:
        given = problem.tensors.get(name)
        if given is None:
            given = torch.full_like(x[:, 0, :, 0], default)
        expanded = given.reshape(members, 1, channels, 1).expand(-1, 1, -1, length)
        return expanded.reshape(members, 1, groups, -1)

    rows = x.reshape(members, batch, groups, -1)
    weight, bias = per_element("weight", 1.0), per_element("bias", 0.0)
    return nm.reshaped(nm.normalised(problem, rows, weight, bias), x.shape)


group_norm = Operator(
    "group_norm",
    inputs={
        "x": ks.tensors("B C L"),
        "weight": ks.tensors("C", role="weight", optional=True),
        "bias": ks.tensors("C", role="bias", optional=True),
        "num_groups": ks.scalar(1, domain=(1, 2, 3, 4, 8)),
        "eps": ks.scalar(1e-5, domain=(1e-5, 1e-6, 1e-12, 1e-3, 0.1)),
    },
    oracle=reference,
    error_model=accept,
    batch="B",
    reduced="L",
    shape_class="C % num_groups == 0",
    recentres=True,
    groups="num_groups",
    subtracts_mean=True,
    empty_reduction=False,
    **bounded("group_norm", Structure.INTERVAL),
)
