"""Torch's convolutions but conv2d, and their adjoints."""

from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional

from kfuzz.contracts import operators as ops
from kfuzz.contracts.platform.products import BFLOAT16, BIAS_AFTER, BY_DEFAULT, WIDER
from kfuzz.contracts.platform.table import Claim, implements, narrowing, stored


def _convolving(function: Any) -> Any:
    def convolve(
        x: Tensor, weight: Tensor, bias: Tensor, *, stride: int = 1, padding: int = 0,
        dilation: int = 1, groups: int = 1,
    ) -> Any:  # fmt: skip
        return function(x, weight, bias, stride, padding, dilation, groups)

    return convolve


for _made in (ops.conv1d, ops.conv3d):
    _function = _convolving(getattr(functional, _made.name))
    implements(_made, WIDER, BY_DEFAULT, BIAS_AFTER, name=f"torch_{_made.name}")(
        _function
    )
    implements(_made, BFLOAT16, BIAS_AFTER, name=f"torch_{_made.name}_bfloat16")(
        _function
    )


COLUMNS: Final = (
    "aten/src/ATen/native/NaiveConvolutionTranspose2d.cpp: products are tensors of the "
    "data's format, and their sums are kept in it"
)
# cuDNN's adjoint in the data: with atomic additions where it chooses so.
BY_ATOMICS: Final = Claim(
    "determinism", "none",
    "docs of torch.nn.functional.conv_transpose2d: on CUDA cuDNN may select a "
    "nondeterministic algorithm; two calls differed on an H200",
    device="cuda",
)  # fmt: skip


def _transposed(function: Any) -> Any:
    def convolve(
        x: Tensor, weight: Tensor, bias: Tensor, *, stride: int = 1, padding: int = 0,
        output_padding: int = 0, groups: int = 1, dilation: int = 1,
    ) -> Any:  # fmt: skip
        return function(
            x, weight, bias, stride, padding, output_padding, groups, dilation
        )

    return convolve


for _made in (ops.conv_transpose1d, ops.conv_transpose2d):
    narrowing(
        _made, BY_DEFAULT, BY_ATOMICS, stored(COLUMNS), accumulator="{dtype}",
        source=COLUMNS, device="cpu", name=f"torch_{_made.name}",
    )(_transposed(getattr(functional, _made.name)))  # fmt: skip


@implements(
    ops.causal_conv1d,
    stored("a chain of torch's operators, each of which stores its result"),
)
def torch_causal_conv1d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None,
    initial_state: Tensor | None = None, activation: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Convolve each channel with `torch.nn.functional.conv1d`."""
    channels, width = weight.shape
    if initial_state is None:
        initial_state = x.new_zeros(x.shape[0], channels, width - 1)
    padded = torch.cat((initial_state, x), -1)
    y = functional.conv1d(padded, weight[:, None], bias, groups=channels)
    y = y if activation is None else functional.silu(y)
    return y, padded[..., padded.shape[-1] - (width - 1) :].clone()
