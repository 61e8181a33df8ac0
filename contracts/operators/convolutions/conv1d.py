"""conv1d(x, weight, bias, stride, padding, dilation, groups): cross-correlation."""

from typing import Any

from kfuzz.contracts.operators.convolutions import convolution


def reference(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    stride: int,
    padding: int,
    dilation: int,
    groups: int,
) -> Any:
    """torch.nn.functional.conv1d with zeros around x."""
    import torch

    return torch.nn.functional.conv1d(
        x, weight, bias, stride, padding, dilation, groups
    )


conv1d = convolution("conv1d", reference, axes="L", filters="R", longest=7)
