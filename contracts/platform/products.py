"""Torch's matrix products, linear layers and convolutions, with their flags.

On CUDA three flags say how they compute, and each default is declared here:
`torch.backends.cuda.matmul.allow_tf32` (off), `torch.backends.cudnn.allow_tf32` (on),
`torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction` and its like for
bfloat16 (on); see torch's notes on CUDA semantics and numerical accuracy.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional

from kfuzz.contracts import operators as ops
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.operators.quantization import MIDDLE
from kfuzz.contracts.platform.pointwise import FAST_ERF
from kfuzz.contracts.platform.table import (
    SHORT,
    Claim,
    as_written,
    implements,
    narrowing,
    stored,
)
from kfuzz.core.dtypes import FLOAT8

# Parts of one sum that cuBLAS made at most, of 131,043 terms, on an H100 (torch 2.11):
# tests/benchmarks/split_k.py. So many in bfloat16 leave long sums undecided.
PARTS: Final = 256
REDUCED: Final = (
    "docs/source/notes/cuda.rst, reduced precision reduction: by default parts of a "
    "sum may be stored in the data's format (aten/src/ATen/cuda/CUDABlas.cpp leaves "
    "CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE and _INPLACE in the mask); number of parts "
    "measured by tests/benchmarks/split_k.py"
)
ANY_SUBNORMALS: Final = Claim(
    "subnormals", "any",
    "measured on torch 2.13 with AVX512_BF16: oneDNN's products of bfloat16 flush "
    "subnormal numbers, small ones of torch's own keep them",
    device="cpu",
)  # fmt: skip
BIAS_LAST: Final = stored(
    "aten/src/ATen/native/Linear.cpp: input that is strided or has no batch is "
    "multiplied, stored, and the bias added to that",
)


def product(
    operator: Operator, *claims: Claim, name: str = ""
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a kernel whose sums cuBLAS makes on CUDA, of stored parts in 16 bits."""
    return narrowing(
        operator,
        *claims,
        ANY_SUBNORMALS,
        accumulator=f"splitk({PARTS}, {{dtype}})",
        source=REDUCED,
        device="cuda",
        name=name,
    )


@contextmanager
def setting(owner: Any, **flags: bool) -> Iterator[None]:
    """Set flags of a module of `torch.backends` and restore them."""
    before = {name: getattr(owner, name) for name in flags}

    def put(values: dict[str, bool]) -> None:
        with warnings.catch_warnings():
            # The flags have newer names, which may not be mixed with these.
            warnings.simplefilter("ignore", UserWarning)
            for name, value in values.items():
                setattr(owner, name, value)

    put(flags)
    try:
        yield
    finally:
        put(before)


product(ops.matmul, name="torch_matmul")(torch.matmul)
product(ops.bmm, name="torch_bmm")(torch.bmm)


@implements(
    ops.matmul,
    Claim("dtypes", "float32", "the flag concerns float32"),
    Claim("accumulator", "tf32", "docs/source/notes/cuda.rst, TensorFloat-32"),
    devices=("cuda",),
)
def torch_matmul_tf32(a: Tensor, b: Tensor) -> Tensor:
    """Multiply with TF32 allowed."""
    with setting(torch.backends.cuda.matmul, allow_tf32=True):
        return torch.matmul(a, b)


@implements(
    ops.matmul,
    Claim("dtypes", SHORT, "the flags concern 16-bit formats"),
    devices=("cuda",),
)
def torch_matmul_full_reduction(a: Tensor, b: Tensor) -> Tensor:
    """Multiply with every part of a sum kept in float32."""
    with setting(
        torch.backends.cuda.matmul,
        allow_fp16_reduced_precision_reduction=False,
        allow_bf16_reduced_precision_reduction=False,
    ):
        return torch.matmul(a, b)


product(ops.linear, BIAS_LAST, name="torch_linear")(functional.linear)


@product(ops.linear)
def torch_linear_plain(x: Tensor, weight: Tensor) -> Tensor:
    """Apply `torch.nn.functional.linear` without a bias."""
    return functional.linear(x, weight)


@product(ops.linear_relu, BIAS_LAST)
def torch_linear_relu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Apply torch's linear and relu."""
    return torch.relu(functional.linear(x, weight, bias))


