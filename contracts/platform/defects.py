"""True findings in torch, by name; each is expected where kernels declare honestly.

Those of the CPU were seen on torch 2.13 and an x86 processor with AVX512_BF16, those
that need AMX on torch 2.11, those of Intel's processors on torch 2.13, those of CUDA on
torch 2.11 and an H100 or H200; where no device is named the code is one for both.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from kfuzz.contracts.platform.table import Defect

_UNDEFINED: Final = (("nonfinite", "undefined"),)
_ATTENTION: Final = ("torch_attention", "torch_attention_masked")
_LINEAR: Final = (
    "torch_linear", "torch_linear_plain", "torch_linear_relu", "torch_linear_gelu",
)  # fmt: skip
_PRODUCTS: Final = (
    "torch_matmul", "torch_bmm", *_LINEAR, "torch_attention_unfused",
    "torch_attention_lse", "torch_attention_varlen", "torch_attention_paged",
    "torch_grouped_matmul",
)  # fmt: skip

# By oneDNN where the processor has products of bfloat16.
_CONVOLUTIONS: Final = (
    *(
        f"torch_conv{kind}_bfloat16"
        for kind in ("2d", "1d", "3d", "_transpose1d", "_transpose2d")
    ),
    "torch_causal_conv1d",
)

_OF_CPU: Final = (
    Defect(
        "K-LIV-01",
        ("torch_weight_norm",),
        "torch._weight_norm over all but the first dimension of v without rows",
        "v of [0, 3] ends the process with SIGFPE, a division by the number of rows; v "
        "of [3, 0] does not",
        excuse=(("shape_class", "O >= 1"),),
    ),
    Defect(
        "C-EXC-01",
        ("torch_gelu", "torch_geglu", "torch_linear_gelu"),
        "gelu of +Inf in float32 or bfloat16 beside another element",
        "gelu([Inf, 0]) is [NaN, 0]; of one element alone, in float16, or without "
        "AVX-512 it is Inf. The others go through oneDNN",
        excuse=_UNDEFINED,
    ),
    Defect(
        "C-EXC-01",
        _PRODUCTS,
        "bfloat16 products with NaN or an infinity on the left where K is no multiple "
        "of 32",
        "rows whose terms are all finite are NaN: a of [63, 33] and b of [33, 2], "
        "zeros but a[48, 15] = -Inf, give y[47, 0] = NaN. A tile of oneDNN's takes in "
        "the start of the next row and multiplies it by the zeros that pad b (src/cpu/"
        "x64/matmul/brgemm_matmul.cpp: extendable_k)",
        excuse=_UNDEFINED,
        processor="AMX",
    ),
    Defect(
        "C-EXC-01",
        _PRODUCTS,
        "bfloat16 products of an odd K with NaN or an infinity in the last column on "
        "the left",
        "ones of [55, 15] but a[3, 14] = Inf, times ones of [15, 5], give NaN in row "
        "3, not Inf. Without instructions for bfloat16 oneDNN takes terms in pairs, "
        "and multiplies the last one's neighbour by the zero that pads b; shown on any "
        "processor with AVX-512 under ONEDNN_MAX_CPU_ISA=AVX512_CORE",
        excuse=_UNDEFINED,
        processor="AVX-512 without BF16",
    ),
    Defect(
        "K-MEM-01",
        _LINEAR,
        "float32 linear of x whose columns lie 2^30 or more elements apart",
        "x of strides (1, 1073741825): elements elsewhere are read, as if the distance "
        "in bytes were taken modulo 2^32; on an Intel Xeon with AVX-512, not on AMD's "
        "processors, where MKL runs other code",
        excuse=(("layouts", "inner_contiguous"),),
        processor="Intel AVX-512",
    ),
    Defect(
        "K-GRD-01",
        ("torch_batch_norm.backward",),
        "gradients of batch_norm by given statistics, x with channels innermost, and "
        "the mean, the variance or the weight strided",
        "these are read as if they were contiguous: x of [2, 3, 4, 5] with channels "
        "last and a weight of [1, 2, 3] with stride 2 give another gradient of x "
        "(aten/src/ATen/native/cpu/batch_norm_kernel.cpp, "
        "batch_norm_cpu_backward_channels_last_impl)",
        excuse=(("layouts", "contiguous"),),
    ),
    Defect(
        "C-EXC-01",
        _CONVOLUTIONS,
        "bfloat16 convolution of one output channel, or in groups, with an infinity in "
        "x",
        "elements that do not meet the infinity are NaN: x of [1, 7, 3, 2], weight of "
        "[1, 7, 2, 1], dilation 2, x[0, 6, 2, 1] = Inf give y[0, 0, 0, 0] = NaN. "
        "oneDNN multiplies neighbours by the zeros that pad the weights",
        excuse=_UNDEFINED,
    ),
    *(
        Defect(
            contract,
            ("torch_conv3d_bfloat16",),
            "bfloat16 conv3d in groups of an odd number of channels below 16, x of one "
            "element in each direction, padding of two",
            "results follow uninitialized memory: x of [1, 6, 1, 1, 1] and weight of "
            "[2, 3, 3, 3, 3], integers, padding 2, 2 groups; float32 and float16 are "
            "right",
            excuse=(("shape_class", "groups == 1 or padding < 2"),),
        )
        for contract in ("K-VAL-01", "K-MEM-02")
    ),
    Defect(
        "K-VAL-01",
        ("torch_conv2d", "torch_conv2d_bfloat16"),
        "conv2d in groups, x in channels-last strides, weights with channels "
        "innermost, of height or width 1 and a stride of 1 there",
        "weights are read as if they were contiguous: x of [1, 4, 2, 2], weights "
        "[[[[1, 2]], [[3, 4]]], [[[5, 6]], [[7, 8]]]] with strides [4, 1, 1, 2], 2 "
        "groups, x[0, :, 0, 0] = 1: y[0, :, 0, 0] is [3, 11], not [4, 12]; float32 "
        "and bfloat16",
        excuse=(("shape_class", "groups == 1 or I == 1 or R == S or R > 1 and S > 1"),),
    ),
    Defect(
        "K-LIV-01",
        (
            "torch_conv2d",
            "torch_conv2d_bfloat16",
            "torch_conv1d",
            "torch_conv1d_bfloat16",
        ),
        "conv2d with dilation, padding, a stride and x or weights in channels-last "
        "strides",
        "a segmentation fault: x of [2, 255, 2, 1], weight of [1, 255, 1, 1] with "
        "strides [255, 1, 255, 255], stride 2, padding 3, dilation 2; so does x of "
        "[2, 1, 2, 1] with strides [2044, 1, 511, 511] beside contiguous weights of "
        "[1, 1, 2, 1], stride 4, padding 2, dilation 3; every format",
        excuse=(("shape_class", "dilation == 1 or padding == 0"),),
    ),
    Defect(
        "C-EXC-01",
        _ATTENTION,
        "scaled_dot_product_attention with scores that are NaN, also as Inf * 0",
        "the maximum passes over NaN: a row of such scores is taken for a masked one, "
        "and is 0; without keys a query of Inf gives NaN, not 0",
        excuse=_UNDEFINED,
    ),
    Defect(
        "K-MEM-02",
        _ATTENTION,
        "float16 scaled_dot_product_attention without keys",
        "memory that nothing wrote is read: of q of [1, 4, 500, 64] and no key results "
        "are 0 or NaN, as memory held before",
        excuse=(("shape_class", "T >= 1"),),
    ),
    Defect(
        "C-PRC-02",
        ("torch.erf",),
        "erf of small bfloat16 numbers",
        "erf(1e-7) is 0 and erf(1e-6) 5.8 % too large in bfloat16, where float32 "
        "gives both; the vectorised function",
    ),
)
_OF_BOTH: Final = (
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
)
_OF_CUDA: Final = (
    Defect(
        "C-EXC-01",
        ("torch_rms_norm", "torch_add_rms_norm", "torch_gated_rms_norm"),
        "rms_norm of rows that hold an infinity, their length no multiple of 4",
        "finite elements of [Inf, 0] give NaN, not 0; at multiples of 4, where another "
        "kernel runs, 0 (aten/src/ATen/native/cuda/layer_norm_kernel.cu)",
        excuse=_UNDEFINED,
    ),
    Defect(
        "C-PRC-02",
        ("torch_group_norm",),
        "float16 group_norm of groups of equal elements with an eps of 1e-12",
        "the root, 1e6, is stored in float16 as Inf, and Inf * 0 is NaN, not the bias",
    ),
    Defect(
        "K-LIV-01",
        ("torch_group_norm",),
        "group_norm of no channels",
        "x of [4, 0, 32] in 2 groups raises CUDA error: invalid argument: a launch of "
        "no blocks (aten/src/ATen/native/cuda/group_norm_kernel.cu, "
        "ComputeFusedParamsCUDAKernel)",
        excuse=(("shape_class", "C >= 1"),),
    ),
    Defect(
        "K-LIV-01",
        _ATTENTION,
        "float32 scaled_dot_product_attention of views not aligned to 16 bytes",
        "v of [1, 1, 1, 4] that starts 4 bytes on: cudaErrorMisalignedAddress, after "
        "which the process can use the device no more. Others are rejected, key is not "
        "correctly aligned (strideM), be it the stride of a dimension of one element: "
        "k of [1, 8, 1, 8] with strides [64, 8, 1, 1]. The conditions of aten/src/ATen/"
        "native/transformers/cuda/mem_eff_attention/kernel_forward.h (check_supported) "
        "are not among those by which the kernel is chosen, nor documented",
    ),
    Defect(
        "C-CMP-03",
        _ATTENTION,
        "16-bit scaled_dot_product_attention of views whose strides are no multiple "
        "of 8 elements",
        "other numbers of k are read: zeros of [1, 1, 2, 8] with strides [72000, 9000, "
        "9, 1] give NaN from memory beside them; q[..., 1, 5] = k[..., 1, 4] = "
        "v[..., 1, 7] = 1 alone give y[..., 1, 7] = 0.73, not 0.5. Limited to flash "
        "attention it faults, cudaErrorMisalignedAddress. Other views are reported in "
        "github.com/pytorch/pytorch/issues/112577",
        excuse=(("layouts", "contiguous"),),
    ),
    Defect(
        "C-EXC-01",
        ("torch_conv2d_bfloat16",),
        "bfloat16 conv2d in groups, weights in channels-last strides, with an infinity "
        "in x",
        "another group's elements are NaN: x of [1, 8, 5, 5], weight of [4, 4, 3, 3], "
        "padding 2, dilation 3, 2 groups, zeros but x[0, 4, 4, 4] = Inf give "
        "y[0, 0, 0, 0] = NaN",
    ),
    Defect(
        "C-EXC-01",
        ("torch_conv1d", "torch_conv1d_bfloat16"),
        "16-bit conv1d in groups with an infinity in x",
        "other groups' elements are NaN: x of [1, 32, 1], weight of [16, 4, 1], 8 "
        "groups, zeros but x[0, 31, 0] = Inf give 6 NaN from y[0, 8, 0] on, where a "
        "group has 2 elements",
        excuse=_UNDEFINED,
    ),
    Defect(
        "C-EXC-01",
        ("torch_conv_transpose2d",),
        "conv_transpose2d in groups with NaN or an infinity in x",
        "x of [5, 9, 8, 91], weight of [9, 1, 4, 5], 3 groups: a window of 20 elements "
        "of y[4, 0] is NaN where the sum is -2.7e38; gone without what is not finite",
        excuse=_UNDEFINED,
    ),
    Defect(
        "C-EXC-01",
        ("torch_sort", "torch_sort_stable", "torch_topk"),
        "16-bit data that hold NaN with a sign bit",
        "the NaN is the least number, not the greatest: sorted descending [-NaN, 0] is "
        "[0, NaN] in bfloat16; topk of 64 of 64 numbers of float16 puts it last. "
        "Float32 comes out in order",
        excuse=_UNDEFINED,
    ),
    Defect(
        "C-EXC-02",
        (
            "torch_embedding",
            "torch_index_select",
            "torch_index_add",
            "torch_index_add_float16",
            "torch_index_add_bfloat16",
            "torch_rope_positions",
        ),
        "embedding, index_select or index_add of an index that is a multiple of 2**32",
        "the index -2**63 is taken for 0: it is cut to 32 bits before it is checked "
        "(aten/src/ATen/native/cuda/Indexing.cu: IndexType srcIndex in "
        "indexSelectSmallIndex, which index_select and embedding share, and dstIndex "
        "in indexAddSmallIndex)",
        excuse=(("out_of_bounds", "undefined"),),
    ),
)


def _on(device: str, defects: tuple[Defect, ...]) -> Iterator[Defect]:
    return (replace(defect, device=device) for defect in defects)


DEFECTS: Final = (*_on("cpu", _OF_CPU), *_OF_BOTH, *_on("cuda", _OF_CUDA))
