"""Kernels of Liger-Kernel 0.8.5 as released, each bound in a line.

Where its code says so, a claim stands beside: losses are added up in the data's format,
`llama` casting rounds before the weight, swiglu before the product, rope is computed in
the data's format, rows have at most 65,536 elements.
"""

from liger_kernel.transformers import functional as liger

import kfuzz
from kfuzz.contracts import operators as ops

ROWS = "N <= 65536"

kfuzz.kernel(ops.cross_entropy, intermediates="output")(liger.liger_cross_entropy)
kfuzz.kernel(ops.rms_norm, intermediates="output", shape_class=ROWS)(
    liger.liger_rms_norm
)
kfuzz.kernel(ops.add_rms_norm, intermediates="output", shape_class=ROWS)(
    liger.liger_fused_add_rms_norm
)
kfuzz.kernel(ops.layer_norm, shape_class=ROWS)(liger.liger_layer_norm)
kfuzz.kernel(ops.group_norm, name="liger_group_norm")(
    lambda x, weight, bias, num_groups=1, eps=1e-5: liger.liger_group_norm(
        x, weight, bias, x.shape[1], num_groups, eps
    )
)
kfuzz.kernel(ops.softmax, dims={-1}, shape_class=ROWS)(liger.liger_softmax)
kfuzz.kernel(ops.swiglu, intermediates="output", shape_class=ROWS)(liger.liger_swiglu)
kfuzz.kernel(
    ops.rope.fixed(interleaved=False, repeats=2),
    intermediates="output",
    name="liger_rope",
)(
    lambda x, cos, sin: liger.liger_rope(
        x.clone().transpose(1, 2),  # which is overwritten
        x.clone().transpose(1, 2),
        cos,
        sin,
        rotary_dim=x.shape[-1],
    )[0].transpose(1, 2)
)