@product(ops.linear_gelu, BIAS_LAST, FAST_ERF)
def torch_linear_gelu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Apply torch's linear and gelu."""
    return functional.gelu(functional.linear(x, weight, bias))


BIAS_AFTER: Final = stored(
    "aten/src/ATen/native/Convolution.cpp (ConvBackend::Cudnn): the bias is added to "
    "the stored products",
    device="cuda",
)
TRANSFORMED: Final = Claim(
    "algorithm", "winograd",
    "cuDNN chooses among algorithms by a heuristic, Winograd's among them "
    "(CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD); seen on an H100 with torch 2.11: weights "
    "of 0 and x near bfloat16's greatest number give -Inf",
    device="cuda",
)  # fmt: skip


BY_DEFAULT: Final = Claim(
    "accumulator", "tf32",
    "torch.backends.cudnn.allow_tf32 is True by default (docs/source/notes/cuda.rst)",
    device="cuda",
)  # fmt: skip
WIDER: Final = Claim(
    "dtypes", ("float32", "float16"), "bfloat16 goes by a kernel of its own"
)
BFLOAT16: Final = Claim(
    "dtypes", "bfloat16", "other formats go by a kernel of their own"
)
# Torch's attention: the fused operator, and a chain of calls.

NO_KEYS_LEFT: Final = Claim(
    "masked_row", "zero",
    "aten/src/ATen/native/transformers/attention.cpp: _safe_softmax, and measured on "
    "torch 2.13 for the flash kernel of the CPU",
)  # fmt: skip
THREE_PRODUCTS: Final = Claim(
    "accumulator", "tf32x3",
    "aten/src/ATen/native/transformers/cuda/mem_eff_attention/gemm_kernel_utils.h: "
    "float32 goes through OpMultiplyAddFastF32, three TF32 products",
    device="cuda",
)  # fmt: skip


@implements(ops.attention, NO_KEYS_LEFT, THREE_PRODUCTS)
def torch_attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, scale: float | None = None
) -> Tensor:
    """Apply `torch.nn.functional.scaled_dot_product_attention`."""
    return functional.scaled_dot_product_attention(
        q, k, v, is_causal=causal, scale=scale, enable_gqa=True
    )


@implements(ops.attention, NO_KEYS_LEFT, THREE_PRODUCTS)
def torch_attention_masked(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, *, scale: float | None = None
) -> Tensor:
    """Apply the same with an additive mask."""
    return functional.scaled_dot_product_attention(
        q, k, v, mask, scale=scale, enable_gqa=True
    )


IN_STEPS: Final = (
    Claim("algorithm", "unfused", "each step is stored in the data's format"),
    Claim("masked_row", "nan", "torch.softmax of a row of -Inf is NaN"),
)


