"""Torch's own kernels of the CPU, in so far as they conform.

Bound as `kfuzz.contracts.platform` declares them, but for inputs that show a listed
defect: those are left undecided.
"""

from typing import Final

import torch

from kfuzz.contracts import kernel
from kfuzz.contracts.platform.catalogue import Declared, kernels
from kfuzz.contracts.witnesses.witness import LONG_ROWS, SQUARE, Shape, witness

SEQUENCE: Final = (2, 4, 2, 4)
"""Few steps: products of many random decays leave the functional test's numbers."""
_SHAPES: Final[dict[tuple[Shape, ...], str]] = {
    (LONG_ROWS,): "layer_norm_plain rms_norm_plain top_k_filter top_p_filter",
    (LONG_ROWS, (1024,), (1024,)): "layer_norm",
    (SQUARE,): "transpose topk sort sort_stable quantize_int8 quantize_fp8",
    ((512, 64), (128,)): "embedding index_select",
    ((64, 256), (64, 32)): "gather take_along_dim",
    ((64, 512), (64,)): "cross_entropy",
    (SQUARE, SQUARE): "matmul linear_plain",
    ((64, 512), (64,), (512,)): "nll_loss",
    ((64, 32), (512, 32), (64,), (512,)): "linear_cross_entropy",
    (SQUARE, SQUARE, (64,), (64,)): "bce_with_logits",
    ((4, 16, 16), (4, 16, 16)): "bmm",
    (SQUARE, SQUARE, (64,)): "linear linear_relu linear_gelu",
    # Few terms: bfloat16 results of 1 to 2 must keep an absolute 1e-2.
    ((2, 2, 8, 8), (4, 2, 1, 1), (4,)): "conv2d conv2d_bfloat16",
    ((2, 2, 16), (4, 2, 1), (4,)): "conv1d conv1d_bfloat16",
    ((2, 2, 16), (2, 4, 1), (4,)): (
        "conv_transpose1d conv_transpose1d_float16 conv_transpose1d_bfloat16"
    ),
    ((2, 2, 4, 4, 4), (4, 2, 1, 1, 1), (4,)): "conv3d conv3d_bfloat16",
    ((2, 2, 8, 8), (2, 4, 1, 1), (4,)): (
        "conv_transpose2d conv_transpose2d_float16 conv_transpose2d_bfloat16"
    ),
    ((2, 8, 16), (8, 4), (8,), (2, 8, 3)): "causal_conv1d",
    ((2, 2, 16, 16), (2, 2, 16, 16), (2, 2, 16, 16)): "attention",
    ((2, 2, 16, 16), (2, 2, 16, 16), (2, 2, 16, 16), (16, 16)): (
        "attention_masked attention_lse"
    ),
    ((2, 2, 16, 16), (2, 2, 16, 16), (2, 2, 16, 16), (16, 16), (2,)): (
        "attention_unfused"
    ),
    ((16, 32), (32, 16), (16,), (16,), (16,)): "scaled_matmul_int8 scaled_matmul_fp8",
    ((16, 256), (256, 128), (16, 2), (2, 1)): "scaled_matmul_blocks",
    ((16, 64), (64, 16), (16, 2), (2, 16)): "mx_matmul",
    ((16, 64), (32, 16), (2, 16), (2, 16)): "int4_matmul",
    ((16, 64), (8, 16), (2, 16), (2, 2)): "gptq_matmul",
    ((64, 32),): "topk_routing",
    ((64, 16), (1, 16, 32), (2,)): "grouped_matmul",
    ((64, 16), (64, 2)): "moe_permute",
    ((32, 2, 16), (32, 2, 16), (32, 2, 16), (4,), (4,)): "attention_varlen",
    ((2, 2, 16), (8, 8, 2, 16), (8, 8, 2, 16), (2, 4), (2,)): "attention_paged",
    ((64, 16), (32, 2), (32, 2)): "moe_combine",
    (SEQUENCE, SEQUENCE, SEQUENCE, SEQUENCE[:3], SEQUENCE, (2, 2, 4, 4)): (
        "linear_attention"
    ),
    (SEQUENCE, SEQUENCE, SEQUENCE, SEQUENCE[:3], SEQUENCE[:3], (2, 2, 4, 4)): (
        "delta_rule"
    ),
    ((64, 256), (64, 32), (64, 32)): "scatter_add",
    ((512, 64), (128,), (128, 64)): "index_add",
    ((2, 8, 4, 16), (8, 16), (8, 16)): "rope",
    ((2, 8, 4, 16), (8, 8), (8, 8)): "rope_complex",
    ((2, 8, 4, 16), (32, 8), (32, 8), (2, 8)): "rope_positions",
    ((2, 8, 4, 16), (3, 2, 8, 8), (3, 2, 8, 8)): "rope_sections",
    # Few factors: the product of many normal numbers vanishes.
    ((64, 4),): "prod prod_float16 prod_bfloat16",
    (LONG_ROWS, (1024,)): "rms_norm",
    (LONG_ROWS, LONG_ROWS, (1024,), (1024,)): "gated_layer_norm",
    (SQUARE, (64,)): "dequantize_int8 dequantize_fp8 weight_norm",
    (LONG_ROWS, LONG_ROWS, (1024,)): "add_rms_norm gated_rms_norm",
    ((4, 8, 64), (8,), (8,)): "group_norm instance_norm",
    ((4, 8, 64), (8,), (8,), (8,), (8,)): "batch_norm",
}
SHAPES: Final = {
    f"torch_{name}": shapes
    for shapes, names in _SHAPES.items()
    for name in names.split()
}
"""Friendly shapes of the tensor arguments, by kernel, where they are no usual ones."""


def shapes_of(kernel: Declared) -> tuple[Shape, ...]:
    """Return the friendly shapes of a kernel's tensor arguments."""
    usual = LONG_ROWS if kernel.operator.dim else SQUARE
    return SHAPES.get(kernel.name, (usual,) * len(kernel.operator.tensors))


_DTYPES: Final = {
    **{f"torch_conv{n}d_bfloat16": "bfloat16" for n in (1, 2, 3)},
    **{
        f"torch_conv_transpose{n}d_{dtype}": dtype
        for n in (1, 2)
        for dtype in ("float16", "bfloat16")
    },
    "torch_prod_float16": "float16",
    "torch_prod_bfloat16": "bfloat16",
}

for made in kernels("cpu", torch.__version__):
    bound = kernel(made.operator, name=made.name, **made.excused)(made.function)
    dtype = _DTYPES.get(made.name, "float32")
    globals()[made.name] = witness(*shapes_of(made), dtype=dtype, backends=("cpu",))(
        bound
    )
