"""True findings in torch, by name; each is expected where kernels declare honestly.

Those of the CPU were seen on torch 2.13 and an x86 processor with AVX512_BF16, those of
CUDA on torch 2.11 and an H100; where no device is named the code is one for both.
"""

from typing import Final

from kfuzz.contracts.platform.table import Defect

_UNDEFINED: Final = (("nonfinite", "undefined"),)
_ATTENTION: Final = ("torch_attention", "torch_attention_masked")

DEFECTS: Final = (
    Defect(
        "C-EXC-01",
        ("torch_gelu", "torch_geglu", "torch_linear_gelu"),
        "gelu of +Inf in float32 or bfloat16 beside another element",
        "gelu([Inf, 0]) is [NaN, 0]; of one element alone, in float16, or without "
        "AVX-512 it is Inf. The others go through oneDNN",
        excuse=_UNDEFINED,
        device="cpu",
    ),
    Defect(
        "C-EXC-01",
        ("torch_conv2d_bfloat16",),
        "bfloat16 conv2d of one output channel with an infinity in x",
        "elements that do not meet the infinity are NaN: x of [1, 7, 3, 2], weight of "
        "[1, 7, 2, 1], dilation 2, x[0, 6, 2, 1] = Inf give y[0, 0, 0, 0] = NaN. "
        "oneDNN multiplies neighbours by the zeros that pad the weights",
        excuse=_UNDEFINED,
        device="cpu",
    ),
    Defect(
        "K-LIV-01",
        ("torch_conv2d", "torch_conv2d_bfloat16"),
        "conv2d with dilation, padding, a stride and weights in channels-last strides",
        "a segmentation fault: x of [2, 255, 2, 1], weight of [1, 255, 1, 1] with "
        "strides [255, 1, 255, 255], stride 2, padding 3, dilation 2; float32 and "
        "bfloat16",
        excuse=(("shape_class", "dilation == 1 or padding == 0"),),
        device="cpu",
    ),
    Defect(
        "C-EXC-01",
        _ATTENTION,
        "scaled_dot_product_attention with scores that are NaN, also as Inf * 0",
        "the maximum passes over NaN: a row of such scores is taken for a masked one, "
        "and is 0; without keys a query of Inf gives NaN, not 0",
        excuse=_UNDEFINED,
        device="cpu",
    ),
    Defect(
        "K-MEM-02",
        _ATTENTION,
        "float16 scaled_dot_product_attention without keys",
        "memory that nothing wrote is read: of q of [1, 4, 500, 64] and no key results "
        "are 0 or NaN, as memory held before",
        excuse=(("shape_class", "T >= 1"),),
        device="cpu",
    ),
    Defect(
        "C-PRC-02",
        ("torch.erf",),
        "erf of small bfloat16 numbers",
        "erf(1e-7) is 0 and erf(1e-6) 5.8 % too large in bfloat16, where float32 "
        "gives both; the vectorised function",
        device="cpu",
    ),
    Defect(
        "C-PRC-02",
        ("torch_logsumexp",),
        "logsumexp of 65,520 or more equal float16 numbers",
        "logsumexp of 65,520 zeros is Inf, not 11.09: the sum of exponentials is "
        "stored in float16",
    ),
    Defect(
        "C-EXC-01",
        ("torch_l2_normalize",),
        "normalize of a float16 row of zeros with its default eps",
        "0 / max(0, 1e-12) is NaN: 1e-12 is 0 in float16",
    ),
    Defect(
        "C-EXC-02",
        ("torch_take_along_dim",),
        "take_along_dim along a dimension of size 1",
        "take_along_dim([[5.]], [[1, 7]], -1) is [[5., 5.]]: the dimension is "
        "broadcast to the indices' before they are checked",
        excuse=(("out_of_bounds", "undefined"),),
    ),
    Defect(
        "C-EXC-01",
        ("torch_rms_norm", "torch_add_rms_norm"),
        "rms_norm of rows that hold an infinity, their length no multiple of 4",
        "finite elements of [Inf, 0] give NaN, not 0; at multiples of 4, where another "
        "kernel runs, 0 (aten/src/ATen/native/cuda/layer_norm_kernel.cu)",
        device="cuda",
    ),
    Defect(
        "C-PRC-02",
        ("torch_group_norm",),
        "float16 group_norm of groups of equal elements with an eps of 1e-12",
        "the root, 1e6, is stored in float16 as Inf, and Inf * 0 is NaN, not the bias",
        device="cuda",
    ),
    Defect(
        "K-LIV-01",
        ("torch_attention_masked",),
        "masked scaled_dot_product_attention of views not aligned to 16 bytes",
        "cudaErrorMisalignedAddress, after which the process can use the device no "
        "more; others are refused: query is not correctly aligned (strideM)",
        device="cuda",
    ),
)
