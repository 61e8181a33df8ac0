"""True findings in torch, by name; each is expected where kernels declare honestly.

`DEFECTS.md` says what inputs show each, and what comes out.
"""

from functools import partial
from typing import Any, Final

from kfuzz.contracts.platform.table import Defect
from kfuzz.contracts.prose import known

_ATTENTION: Final = "torch_attention torch_attention_masked"
_LINEAR: Final = "torch_linear torch_linear_plain torch_linear_relu torch_linear_gelu"
_PRODUCTS: Final = (
    f"torch_matmul torch_bmm {_LINEAR} torch_attention_unfused torch_attention_lse "
    "torch_attention_varlen torch_attention_paged torch_grouped_matmul"
)
# By oneDNN where the processor has products of bfloat16.
_CONVOLUTIONS: Final = (
    "torch_conv2d_bfloat16 torch_conv1d_bfloat16 torch_conv3d_bfloat16 "
    "torch_conv_transpose1d_bfloat16 torch_conv_transpose2d_bfloat16 "
    "torch_causal_conv1d"
)


def _on(
    device: str,
    key: str,
    contract: str,
    kernels: str,
    processor: str = "",
    **excuse: Any,
) -> Defect:
    """Return what the page says of a defect, in kernels by name, as `Defect`."""
    return Defect(
        contract,
        tuple(kernels.split()),
        **known(key),
        excuse=tuple(excuse.items()),
        processor=processor,
        device=device,
    )


_on_cpu, _on_both, _on_cuda = (partial(_on, device) for device in ("cpu", "", "cuda"))
DEFECTS: Final = (
    _on_cpu(
        "weight_norm_without_rows",
        "K-LIV-01",
        "torch_weight_norm",
        shape_class="O >= 1",
    ),
    _on_cpu(
        "gelu_of_infinity",
        "C-EXC-01",
        "torch_gelu torch_geglu torch_linear_gelu",
        nonfinite="undefined",
    ),
    _on_cpu(
        "products_of_tiles",
        "C-EXC-01",
        _PRODUCTS,
        processor="AMX",
        nonfinite="undefined",
    ),
    _on_cpu(
        "products_of_an_odd_k",
        "C-EXC-01",
        _PRODUCTS,
        processor="AVX-512 without BF16",
        nonfinite="undefined",
    ),
    _on_cpu(
        "linear_of_distant_columns",
        "K-MEM-01",
        _LINEAR,
        processor="Intel AVX-512",
        layouts="inner_contiguous",
    ),
    _on_cpu(
        "batch_norm_of_strided_weights",
        "K-GRD-01",
        "torch_batch_norm.backward",
        layouts="contiguous",
    ),
    _on_cpu(
        "convolutions_beside_infinity", "C-EXC-01", _CONVOLUTIONS, nonfinite="undefined"
    ),
    _on_cpu(
        "conv3d_of_one_padded_element",
        "K-VAL-01",
        "torch_conv3d_bfloat16",
        shape_class="groups == 1 or padding < 2",
    ),
    _on_cpu(
        "conv3d_of_one_padded_element",
        "K-MEM-02",
        "torch_conv3d_bfloat16",
        shape_class="groups == 1 or padding < 2",
    ),
    _on_cpu(
        "conv2d_of_channels_innermost",
        "K-VAL-01",
        "torch_conv2d torch_conv2d_bfloat16",
        shape_class="groups == 1 or I == 1 or R == S or R > 1 and S > 1",
    ),
    _on_cpu(
        "conv2d_that_ends_its_process",
        "K-LIV-01",
        "torch_conv2d torch_conv2d_bfloat16 torch_conv1d torch_conv1d_bfloat16",
        shape_class="dilation == 1 or padding == 0",
    ),
    _on_cpu(
        "attention_without_a_number", "C-EXC-01", _ATTENTION, nonfinite="undefined"
    ),
    _on_cpu("attention_without_keys", "K-MEM-02", _ATTENTION, shape_class="T >= 1"),
    _on_cpu("erf_of_small_numbers", "C-PRC-02", "torch.erf"),
    _on_both("logsumexp_of_many_zeros", "C-PRC-02", "torch_logsumexp"),
    _on_both("l2_normalize_of_zeros", "C-EXC-01", "torch_l2_normalize"),
    _on_both(
        "take_along_dim_beyond",
        "C-EXC-02",
        "torch_take_along_dim",
        out_of_bounds="undefined",
    ),
    _on_cuda(
        "rms_norm_beside_infinity",
        "C-EXC-01",
        "torch_rms_norm torch_add_rms_norm torch_gated_rms_norm",
        nonfinite="undefined",
    ),
    _on_cuda("group_norm_of_equal_elements", "C-PRC-02", "torch_group_norm"),
    _on_cuda(
        "group_norm_without_channels",
        "K-LIV-01",
        "torch_group_norm",
        shape_class="C >= 1",
    ),
    _on_cuda("attention_of_unaligned_views", "K-LIV-01", _ATTENTION),
    _on_cuda("attention_of_odd_strides", "C-CMP-03", _ATTENTION, layouts="contiguous"),
    _on_cuda("grouped_conv2d_beside_infinity", "C-EXC-01", "torch_conv2d_bfloat16"),
    _on_cuda(
        "grouped_conv1d_beside_infinity",
        "C-EXC-01",
        "torch_conv1d torch_conv1d_bfloat16",
        nonfinite="undefined",
    ),
    _on_cuda(
        "grouped_conv_transpose2d_beside_infinity",
        "C-EXC-01",
        "torch_conv_transpose2d",
        nonfinite="undefined",
    ),
    _on_cuda(
        "order_of_negative_nan",
        "C-EXC-01",
        "torch_sort torch_sort_stable torch_topk",
        nonfinite="undefined",
    ),
    _on_cuda(
        "index_of_a_multiple_of_2_32",
        "C-EXC-02",
        "torch_embedding torch_index_select torch_index_add torch_index_add_float16 "
        "torch_index_add_bfloat16 torch_rope_positions",
        out_of_bounds="undefined",
    ),
)
