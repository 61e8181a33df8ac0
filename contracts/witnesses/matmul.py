"""Matrix product in Triton: one program per tile of the output."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.witness import SQUARE, witness

BLOCK_M, BLOCK_N, BLOCK_K = 64, 64, 64
# The faulty accumulator is rounded after each tile, so short tiles show it sooner.
SHORT_K = 16
# One binary for all sizes and strides: a search tries hundreds of them.
SIZES = (
    "M", "N", "K", "end",
    "stride_am", "stride_ak", "stride_bk", "stride_bn", "stride_cm", "stride_cn",
)  # fmt: skip


@triton.jit(do_not_specialize=SIZES)
def matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    end,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    HALF_ACCUMULATOR: tl.constexpr,
):
    """Write a[:, :end] b[:end, :] to c."""
    acc_dtype: tl.constexpr = c_ptr.dtype.element_ty if HALF_ACCUMULATOR else tl.float32
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    in_m = offs_m[:, None] < M
    in_n = offs_n[None, :] < N
    acc = tl.zeros([BLOCK_M, BLOCK_N], acc_dtype)
    for start in range(0, end, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K).to(tl.int64)
        a = tl.load(
            a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak,
            mask=in_m & (offs_k[None, :] < K),
            other=0.0,
        )
        b = tl.load(
            b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn,
            mask=(offs_k[:, None] < K) & in_n,
            other=0.0,
        )
        tile = tl.dot(a, b, input_precision="ieee", out_dtype=tl.float32)
        acc = (acc + tile).to(acc_dtype)
    tl.store(
        c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn,
        acc.to(c_ptr.dtype.element_ty),
        mask=in_m & in_n,
    )


def launch(
    a: Tensor, b: Tensor, *, half_accumulator: bool = False, drop_tail: bool = False
) -> Tensor:
    """Return a b; a flag that is not at its default is a fault."""
    (m, k), n = a.shape, b.shape[1]
    block_k = SHORT_K if half_accumulator else BLOCK_K
    c = torch.empty((m, n), dtype=a.dtype, device=a.device)
    if c.numel():
        grid = (triton.cdiv(m, BLOCK_M), triton.cdiv(n, BLOCK_N))
        matmul_kernel[grid](
            a,
            b,
            c,
            m,
            n,
            k,
            k // block_k * block_k if drop_tail else k,
            *a.stride(),
            *b.stride(),
            *c.stride(),
            BLOCK_M=BLOCK_M,
            BLOCK_N=BLOCK_N,
            BLOCK_K=block_k,
            HALF_ACCUMULATOR=half_accumulator,
        )
    return c


@witness(SQUARE, SQUARE)
@kernel(ops.matmul)
def triton_matmul(a: Tensor, b: Tensor) -> Tensor:
    """Conforming."""
    return launch(a, b)


@witness(
    SQUARE, SQUARE, dtype="float16", breaks="C-PRC-01", most=(34, 8),
    minimal="1 x 17 times 17 x 1, one longer than a tile: three or four products",
)  # fmt: skip
@kernel(ops.matmul)
def matmul_half_accumulator(a: Tensor, b: Tensor) -> Tensor:
    """Violates C-PRC-01: 16-bit input is accumulated in its own format."""
    return launch(a, b, half_accumulator=True)


@witness(SQUARE, SQUARE, breaks="C-CMP-03", most=(2, 2), minimal="1 x 1 times 1 x 1")
@kernel(ops.matmul)
def matmul_drop_tail(a: Tensor, b: Tensor) -> Tensor:
    """Violates C-CMP-03: the last, partial tile of K is left out."""
    return launch(a, b, drop_tail=True)
