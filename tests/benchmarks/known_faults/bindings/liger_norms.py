"""Norms of Liger-Kernel.

Rows have at most 65,536 elements. `llama` casting rounds before the weight.
"""

import torch

import kfuzz
from kfuzz.contracts import operators as ops
from tests.benchmarks.known_faults.bindings.released import apply, liger

ROWS = "N >= 1 and N <= 65536"


def _layer_norm(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5
) -> torch.Tensor:
    function = liger("LigerLayerNormFunction", "ops.layer_norm")
    normed: torch.Tensor = apply(function, X=x, W=weight, B=bias, eps=eps)
    return normed


# In 16 bits releases before 0.6.1 have another fault.
kfuzz.kernel(ops.layer_norm, shape_class=ROWS, dtypes=("float32",), name="layer_norm")(
    _layer_norm
)
# Where a block is full, so that nothing else shows.
kfuzz.kernel(
    ops.layer_norm,
    shape_class="N == 64",
    dtypes=("float16",),
    intermediates="output",
    name="layer_norm_in_full_blocks",
    gradients=True,
)(_layer_norm)
kfuzz.kernel(
    ops.layer_norm, shape_class=ROWS, dtypes=("float16",), name="layer_norm_of_halves"
)(_layer_norm)


def _rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    function = liger("LigerRMSNormFunction", "ops.rms_norm")
    normed: torch.Tensor = apply(
        function,
        X=x,
        W=weight,
        eps=eps,
        offset=0.0,
        casting_mode="llama",
        in_place=False,
    )
    return normed


kfuzz.kernel(
    ops.rms_norm,
    shape_class=ROWS,
    intermediates="output",
    name="rms_norm",
    gradients=("x", "weight"),
)(_rms_norm)
