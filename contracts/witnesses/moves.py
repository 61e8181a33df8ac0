"""A copy in Triton that follows strides, and so transposes too."""

import triton
import triton.language as tl
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.rows import empty, over_elements
from kfuzz.contracts.witnesses.witness import SQUARE, witness

# Axes that the copying kernel knows; tensors of fewer are padded with axes of 1.
AXES = 4


@triton.jit(
    do_not_specialize=["numel", "n1", "n2", "n3", "s0", "s1", "s2", "s3"],
)
def copy_kernel(x_ptr, y_ptr, numel, n1, n2, n3, s0, s1, s2, s3, BLOCK: tl.constexpr):
    """Copy x of four axes and any strides to contiguous y."""
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    i3 = offs % n3
    i2 = offs // n3 % n2
    i1 = offs // n3 // n2 % n1
    i0 = offs // n3 // n2 // n1
    x = tl.load(x_ptr + i0 * s0 + i1 * s1 + i2 * s2 + i3 * s3, mask=offs < numel)
    tl.store(y_ptr + offs, x, mask=offs < numel)


def gathered(x: Tensor) -> Tensor:
    """Return the elements of x, of at most four axes, in new contiguous memory."""
    view = x[(None,) * (AXES - x.dim())]
    sizes = *view.shape[1:], *view.stride()
    return over_elements(copy_kernel, (view, empty(x)), *sizes)


@witness(SQUARE)
@kernel(ops.copy)
def triton_copy(x: Tensor) -> Tensor:
    """Conforming."""
    return gathered(x)


@witness(SQUARE)
@kernel(ops.transpose)
def triton_transpose(x: Tensor) -> Tensor:
    """Conforming."""
    return gathered(x.transpose(-1, -2))
