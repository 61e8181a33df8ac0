"""conv_transpose2d(x, weight, bias, stride, padding, ...): the adjoint of conv2d."""

from kfuzz.contracts.operators.convolutions import convolution

conv_transpose2d = convolution(
    "conv_transpose2d", axes="H W", filters="R S",
    longest=5, transposed=True,
)  # fmt: skip
