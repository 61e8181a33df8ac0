"""causal_conv1d(x, weight, bias, initial_state, activation): depthwise, of the past."""

from typing import Any

from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded


def reference(
    x: Any,
    weight: Any,
    bias: Any = None,
    initial_state: Any = None,
    *,
    activation: str | None,
) -> Any:
    """(y, final state), y_t = act(b + sum_w weight_w x_(t - W + 1 + w)) per channel.

    Before the first element stands the initial state, or zeros; the final state are
    the last W - 1 elements of both.
    """
    import torch

    width = weight.shape[-1]
    if initial_state is None:
        padded = torch.nn.functional.pad(x, (width - 1, 0))
    else:
        padded = torch.cat((initial_state, x), -1)
    y = (padded.unfold(-1, width, 1) * weight[:, None]).sum(-1)
    if bias is not None:
        y = y + bias[:, None]
    y = y if activation is None else y * y.sigmoid()
    return y, padded[..., padded.shape[-1] - (width - 1) :]


causal_conv1d = Operator(
    "causal_conv1d",
    inputs={
        "x": ks.tensors("B D L"),
        "weight": ks.tensors("D W"),
        "bias": ks.tensors("D", role="bias", optional=True),
        "initial_state": ks.tensors("B D E", optional=True),
        "activation": ks.scalar(None, domain=("silu",)),
    },
    oracle=reference,
    outputs=("y", "final_state"),
    batch="B",
    shape_class="W >= 1 and W <= 8 and L >= 1 and D >= 1 and E == W - 1",
    workspaces=("B D L W",),
    usual={"W": 4},
    **bounded("causal_conv1d", Structure.INTERVAL),
)
