"""conv3d(x, weight, bias, stride, padding, dilation, groups): cross-correlation."""

from kfuzz.contracts.operators.convolutions import convolution

conv3d = convolution("conv3d", axes="D H W", filters="T R S", longest=3)
