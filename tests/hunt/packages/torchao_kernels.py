"""Triton kernels of torchao 0.18.0 as released.

torchao defines its kernels where it finds a GPU that Triton supports; in the
interpreter there is none, so that question is answered with yes. Modules below packages
that import what Triton 3.9 refuses (an autotuner's key that names no argument) are
loaded by their files. Quantized data follow from the scales, which are compared: the
largest magnitude of a block, at least 1e-12, to the largest float8.
"""

import importlib
from types import ModuleType

import torch
import torch.utils._triton

import kfuzz
from kfuzz import strategies as ks
from tests.hunt.bare import bare

PACKAGE = "torchao"
VERSION = "0.18.0"
NEEDS = ()

torch.utils._triton.has_triton = lambda: True
bare("torchao")


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"torchao.{name}")


blocks = _module("kernel.blockwise_quantization")
jagged = _module("prototype.moe_training.kernels.jagged_float8_scales")
permute = _module("prototype.moe_training.ep.kernels")
int8 = _module("prototype.quantized_training.int8_mm")
nocompile = _module("prototype.float8nocompile.kernels.fp8_dynamic_tensorwise")


def _largest(x: torch.Tensor) -> torch.Tensor:
    return x.abs().amax(-1)


def _blocks_of_rows(x: torch.Tensor) -> torch.Tensor:
    return _largest(x.unflatten(-1, (-1, 128))) / 448.0


def _square_blocks(x: torch.Tensor) -> torch.Tensor:
    tiles = x.unflatten(0, (-1, 16)).unflatten(-1, (-1, 16)).transpose(1, 2)
    return _largest(tiles.flatten(2)) / 448.0


kfuzz.kernel(
    kfuzz.Operator(
        "block_scales",
        inputs={"x": ks.tensors("M N")},
        oracle=_blocks_of_rows,
        results={"y": "float32"},
        shape_class="M >= 1 and N >= 128 and N % 128 == 0",
    ),
    layouts="contiguous",
    nonfinite="undefined",  # data with a NaN stay NaN, their scale does not
    name="torchao_act_quant",
)(lambda x: blocks.fp8_blockwise_act_quant(x)[1])
kfuzz.kernel(
    kfuzz.Operator(
        "block_signs",  # of powers of two and zeros, which float8 holds as they are
        inputs={"x": ks.tensors("M N", dtype="int8", within=(-1, 1))},
        oracle=lambda x: x.double(),
        results={"y": "float32"},
        shape_class="M >= 1 and N >= 128 and N % 128 == 0",
    ),
    layouts="contiguous",
    name="torchao_act_quant_of_signs",
)(lambda x: blocks.fp8_blockwise_act_quant(x.float())[0].float() / 448)
kfuzz.kernel(
    kfuzz.Operator(
        "square_block_scales",
        inputs={"x": ks.tensors("M N")},
        oracle=_square_blocks,
        results={"y": "float32"},
        shape_class="M >= 16 and N >= 16 and M % 16 == 0 and N % 16 == 0",
    ),
    layouts="contiguous",
    nonfinite="undefined",
    name="torchao_weight_quant",
)(lambda x: blocks.fp8_blockwise_weight_quant(x, 16)[1])


