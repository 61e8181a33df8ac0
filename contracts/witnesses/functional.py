"""Which witnesses there are, and the plain functional test that all of them pass."""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from kfuzz.contracts.binding import REGISTRY, BoundKernel
from kfuzz.evaluation.keywords import as_argument
from kfuzz.execution.interpreter.watch import watch
from kfuzz.strategies.parameters import IndexParameter, TensorParameter

# The plain functional test: torch.allclose, rtol = atol, five inputs.
TOLERANCE: Final = 1e-2
INPUTS: Final = 5


@dataclass(frozen=True)
class Witness:
    """One implementation that calibrates a contract.

    Attributes:
        kernel: the bound kernel's name.
        module: name of its module in this package.
        contract: class under which it is falsified, "" for a conforming one.
        shapes: friendly shape of each tensor argument.
        dtype: data type of the functional test.
        max_elements: most elements, over all tensors, that a minimal case has.
        max_nonzero: most of them that are not 0, NaN counted.
        minimal: what a minimal case looks like.
        backends: where the fault shows.
    """

    kernel: str
    module: str
    contract: str
    shapes: tuple[tuple[int, ...], ...]
    dtype: str = "float32"
    max_elements: int = 0
    max_nonzero: int = 0
    minimal: str = ""
    backends: tuple[str, ...] = ("interpret", "cuda")

    @property
    def conforming(self) -> bool:
        """Whether no case falsifies it."""
        return not self.contract

    def load(self) -> BoundKernel:
        """Import the witness's module and return its bound kernel."""
        name = f"{__package__}.{self.module}"
        importlib.import_module(name)
        return next(b for b in REGISTRY[name] if b.name == self.kernel)


_ROWS: Final = ((16, 1024),)
_SQUARE: Final = ((64, 64),)
_MATMUL: Final = ((64, 64), (64, 64))
_LAYER_NORM: Final = ((16, 1024), (1024,), (1024,))
_BATCHED: Final = ((4, 16, 16), (4, 16, 16))
_LINEAR: Final = ((64, 64), (64, 64), (64,))
# Few terms: bfloat16 results of 1 to 2 must keep an absolute 1e-2.
_CONV: Final = ((2, 2, 8, 8), (4, 2, 1, 1), (4,))
_ATTENTION: Final = ((2, 2, 16, 16),) * 3
# Few factors: the product of many normal numbers vanishes.
_FEW: Final = ((64, 4),)
_REDUCTIONS: Final = (
    "mean", "amin", "argmax", "var", "logsumexp", "cumsum", "log_softmax",
    "l2_normalize",
)  # fmt: skip
_EMBEDDING: Final = ((512, 64), (128,))
_GATHER: Final = ((64, 256), (64, 32))
_CROSS_ENTROPY: Final = ((64, 512), (64,))
_GROUP_NORM: Final = ((4, 8, 64), (8,), (8,))
_INTERPRETED: Final = ("interpret",)
# Twins of the implementations of torch below, by module and friendly shapes.
_TRITON: Final = (
    (
        "elementwise", _SQUARE,
        (
            "clamp", "leaky_relu", "elu", "sigmoid", "tanh", "exp", "log", "softplus",
            "gelu", "gelu_tanh", "silu",
        ),
    ),
    ("elementwise", _MATMUL, ("add", "mul", "swiglu", "geglu")),
    ("moves", _SQUARE, ("copy", "transpose")),
    ("reductions", _ROWS, ("mean", "var", "logsumexp", "argmax", "cumsum")),
    ("normalisations", _ROWS, ("log_softmax", "l2_normalize")),
    ("normalisations", _LAYER_NORM[:2], ("rms_norm",)),
    ("normalisations", (_LAYER_NORM[0], *_LAYER_NORM[:2]), ("add_rms_norm",)),
    ("normalisations", _GROUP_NORM, ("group_norm",)),
    ("products", _BATCHED, ("bmm",)),
    ("products", _LINEAR, ("linear", "linear_relu", "linear_gelu")),
    ("attention", (*_ATTENTION, (16, 16)), ("attention",)),
    ("classes.configured", _ROWS, ("softmax_autotuned", "softmax_blocks")),
    ("classes.configured", _SQUARE, ("leaky_relu_in_place",)),
    ("classes.batched", _ROWS, ("sum_batch_invariant",)),
)  # fmt: skip


