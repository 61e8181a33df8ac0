"""Triton kernels of torchnorm 0.1.2 as released: rows of at most 65,536 elements."""

from torchnorm._triton import fused_add_rms_norm, fused_layer_norm, fused_rms_norm

import kfuzz
from kfuzz.contracts import operators as ops

PACKAGE = "torchnorm"
VERSION = "0.1.2"
NEEDS = ()

ROWS = "N >= 1 and N <= 65536"

kfuzz.kernel(
    ops.rms_norm, name="torchnorm_rms_norm", shape_class=ROWS, layouts="contiguous",
)(lambda x, weight, eps=1e-6: fused_rms_norm(x, weight, eps))  # fmt: skip
kfuzz.kernel(
    ops.layer_norm, name="torchnorm_layer_norm", shape_class=ROWS, layouts="contiguous"
)(lambda x, weight, bias=None, eps=1e-5: fused_layer_norm(x, weight, bias, eps))
kfuzz.kernel(
    ops.add_rms_norm,
    name="torchnorm_add_rms_norm",
    shape_class=ROWS,
    layouts="contiguous",
    gradients=True,
)(lambda x, residual, weight, eps=1e-6: fused_add_rms_norm(x, residual, weight, eps))
