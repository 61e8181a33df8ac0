"""Torch's matrix products, linear layers and convolutions, with their flags.

On CUDA three flags say how they compute, and each default is declared here:
`torch.backends.cuda.matmul.allow_tf32` (off), `torch.backends.cudnn.allow_tf32` (on),
`torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction` and its like for
bfloat16 (on); see torch's notes on CUDA semantics and numerical accuracy.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional

from kfuzz.contracts import operators as ops
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.platform.pointwise import FAST_ERF
from kfuzz.contracts.platform.table import SHORT, Claim, implements, narrowing, stored

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
)  # fmt: skip


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


@product(ops.linear, BIAS_LAST)
def torch_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Apply `torch.nn.functional.linear`."""
    return functional.linear(x, weight, bias)


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
)  # fmt: skip
TRANSFORMED: Final = Claim(
    "algorithm", "winograd",
    "cuDNN chooses among algorithms by a heuristic, Winograd's among them "
    "(CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD); seen on an H100 with torch 2.11: weights "
    "of 0 and x near bfloat16's greatest number give -Inf",
    device="cuda",
)  # fmt: skip


def _conv2d(
    x: Tensor, weight: Tensor, bias: Tensor, *, stride: int = 1, padding: int = 0,
    dilation: int = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    return functional.conv2d(x, weight, bias, stride, padding, dilation, groups)


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
implements(
    ops.conv2d,
    WIDER,
    BY_DEFAULT,
    BIAS_AFTER,
    TRANSFORMED,
    name="torch_conv2d",
)(_conv2d)
implements(
    ops.conv2d,
    BFLOAT16,
    BIAS_AFTER,
    TRANSFORMED,
    name="torch_conv2d_bfloat16",
)(_conv2d)


@implements(
    ops.conv2d,
    Claim("dtypes", "float32", "the flag concerns float32"),
    TRANSFORMED,
    devices=("cuda",),
)
def torch_conv2d_ieee(
    x: Tensor, weight: Tensor, bias: Tensor, *, stride: int = 1, padding: int = 0,
    dilation: int = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Convolve with TF32 forbidden."""
    with setting(torch.backends.cudnn, allow_tf32=False):
        return functional.conv2d(x, weight, bias, stride, padding, dilation, groups)