def _conforming(
    kernel: str, module: str, shapes: tuple[tuple[int, ...], ...]
) -> tuple[Witness, Witness]:
    """Return the correct twin and torch's implementation."""
    return _triton(kernel, module, shapes), _torch(kernel, shapes)


def _torch(
    kernel: str, shapes: tuple[tuple[int, ...], ...], dtype: str = "float32"
) -> Witness:
    """Return torch's implementation alone."""
    return Witness(f"torch_{kernel}", "torch_ops", "", shapes, dtype)


def _triton(kernel: str, module: str, shapes: tuple[tuple[int, ...], ...]) -> Witness:
    """Return the correct twin alone."""
    return Witness(f"triton_{kernel}", module, "", shapes)


WITNESSES: Final[dict[str, Witness]] = {
    w.kernel: w
    for w in (
        *_conforming("softmax", "softmax", _ROWS),
        *_conforming("sum", "sum", _ROWS),
        *_conforming("amax", "amax", _ROWS),
        *_conforming("layer_norm", "layer_norm", _LAYER_NORM),
        *_conforming("matmul", "matmul", _MATMUL),
        *_conforming("relu", "relu", _SQUARE),
        *_conforming("embedding", "embedding", _EMBEDDING),
        *_conforming("gather", "gather", _GATHER),
        *_conforming("cross_entropy", "cross_entropy", _CROSS_ENTROPY),
        *(
            _triton(name, module, shapes)
            for module, shapes, names in _TRITON
            for name in names
        ),
        # Sums of one term: no rounded 8-bit sum lies within 1e-2.
        *(
            Witness(f"triton_{name}_float8", "float8", "", (shape,), "float8_e5m2")
            for name, shape in (
                ("relu", (64, 64)), ("sum", (64, 1)), ("amax", (16, 1024))
            )
        ),
        Witness(
            "embedding_wraps_index", "embedding", "C-EXC-02", _EMBEDDING,
            max_elements=2, max_nonzero=1,
            minimal="a table of one element, the index 1 or -1",
        ),
        Witness(
            "cross_entropy_padded_label", "cross_entropy", "C-EXC-02", _CROSS_ENTROPY,
            max_elements=4, max_nonzero=1,
            minimal="one row, width 3: the label 3 lies in the padded column",
        ),
        *(
            Witness(f"torch_{name}", "torch_ops", "", _SQUARE)
            for name in (
                "copy", "clamp", "leaky_relu", "elu", "sigmoid", "tanh", "exp", "log",
                "softplus", "gelu", "gelu_tanh", "silu", "transpose",
            )
        ),
        *(
            Witness(f"torch_{name}", "torch_ops", "", _MATMUL)
            for name in ("add", "mul", "swiglu", "geglu")
        ),
        *(_torch(kernel, _ROWS) for kernel in _REDUCTIONS),
        _torch("bmm", _BATCHED),
        *(_torch(name, _LINEAR) for name in ("linear", "linear_relu", "linear_gelu")),
        _torch("linear_plain", _LINEAR[:2]),
        _torch("conv2d", _CONV),
        _torch("conv2d_bfloat16", _CONV, "bfloat16"),
        _torch("attention", _ATTENTION),
        *(
            _torch(name, (*_ATTENTION, (16, 16)))
            for name in ("attention_masked", "attention_unfused")
        ),
        _torch("take_along_dim", _GATHER),
        _torch("index_select", _EMBEDDING),
        _torch("scatter_add", (*_GATHER, _GATHER[1])),
        _torch("index_add", (*_EMBEDDING, (128, 64))),
        *(_torch(name, _SQUARE) for name in ("topk", "sort", "sort_stable")),
        _torch("where", (*_SQUARE, *_SQUARE, *_SQUARE)),
        _torch("cast", _SQUARE),
        *(_torch(f"quantize_{code}", _SQUARE) for code in ("int8", "fp8")),
        *(_torch(f"dequantize_{code}", (*_SQUARE, (64,))) for code in ("int8", "fp8")),
        *(_torch(f"cross_entropy_{kind}", _CROSS_ENTROPY) for kind in ("sum", "none")),
        _torch("rope", ((2, 8, 4, 16), (8, 16), (8, 16))),
        _torch("rope_complex", ((2, 8, 4, 16), (8, 8), (8, 8))),
        _torch("prod", _FEW),
        _torch("prod_float16", _FEW, "float16"),
        _torch("prod_bfloat16", _FEW, "bfloat16"),
        _torch("rms_norm", _LAYER_NORM[:2]),
        _torch("add_rms_norm", (_LAYER_NORM[0], *_LAYER_NORM[:2])),
        _torch("group_norm", _GROUP_NORM),
        _torch("batch_norm", ((4, 8, 64), *[(8,)] * 4)),
        Witness(
            "gelu_by_tanh", "elementwise", "C-PRC-01", _SQUARE,
            max_elements=1, max_nonzero=1,
            minimal="one element between 0.1 and 4 of either sign",
        ),
        Witness(
            "rms_norm_eps_outside", "normalisations", "C-PRC-01", _LAYER_NORM[:2],
            max_elements=2, max_nonzero=2,
            minimal="one small element and its weight",
        ),
        Witness(
            "argmax_last_of_equals", "reductions", "K-VAL-01", _ROWS,
            max_elements=2, max_nonzero=0,
            minimal="two equal elements",
        ),
        Witness(
            "softmax_tail_zero", "softmax", "C-CMP-03", _ROWS,
            max_elements=3, max_nonzero=3,
            minimal="one row, width 3: the first width that a block pads",
        ),
        Witness(
            "softmax_no_max", "softmax", "C-PRC-02", _ROWS,
            max_elements=1, max_nonzero=1,
            minimal="one element whose exp overflows",
        ),
        Witness(
            "softmax_falls_back", "classes.fallback", "K-OWN-01", _ROWS,
            max_elements=3, max_nonzero=0,
            minimal="one row, width 3, any values: the first width without a tile",
        ),
        # Short rows: a 16-bit accumulator passes allclose only where little is
        # accumulated.
        Witness(
            "sum_half_accumulator", "sum", "C-PRC-01", ((16, 16),), "float16",
            max_elements=257, max_nonzero=3,
            minimal="one row one longer than a block; 2048 swallows a 1 twice",
        ),
        Witness(
            "sum_drop_tail", "sum", "C-CMP-03", _ROWS,
            max_elements=257, max_nonzero=1,
            minimal="one row one longer than a block, only its last element set",
        ),
        Witness(
            "sum_bfloat16_accumulator", "sum", "C-PRC-01", ((16, 2),), "bfloat16",
            max_elements=6, max_nonzero=6,
            minimal="three elements: 256 swallows a 1 twice",
        ),
        Witness(
            "sum_rows_unwritten", "sum", "K-MEM-02", _ROWS,
            max_elements=1, max_nonzero=0,
            minimal="one element, any value: fewer rows than a program takes",
        ),
        Witness(
            "sum_random_order", "sum", "K-REF-01", _ROWS,
            max_elements=8, max_nonzero=8,
            minimal="one row, a few values whose rounded sum depends on their order",
        ),
        Witness(
            "amax_stale_partials", "classes.memory", "K-MEM-02", _ROWS,
            max_elements=1, max_nonzero=0,
            minimal="one element, any value: one chunk of four is made",
        ),
        Witness(
            "amax_zero_identity", "amax", "C-CMP-03", _ROWS,
            max_elements=3, max_nonzero=3,
            minimal="one row, width 3, all negative",
        ),
        Witness(
            "amax_nan_swallowed", "amax", "C-EXC-01", _ROWS,
            max_elements=1, max_nonzero=1,
            minimal="one element, a NaN",
        ),
        Witness(
            "layer_norm_padded_variance", "layer_norm", "C-CMP-03", _LAYER_NORM,
            max_elements=9, max_nonzero=2,
            minimal="one row, width 3: one element of x and its weight set",
        ),
        Witness(
            "layer_norm_one_pass", "layer_norm", "C-PRC-02", _LAYER_NORM,
            max_elements=21, max_nonzero=7,
            minimal="one row, width 2 or 3: large neighbours and one weight; up to 7 "
            "equal elements where the variance comes out negative",
        ),
        Witness(
            "matmul_half_accumulator", "matmul", "C-PRC-01", _MATMUL, "float16",
            max_elements=34, max_nonzero=8,
            minimal="1 x 17 times 17 x 1, one longer than a tile: three or four "
            "products",
        ),
        Witness(
            "matmul_drop_tail", "matmul", "C-CMP-03", _MATMUL,
            max_elements=2, max_nonzero=2,
            minimal="1 x 1 times 1 x 1",
        ),
        Witness(
            "relu_ignores_strides", "relu", "C-CMP-03", _SQUARE,
            max_elements=4, max_nonzero=1,
            minimal="a transposed 2 x 2 with one element off the diagonal",
        ),
        Witness(
            "relu_last_tile_unwritten", "relu", "K-MEM-02", _SQUARE,
            max_elements=1, max_nonzero=0,
            minimal="one element, any value",
        ),
        Witness(
            "relu_static_buffer", "classes.memory", "K-MEM-04", _SQUARE,
            max_elements=1, max_nonzero=0,
            minimal="one element, any value",
        ),
        Witness(
            "relu_memo_by_pointer", "classes.memory", "K-REF-01", _SQUARE,
            max_elements=1, max_nonzero=1,
            minimal="one element, any value but 0",
        ),
        Witness("mul_flushes", "classes.subnormals", "", _MATMUL),
        Witness("matmul_float64", "classes.changed_data", "", _MATMUL),
        Witness("amax_in_full", "classes.changed_data", "", _ROWS),
        Witness(
            "relu_flushes", "classes.subnormals", "C-PRC-03", _SQUARE,
            max_elements=1, max_nonzero=1,
            minimal="one positive subnormal number",
        ),
        Witness(
            "mul_flushes_arguments_only", "classes.subnormals", "C-PRC-03", _MATMUL,
            max_elements=2, max_nonzero=2,
            minimal="two normal numbers whose product is none",
        ),
        Witness(
            "log_by_exponent_bits", "classes.subnormals", "C-PRC-03", _SQUARE,
            max_elements=1, max_nonzero=1,
            minimal="one positive subnormal number",
        ),
        Witness(
            "matmul_within_half_range", "classes.changed_data", "C-PRC-04", _MATMUL,
            max_elements=6, max_nonzero=6,
            minimal="1 x 2 times 2 x 1, or 3: products whose sum rounds",
        ),
        Witness(
            "amax_short_if_falling", "classes.changed_data", "C-ORD-01", _ROWS,
            max_elements=2, max_nonzero=2,
            minimal="two elements, the last one greater and of more than 8 bits",
        ),
        Witness("torch_relu_own_workspace", "classes.workspace", "", _SQUARE),
        Witness(
            "relu_shared_workspace", "classes.workspace", "C-ORD-03", _SQUARE,
            max_elements=1, max_nonzero=1, backends=("cpu",),
            minimal="one element, any value but 0",
        ),
        Witness(
            "sum_split_by_rows", "classes.batched", "C-ORD-02", _ROWS,
            max_elements=24, max_nonzero=6,
            minimal="four rows of a few, one sum rounding otherwise in halves",
        ),
        *(
            Witness(
                kernel, "classes.configured", "C-CMP-02", _ROWS,
                max_elements=1, max_nonzero=1, backends=backends,
                minimal="one element: 255 lanes beside it count",
            )
            for kernel, backends in (
                ("softmax_unmasked_config", ("interpret", "cuda")),
                ("softmax_unmasked_block", ("interpret", "cuda")),
            )
        ),
        Witness(
            "leaky_relu_unrestored", "classes.configured", "C-CMP-02", _SQUARE,
            max_elements=1, max_nonzero=1,
            minimal="one negative element",
        ),
        Witness(
            "relu_clears_its_buffer", "classes.turns", "", _SQUARE, backends=("cuda",),
        ),
        Witness(
            "relu_clears_the_next_buffer", "classes.turns", "K-REF-01", _SQUARE,
            max_elements=1, max_nonzero=1, backends=("cuda",),
            minimal="one negative element",
        ),
        Witness(
            "linear_relu_saturates", "products", "C-CMP-01", _LINEAR,
            max_elements=3, max_nonzero=2,
            minimal="one bias above 64, or one product",
        ),
        Witness(
            "relu_native_over_read", "native", "K-MEM-01", _SQUARE,
            max_elements=4, max_nonzero=0, backends=("cpu",),
            minimal="a multiple of 16 bytes, so that a page can follow: four elements",
        ),
        Witness(
            "relu_native_under_read", "native", "K-MEM-01", _SQUARE,
            max_elements=1, max_nonzero=0, backends=("cpu",),
            minimal="one element, any value",
        ),
        Witness(
            "relu_overwrites_input", "relu", "K-MEM-03", _SQUARE,
            max_elements=1, max_nonzero=1,
            minimal="one negative element",
        ),
        Witness(
            "relu_wrong_dtype", "relu", "K-MET-01", _SQUARE,
            max_elements=1, max_nonzero=0,
            minimal="one 16-bit element, any value",
        ),
        Witness(
            "relu_one_shape", "relu", "C-CMP-03", _SQUARE,
            max_elements=1, max_nonzero=1,
            minimal="one positive element",
        ),
        Witness(
            "relu_tail_store_unmasked", "classes.reach", "K-MEM-01", _SQUARE,
            max_elements=1, max_nonzero=0,
            minimal="one element, any value",
        ),
        *(
            Witness(
                kernel, "classes.reach", "K-MEM-01", _SQUARE,
                max_elements=1, max_nonzero=0, backends=_INTERPRETED,
                minimal="one element, any value",
            )
            for kernel in (
                "relu_tail_load_unmasked",
                "relu_reads_one_past",
                "relu_reads_one_before",
            )
        ),
        Witness(
            "sum_takes_zero_for_unset", "classes.reach", "K-MEM-01", _ROWS,
            max_elements=2, max_nonzero=0, backends=_INTERPRETED,
            minimal="two elements that share memory, any value",
        ),
        Witness(
            "sum_ignores_column_stride", "classes.reach", "C-CMP-03", _ROWS,
            max_elements=4, max_nonzero=1,
            minimal="a 2 x 2 summed over its rows, one element set",
        ),
        Witness(
            "amax_last_chunk_wins", "classes.reach", "C-ORD-02", ((16, 16),),
            max_elements=17, max_nonzero=1, backends=_INTERPRETED,
            minimal="one row one longer than a chunk: two different maxima",
        ),
        Witness(
            "relu_offsets_overflow", "classes.reach", "K-MEM-01", _SQUARE,
            max_elements=3, max_nonzero=0, backends=_INTERPRETED,
            minimal="three elements 2^30 apart, any values",
        ),
        Witness(
            "relu_misaligned_pairs", "relu", "K-LIV-01", _SQUARE,
            max_elements=2, max_nonzero=0, backends=("cuda",),
            minimal="two elements that start at an odd one of their storage",
        ),
        *(
            Witness(
                kernel, "relu", "K-LIV-01", _SQUARE,
                max_elements=3, max_nonzero=0,
                minimal="three elements, any values",
            )
            for kernel in ("relu_segfaults", "relu_aborts", "relu_hangs")
        ),
    )
}  # fmt: skip