def _wide(scale: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    wide = scale.repeat_interleave(128, 0).repeat_interleave(128, 1)
    return wide[: like.shape[0], : like.shape[1]]


kfuzz.kernel(
    kfuzz.Operator(
        "block_dequantize",
        inputs={
            "x": ks.tensors("M N", dtype="float8_e4m3fn"),
            "scale": ks.tensors("P Q", dtype="float32"),
        },
        oracle=lambda x, scale: x * _wide(scale, x),
        results={"y": "float32"},
        shape_class="M >= 1 and N >= 1 and P == (M + 127) // 128"
        " and Q == (N + 127) // 128",
    ),
    layouts="contiguous",
    name="torchao_weight_dequant",
)(lambda x, scale: blocks.fp8_blockwise_weight_dequant(x, scale))


def _scale(x: torch.Tensor) -> torch.Tensor:
    return 448.0 / x.abs().amax(-1).clamp(min=1e-12)


def _rows_of_groups(x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    cuts = ends[1:-1].tolist()
    parts = x.tensor_split(cuts, dim=1)
    return torch.cat([_scale(torch.nn.functional.pad(p, (0, 1))) for p in parts])


rows = {"x": ks.tensors("M K"), "ends": ks.offsets("S", of="K")}
kfuzz.kernel(
    kfuzz.Operator(
        "row_scales_of_groups",
        inputs=rows,
        oracle=_rows_of_groups,
        results={"y": "float32"},
        shape_class="S >= 2 and M >= 1 and K >= 1",
    ),
    layouts="contiguous",
    index_dtypes={"int32"},
    nonfinite="undefined",
    name="torchao_jagged_rowwise_scales",
)(lambda x, ends: jagged.triton_fp8_per_group_rowwise_scales(x, ends[1:])[1])
columns = {"x": ks.tensors("K N"), "ends": ks.offsets("S", of="K")}
kfuzz.kernel(
    kfuzz.Operator(
        "column_scales_of_groups",
        inputs=columns,
        oracle=lambda x, ends: _rows_of_groups(x.T, ends),
        results={"y": "float32"},
        shape_class="S >= 2 and N >= 1 and K >= 1",
    ),
    layouts="contiguous",
    index_dtypes={"int32"},
    nonfinite="undefined",
    name="torchao_jagged_colwise_scales",
)(lambda x, ends: jagged.triton_fp8_per_group_colwise_scales(x, ends[1:])[1])
kfuzz.kernel(
    kfuzz.Operator(
        "column_scales_of_two",
        inputs={**columns, "z": ks.tensors("K L")},
        oracle=lambda x, ends, z: torch.cat(
            (_rows_of_groups(x.T, ends), _rows_of_groups(z.T, ends))
        ),
        results={"y": "float32"},
        shape_class="S >= 2 and N >= 1 and L >= 1 and K >= 1",
    ),
    layouts="contiguous",
    index_dtypes={"int32"},
    nonfinite="undefined",
    name="torchao_jagged_colwise_dual",
)(
    lambda x, ends, z: torch.cat(
        jagged.triton_fp8_per_group_colwise_scales_dual(x, z, ends[1:])[1::2]
    )
)
kfuzz.kernel(
    kfuzz.Operator(
        "scaled_int8_mm",
        inputs={
            "a": ks.tensors("M K", dtype="int8", within=(-127, 127)),
            "b": ks.tensors("K N", dtype="int8", within=(-127, 127)),
            "row": ks.tensors("M", dtype="float32"),
            "col": ks.tensors("N", dtype="float32"),
        },
        oracle=lambda a, b, row, col: (a @ b).double() * row[:, None] * col,
        results={"y": "float32"},
        shape_class="M >= 1 and N >= 1 and K >= 1 and K <= 512",
    ),
    name="torchao_scaled_int8_mm",
)(
    lambda a, b, row, col: int8.scaled_int8_mm_cuda(
        a, b, row.contiguous(), col.contiguous()
    )
)
tensors = kfuzz.Operator(
    "tensor_scale",
    inputs={"x": ks.tensors("M N")},
    oracle=lambda x: _scale(x.flatten()),
    results={"y": "float32"},
    shape_class="M >= 1 and N >= 1",
)
scaled = {"layouts": "contiguous", "nonfinite": "undefined"}
kfuzz.kernel(tensors, name="torchao_scale_atomic_max", **scaled)(
    lambda x: _scaled(x, "atomic_max")
)
kfuzz.kernel(tensors, name="torchao_scale_reduction", **scaled)(
    lambda x: _scaled(x, "reduction")
)


def _scaled(x: torch.Tensor, algorithm: str) -> torch.Tensor:
    by = nocompile.KernelAlgorithm(algorithm)
    wanted = nocompile.FP8_DTYPE_MAP[x.dtype]
    return nocompile._hp_tensor_to_scale(x, wanted, 448.0, by)


def _places(counts: torch.Tensor) -> torch.Tensor:
    starts = counts.cumsum(0) - counts
    return torch.cat(
        [
            torch.cat((torch.arange(s, s + n), torch.full((-n % 8,), -1)))
            for s, n in zip(starts.tolist(), counts.clamp(min=1).tolist(), strict=True)
        ]
    )


kfuzz.kernel(
    kfuzz.Operator(
        "permute_indices",
        inputs={"counts": ks.tensors("E", dtype="int64", within=(1, 20))},
        oracle=_places,
        results={"y": "int32"},
        shape_class="E >= 1 and E <= 8",
    ),
    name="torchao_permute_indices",
)(lambda counts: _permuted(counts.contiguous()))


def _permuted(counts: torch.Tensor) -> torch.Tensor:
    found, sizes, _ = permute.generate_permute_indices(
        counts, len(counts), 1, int(counts.sum()) + 8 * len(counts), 8
    )
    return found[: int(sizes.sum())]
