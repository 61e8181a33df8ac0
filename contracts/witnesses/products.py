"""Products and linear layers in Triton: one program per tile of the output."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.activations import activated
from kfuzz.contracts.witnesses.rows import as_rows
from kfuzz.contracts.witnesses.witness import SQUARE, witness

# Long tiles of K, for few steps; two stages of them fit into 96 KiB.
BLOCK_M, BLOCK_N, BLOCK_K, STAGES = 64, 32, 128, 2
# A faulty accumulator is rounded, and a tail is lost, sooner where tiles are short.
SHORT_K = 16
# One binary for all sizes and strides: a search tries hundreds of them.
SIZES = (
    "M", "N", "K", "end", "tiles_m", "tiles_n", "stride_ab", "stride_am", "stride_ak",
    "stride_bb", "stride_bk", "stride_bn", "stride_bias",
)  # fmt: skip


@triton.jit(do_not_specialize=SIZES)
def product_kernel(
    a_ptr, b_ptr, bias_ptr, c_ptr, M, N, K, end, tiles_m, tiles_n,
    stride_ab, stride_am, stride_ak, stride_bb, stride_bk, stride_bn, stride_bias,
    BIAS: tl.constexpr, ACTIVATION: tl.constexpr, HALF_ACCUMULATOR: tl.constexpr,
    COERCE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Write activated(a[i, :, :end] b[i, :end] + bias) to contiguous c[i]."""
    acc_dtype: tl.constexpr = c_ptr.dtype.element_ty if HALF_ACCUMULATOR else tl.float32
    pid = tl.program_id(0)
    batch = (pid // tiles_n // tiles_m).to(tl.int64)
    tile_m, tile_n = pid // tiles_n % tiles_m, pid % tiles_n
    offs_m = tile_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tile_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    in_m = offs_m[:, None] < M
    in_n = offs_n[None, :] < N
    acc = tl.zeros([BLOCK_M, BLOCK_N], acc_dtype)
    a_rows = a_ptr + batch * stride_ab + offs_m[:, None] * stride_am
    b_columns = b_ptr + batch * stride_bb + offs_n[None, :] * stride_bn
    for start in range(0, end, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K).to(tl.int64)
        a_tile = a_rows + offs_k[None, :] * stride_ak
        a = tl.load(a_tile, mask=in_m & (offs_k[None, :] < K), other=0.0)
        b_tile = b_columns + offs_k[:, None] * stride_bk
        b = tl.load(b_tile, mask=(offs_k[:, None] < K) & in_n, other=0.0)
        if COERCE:
            a, b = a.to(tl.float16), b.to(tl.float16)
        tile = tl.dot(a, b, input_precision="ieee", out_dtype=tl.float32)
        acc = (acc + tile).to(acc_dtype)
    if BIAS:
        bias = tl.load(bias_ptr + offs_n * stride_bias, mask=offs_n < N, other=0.0)
        acc = acc + bias.to(tl.float32)[None, :]
    acc = activated(acc.to(tl.float32), 0.0, 0.0, ACTIVATION)
    c_tile = c_ptr + (batch * M + offs_m[:, None]) * N + offs_n[None, :]
    tl.store(c_tile, acc.to(c_ptr.dtype.element_ty), mask=in_m & in_n)


def launch(
    a: Tensor, b: Tensor, bias: Tensor | None = None, activation: str = "none", *,
    half_accumulator: bool = False, drop_tail: bool = False, coerce: bool = False,
    tuned_for: tuple[int, int] | None = None,
) -> Tensor:  # fmt: skip
    """Return activation(a[i] b[i] + bias), a [B, M, K], b [B, K, N] of any strides.

    A flag that is not at its default is a fault: with `coerce` operands are rounded to
    float16, with `tuned_for` the grid is that of one size, and 0 is left elsewhere.
    """
    (batch, m, k), n = a.shape, b.shape[2]
    block_k = SHORT_K if half_accumulator or drop_tail else BLOCK_K
    c = torch.empty((batch, m, n), dtype=a.dtype, device=a.device)
    if tuned_for is not None:
        c.zero_()
    if c.numel():
        size = tuned_for or (m, n)
        tiles_m, tiles_n = triton.cdiv(size[0], BLOCK_M), triton.cdiv(size[1], BLOCK_N)
        product_kernel[(batch * tiles_m * tiles_n,)](
            a, b, c if bias is None else bias, c, m, n, k,
            k // block_k * block_k if drop_tail else k, tiles_m, tiles_n,
            *a.stride(), *b.stride(), 0 if bias is None else bias.stride(0),
            BIAS=bias is not None, ACTIVATION=activation,
            HALF_ACCUMULATOR=half_accumulator, COERCE=coerce,
            BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=block_k, num_stages=STAGES,
        )  # fmt: skip
    return c


def linear(x: Tensor, weight: Tensor, bias: Tensor, activation: str) -> Tensor:
    """Return activation(x weight^T + bias), x of any rank from 1 on."""
    made = launch(as_rows(x, -1)[None], weight.T[None], bias, activation)
    return made.reshape(*x.shape[:-1], weight.shape[0])


@witness(SQUARE, SQUARE)
@kernel(ops.matmul)
def triton_matmul(a: Tensor, b: Tensor) -> Tensor:
    """Conforming."""
    return launch(a[None], b[None])[0]


@witness(SQUARE, SQUARE, dtype="float16", breaks="C-PRC-01")
@kernel(ops.matmul)
def matmul_half_accumulator(a: Tensor, b: Tensor) -> Tensor:
    """Violates C-PRC-01: 16-bit input is accumulated in its own format."""
    return launch(a[None], b[None], half_accumulator=True)[0]


@witness(SQUARE, SQUARE, breaks="C-CMP-03")
@kernel(ops.matmul)
def matmul_drop_tail(a: Tensor, b: Tensor) -> Tensor:
    """Violates C-CMP-03: the last, partial tile of K is left out."""
    return launch(a[None], b[None], drop_tail=True)[0]


@witness((4, 16, 16), (4, 16, 16))
@kernel(ops.bmm)
def triton_bmm(a: Tensor, b: Tensor) -> Tensor:
    """Conforming."""
    return launch(a, b)


@witness(SQUARE, SQUARE, (64,))
@kernel(ops.linear)
def triton_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Conforming."""
    return linear(x, weight, bias, "none")


@witness(SQUARE, SQUARE, (64,))
@kernel(ops.linear_gelu)
def triton_linear_gelu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Conforming."""
    return linear(x, weight, bias, "gelu")


@witness(SQUARE, SQUARE, (64,))
@kernel(ops.linear_relu)
def triton_linear_relu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Conforming."""
    return linear(x, weight, bias, "relu")


@witness(SQUARE, SQUARE, (64,), breaks="C-CMP-01")
@kernel(ops.linear_relu)
def linear_relu_saturates(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Violates C-CMP-01: the fused ReLU ends at 64, as that of a narrow format may."""
    return linear(x, weight, bias, "relu_cut")