def passes_functional(
    kernel: BoundKernel, *, device: str = "cpu", witness: Witness | None = None
) -> bool:
    """Whether a witness passes the test that people write for a kernel.

    `torch.allclose` with rtol = atol = 1e-2 against torch in float64, on five
    random inputs at its one friendly shape: normal, of integers uniform.

    Args:
        kernel: one of `WITNESSES`, by name, or that of `witness`.
        device: where it runs; Triton kernels need a GPU or the interpreter.
        witness: what says at which shapes and in which dtype.
    """
    witness, operator = witness or WITNESSES[kernel.name], kernel.operator
    dtype = getattr(torch, witness.dtype)
    scalars = {name: p.default for name, p in operator.scalars.items()}
    taken = {name: as_argument(scalars[name]) for name in kernel.arguments.scalars}
    parameters = [operator.tensors[name] for name in kernel.arguments.tensors]
    sizes = {
        axis: n
        for p, shape in zip(parameters, witness.shapes, strict=True)
        for axis, n in zip(p.names, shape[len(shape) - len(p.names) :], strict=True)
    }
    for seed in range(INPUTS):
        random = torch.Generator().manual_seed(seed)
        inputs = [
            _drawn(p, shape, dtype, sizes, random).to(device)
            for p, shape in zip(parameters, witness.shapes, strict=True)
        ]
        for i, parameter in enumerate(parameters):
            if parameter.role == "variance":
                inputs[i] = inputs[i].abs()
        exact = [
            x if x.dtype is torch.bool or isinstance(p, IndexParameter) else x.double()
            for p, x in zip(parameters, inputs, strict=True)
        ]
        expected = operator.oracle(*exact, **scalars)
        # Where Triton interprets, with the bits of compiled Triton. Each of several
        # configurations takes its turn.
        own = kernel.declaration.config(seed)
        if isinstance(expected, Tensor):
            expected = (expected,)
        given = [torch.empty_like(y, dtype=dtype) for y in expected]
        given = given[: len(kernel.arguments.destinations)]
        with watch(config=seed):
            returned = kernel.on(*inputs, *given, **taken, **own)
        if given:
            returned = given
        elif isinstance(returned, Tensor):
            returned = (returned,)
        if not all(map(_close, returned, expected)):
            return False
    return True


def _drawn(
    parameter: TensorParameter,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    sizes: Mapping[str, int],
    random: torch.Generator,
) -> Tensor:
    """Return an ordinary argument: normal, uniform where it holds integers."""
    own = getattr(torch, parameter.dtype) if parameter.dtype else dtype
    if isinstance(parameter, IndexParameter):
        return torch.randint(sizes[parameter.below], shape, generator=random)
    if parameter.kind == "float":
        return torch.randn(shape, generator=random).to(own)
    least, most = (0, 1) if own is torch.bool else (-100, 100)
    return torch.randint(least, most + 1, shape, generator=random).to(own)


def _close(y: Tensor, wanted: Tensor) -> bool:
    """Whether a result passes; integers must be equal."""
    tolerance = TOLERANCE if wanted.is_floating_point() else 0.0
    y, wanted = y.to(torch.float64), wanted.to(torch.float64)
    return y.shape == wanted.shape and torch.allclose(
        y, wanted, rtol=tolerance, atol=tolerance, equal_nan=True
    )
