"""A step of an optimizer and dropout in Triton, in one pass over the memory."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.witness import SQUARE, witness

BLOCK = 1024


@triton.jit(do_not_specialize=["numel"])
def adamw_kernel(
    p_ptr, g_ptr, m_ptr, v_ptr, numel, lr, beta1, beta2, eps, decay, correction1,
    correction2, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write one step of contiguous memory, computed in float32."""
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < numel
    p = tl.load(p_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    g = tl.load(g_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    m = tl.load(m_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    v = tl.load(v_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    m = m + (1.0 - beta1) * (g - m)
    v = v * beta2 + (1.0 - beta2) * g * g
    root = tl.sqrt(v) / tl.sqrt(correction2) + eps
    p = p - lr * decay * p
    p = p - (lr / correction1) * m / root
    tl.store(p_ptr + offs, p.to(p_ptr.dtype.element_ty), mask=mask)
    tl.store(m_ptr + offs, m.to(m_ptr.dtype.element_ty), mask=mask)
    tl.store(v_ptr + offs, v.to(v_ptr.dtype.element_ty), mask=mask)


@witness(SQUARE, SQUARE, SQUARE, SQUARE)
@kernel(ops.adamw, inplace=("param", "exp_avg", "exp_avg_sq"), layouts="contiguous")
def triton_adamw_inplace(
    param: Tensor, grad: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, step: int = 1,
    lr: float = 1e-3, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8,
    weight_decay: float = 0.01,
) -> None:  # fmt: skip
    """Conforming: writes three results in place."""
    if n := param.numel():
        adamw_kernel[(triton.cdiv(n, BLOCK),)](
            param, grad, exp_avg, exp_avg_sq, n, lr, beta1, beta2, eps, weight_decay,
            1.0 - beta1**step, 1.0 - beta2**step, BLOCK=BLOCK,
        )  # fmt: skip


@triton.jit(do_not_specialize=["numel", "seed"])
def dropout_kernel(x_ptr, y_ptr, numel, p, seed, BLOCK: tl.constexpr):
    """Write x / (1 - p), or 0 with probability p."""
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < numel
    x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    drawn = tl.rand(seed, offs.to(tl.int32))
    y = tl.where(drawn >= p, x * (1.0 / (1.0 - p)), 0.0)
    tl.store(y_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=mask)


def dropout(x: Tensor, p: float, seed: int) -> Tensor:
    """Return x with elements dropped."""
    x = x.contiguous()
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if y.numel():
        dropout_kernel[(triton.cdiv(y.numel(), BLOCK),)](
            x, y, y.numel(), p, seed, BLOCK=BLOCK
        )
    return y


@witness(SQUARE)
@kernel(ops.dropout)
def triton_dropout(x: Tensor, p: float = 0.0, seed: int = 0) -> Tensor:
    """Conforming."""
    return dropout(x, p, seed)


@witness(
    SQUARE,
    breaks="K-VAL-01",
    most=(8, 8),
    minimal="as few elements as there have to be for one to be kept, p > 0",
)
@kernel(ops.dropout)
def dropout_unscaled(x: Tensor, p: float = 0.0, seed: int = 0) -> Tensor:
    """Violates K-VAL-01: what is kept is not divided by 1 - p."""
    return dropout(x, p, seed) * (1 - p)
