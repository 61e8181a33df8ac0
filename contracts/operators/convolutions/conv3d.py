"""conv3d(x, weight, bias, stride, padding, dilation, groups): cross-correlation."""

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
    """torch.nn.functional.conv3d with zeros around x."""
    import torch

    return torch.nn.functional.conv3d(
        x, weight, bias, stride, padding, dilation, groups
    )


conv3d = convolution("conv3d", reference, axes="D H W", filters="T R S", longest=3)
