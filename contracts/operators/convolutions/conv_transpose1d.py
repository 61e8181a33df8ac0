"""conv_transpose1d(x, weight, bias, stride, padding, ...): the adjoint of conv1d."""

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
    """torch.nn.functional.conv_transpose1d."""
    import torch

    return torch.nn.functional.conv_transpose1d(
        x, weight, bias, stride, padding, output_padding, groups, dilation
    )


conv_transpose1d = convolution(
    "conv_transpose1d", reference, axes="L", filters="R",
    longest=7, transposed=True,
)  # fmt: skip
