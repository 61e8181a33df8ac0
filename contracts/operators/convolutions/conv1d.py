"""conv1d(x, weight, bias, stride, padding, dilation, groups): cross-correlation."""

from kfuzz.contracts.operators.convolutions import convolution

conv1d = convolution("conv1d", axes="L", filters="R", longest=7)