def scores(
    q: Tensor, k: Tensor, mask: Tensor | None, *, causal: bool, scale: float | None,
    window: int | None, softcap: float | None,
) -> Tensor:  # fmt: skip
    """Return scale q k^T, capped and masked, each step a call."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
    made = (q @ k.transpose(-1, -2)) * scale
    if softcap is not None:
        made = torch.tanh(made / softcap) * softcap
    if mask is not None:
        made = made + mask
    seen = torch.ones(made.shape[-2:], dtype=torch.bool, device=q.device)
    if window is not None:
        seen = seen.tril(window - 1).triu(1 - window)
    if causal:
        seen = seen.tril()
    return made.masked_fill(~seen, float("-inf"))


@product(ops.attention, *IN_STEPS)
def torch_attention_unfused(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None,
    sinks: Tensor | None = None, *, causal: bool = False, scale: float | None = None,
    window: int | None = None, softcap: float | None = None,
) -> Tensor:  # fmt: skip
    """Multiply, cap, mask, `torch.softmax` with the sinks, multiply."""
    v = v.repeat_interleave(q.shape[1] // v.shape[1], 1)
    made = scores(
        q, k, mask, causal=causal, scale=scale, window=window, softcap=softcap
    )
    if sinks is not None:
        more = sinks.reshape(1, -1, 1, 1).expand(*made.shape[:-1], 1)
        made = torch.cat((made, more), -1)
    return torch.softmax(made, -1)[..., : k.shape[2]] @ v


@product(ops.attention_lse, *IN_STEPS)
def torch_attention_lse(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *,
    causal: bool = False, scale: float | None = None, window: int | None = None,
    softcap: float | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Multiply, cap, mask, `torch.softmax` and `torch.logsumexp`, multiply."""
    v = v.repeat_interleave(q.shape[1] // v.shape[1], 1)
    made = scores(
        q, k, mask, causal=causal, scale=scale, window=window, softcap=softcap
    )
    return torch.softmax(made, -1) @ v, torch.logsumexp(made.float(), -1)


@product(ops.attention_varlen, *IN_STEPS)
def torch_attention_varlen(
    q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor, cu_k: Tensor, *,
    causal: bool = False, scale: float | None = None, window: int | None = None,
    softcap: float | None = None,
) -> Tensor:  # fmt: skip
    """Apply the chain to each sequence."""
    y = q.new_empty(*q.shape[:2], v.shape[-1])
    starts, lows = cu_q.tolist(), cu_k.tolist()
    for i in range(len(starts) - 1):
        rows, keys = slice(*starts[i : i + 2]), slice(*lows[i : i + 2])
        parts = (t.transpose(0, 1).unsqueeze(0) for t in (q[rows], k[keys], v[keys]))
        made = torch_attention_unfused(
            *parts, causal=causal, scale=scale, window=window, softcap=softcap
        )
        y[rows] = made[0].transpose(0, 1)
    return y


@product(ops.attention_paged, *IN_STEPS)
def torch_attention_paged(
    q: Tensor, k: Tensor, v: Tensor, pages: Tensor, lengths: Tensor, *,
    limit: int = 16, scale: float | None = None, softcap: float | None = None,
) -> Tensor:  # fmt: skip
    """Gather the keys of each sequence and apply the chain."""
    y = q.new_empty(*q.shape[:2], v.shape[-1])
    for i, length in enumerate(lengths.tolist()):
        parts = (t[pages[i]].flatten(0, 1)[:length].transpose(0, 1) for t in (k, v))
        made = torch_attention_unfused(
            q[i, None, :, None],
            *(t.unsqueeze(0) for t in parts),
            scale=scale,
            softcap=softcap,
        )
        y[i] = made[0, :, 0]
    return y


# Torch's convolutions, and their adjoints.


def _convolving(function: Any) -> Any:
    def convolve(
        x: Tensor, weight: Tensor, bias: Tensor, *, stride: int = 1, padding: int = 0,
        dilation: int = 1, groups: int = 1,
    ) -> Any:  # fmt: skip
        return function(x, weight, bias, stride, padding, dilation, groups)

    return convolve


_conv2d = _convolving(functional.conv2d)
for _made, _function, _more in (
    (ops.conv1d, _convolving(functional.conv1d), ()),
    (ops.conv2d, _conv2d, (TRANSFORMED,)),
    (ops.conv3d, _convolving(functional.conv3d), ()),
):
    _name = f"torch_{_made.name}"
    implements(_made, WIDER, BY_DEFAULT, BIAS_AFTER, *_more, name=_name)(_function)
    implements(_made, BFLOAT16, BIAS_AFTER, *_more, name=f"{_name}_bfloat16")(_function)


@implements(
    ops.conv2d,
    Claim("dtypes", "float32", "the flag concerns float32"),
    TRANSFORMED,
    name="torch_conv2d_ieee",
    devices=("cuda",),
)
@wraps(_conv2d)
def _conv2d_ieee(*tensors: Tensor, **scalars: Any) -> Any:
    """Convolve with TF32 forbidden."""
    with setting(torch.backends.cudnn, allow_tf32=False):
        return _conv2d(*tensors, **scalars)


COLUMNS: Final = (
    "aten/src/ATen/native/NaiveConvolutionTranspose2d.cpp: products are tensors of the "
    "data's format, and their sums are kept in it"
)
# cuDNN's adjoint in the data: with atomic additions where it chooses so.
BY_ATOMICS: Final = Claim(
    "determinism", "none",
    "docs of torch.nn.functional.conv_transpose2d: on CUDA cuDNN may select a "
    "nondeterministic algorithm; two calls differed on an H200",
    device="cuda",
)  # fmt: skip


def _transposed(function: Any) -> Any:
    def convolve(
        x: Tensor, weight: Tensor, bias: Tensor, *, stride: int = 1, padding: int = 0,
        output_padding: int = 0, groups: int = 1, dilation: int = 1,
    ) -> Any:  # fmt: skip
        return function(
            x, weight, bias, stride, padding, output_padding, groups, dilation
        )

    return convolve


for _made in (ops.conv_transpose1d, ops.conv_transpose2d):
    narrowing(
        _made, BY_DEFAULT, BY_ATOMICS, stored(COLUMNS), accumulator="{dtype}",
        source=COLUMNS, device="cpu", name=f"torch_{_made.name}",
    )(_transposed(getattr(functional, _made.name)))  # fmt: skip


@implements(
    ops.causal_conv1d,
    stored("a chain of torch's operators, each of which stores its result"),
)
def torch_causal_conv1d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None,
    initial_state: Tensor | None = None, activation: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Convolve each channel with `torch.nn.functional.conv1d`."""
    channels, width = weight.shape
    if initial_state is None:
        initial_state = x.new_zeros(x.shape[0], channels, width - 1)
    padded = torch.cat((initial_state, x), -1)
    y = functional.conv1d(padded, weight[:, None], bias, groups=channels)
    y = y if activation is None else functional.silu(y)
    return y, padded[..., padded.shape[-1] - (width - 1) :].clone()


# Conversions by torch, and quantisation as a chain of its calls.


@implements(
    ops.cast,
    Claim(
        "dtypes",
        ("float32", "float16", "bfloat16", *FLOAT8),
        "torch.Tensor.to converts between all of them",
    ),
)
def torch_cast(x: Tensor, *, dtype: torch.dtype = torch.float16) -> Tensor:
    """Convert with `torch.Tensor.to`, to a tensor of its own."""
    return x.to(dtype, copy=True)


as_written(ops.quantize_int8, "int8", "float32")


@implements(ops.quantize_fp8)
def torch_quantize_fp8(x: Tensor, *, eps: float = 0.0) -> tuple[Tensor, Tensor]:
    """Multiply by 448 / max|x|, clamp and convert, in float32."""
    greatest = x.float().abs().amax(-1).clamp(min=eps)
    inverse = torch.where(greatest == 0, 1, 448 / greatest).unsqueeze(-1)
    codes = (x.float() * inverse).clamp(-448, 448)
    return codes.to(torch.float8_e4m3fn), greatest / 448


for _made in (
    ops.dequantize_int8,
    ops.dequantize_fp8,
    ops.scaled_matmul_int8,
    ops.scaled_matmul_fp8,
    ops.scaled_matmul_blocks,
    ops.mx_matmul,
):
    as_written(_made, "dtype")


def _nibbles(packed: Tensor, count: int, dim: int) -> Tensor:
    shifted = [(packed >> 4 * i) & 15 for i in range(count)]
    return torch.stack(shifted, dim).flatten(dim - 1, dim)


def _weighted(x: Tensor, codes: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    """Return x times weights in the data's format."""
    each = codes.shape[0] // scale.shape[0]
    scale, zero = (t.repeat_interleave(each, 0) for t in (scale, zero))
    return x @ ((codes.to(x.dtype) - zero.to(x.dtype)) * scale)


@implements(ops.int4_matmul)
def torch_int4_matmul(
    x: Tensor, codes: Tensor, scale: Tensor, zero: Tensor | None = None
) -> Tensor:
    """Unpack and scale the weights in the data's format, then multiply."""
    zero = torch.full_like(scale, MIDDLE) if zero is None else zero
    return _weighted(x, _nibbles(codes, 2, -2), scale, zero)


@implements(ops.gptq_matmul)
def torch_gptq_matmul(x: Tensor, codes: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    """Unpack weights and zero points, scale in the data's format, then multiply."""
    zeros = _nibbles(zero, 8, -1) + 1
    return _weighted(x, _nibbles(codes, 8, -2), scale, zeros)
