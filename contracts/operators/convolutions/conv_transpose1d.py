"""conv_transpose1d(x, weight, bias, stride, padding, ...): the adjoint of conv1d."""

from kfuzz.contracts.operators.convolutions import convolution

conv_transpose1d = convolution(
    "conv_transpose1d", axes="L", filters="R",
    longest=7, transposed=True,
)  # fmt: skip
