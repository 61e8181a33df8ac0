"""conv_transpose2d(x, weight, bias, stride, padding, ...): the adjoint of conv2d."""

from typing import Any

from kfuzz.contracts.operators.convolutions import convolution


def reference(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    stride: int,
    padding: int,
    output_padding: int,
    groups: int,
    dilation: int,
) -> Any:
    """torch.nn.functional.conv_transpose2d."""
    import torch

    return torch.nn.functional.conv_transpose2d(
        x, weight, bias, stride, padding, output_padding, groups, dilation
    )


conv_transpose2d = convolution(
    "conv_transpose2d", reference, axes="H W", filters="R S",
    longest=5, transposed=True,
)  # fmt: skip
