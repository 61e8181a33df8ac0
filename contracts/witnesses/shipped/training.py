"""Steps of optimizers and dropout in Triton, in one pass over the memory."""

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
    p_ptr, g_ptr, m_ptr, v_ptr, p_out, m_out, v_out, numel, lr, beta1, beta2, eps,
    decay, correction1, correction2, BLOCK: tl.constexpr,
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
    tl.store(p_out + offs, p.to(p_out.dtype.element_ty), mask=mask)
    tl.store(m_out + offs, m.to(m_out.dtype.element_ty), mask=mask)
    tl.store(v_out + offs, v.to(v_out.dtype.element_ty), mask=mask)


def adamw(
    given: tuple[Tensor, ...], step: int, lr: float, beta1: float, beta2: float,
    eps: float, weight_decay: float, *, inplace: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return parameter and both moments after a step."""
    p, g, m, v = (x.contiguous() for x in given)
    made = (p, m, v)
    if not inplace:
        made = torch.empty_like(p), torch.empty_like(m), torch.empty_like(v)
    if p.numel():
        adamw_kernel[(triton.cdiv(p.numel(), BLOCK),)](
            p, g, m, v, *made, p.numel(), lr, beta1, beta2, eps, weight_decay,
            1.0 - beta1**step, 1.0 - beta2**step, BLOCK=BLOCK,
        )  # fmt: skip
    return made


@witness(SQUARE, SQUARE, SQUARE, SQUARE)
@kernel(ops.adamw)
def triton_adamw(
    param: Tensor, grad: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, step: int = 1,
    lr: float = 1e-3, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8,
    weight_decay: float = 0.01,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Conforming."""
    given = (param, grad, exp_avg, exp_avg_sq)
    return adamw(given, step, lr, beta1, beta2, eps, weight_decay)


@witness(SQUARE, SQUARE, SQUARE, SQUARE)
@kernel(ops.adamw, inplace=("param", "exp_avg", "exp_avg_sq"), layouts="contiguous")
def triton_adamw_inplace(
    param: Tensor, grad: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, step: int = 1,
    lr: float = 1e-3, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8,
    weight_decay: float = 0.01,
) -> None:  # fmt: skip
    """Conforming: writes three results in place."""
    given = (param, grad, exp_avg, exp_avg_sq)
    adamw(given, step, lr, beta1, beta2, eps, weight_decay, inplace=True)


@triton.jit(do_not_specialize=["numel"])
def sgd_kernel(
    p_ptr, g_ptr, b_ptr, p_out, b_out, numel, lr, momentum, dampening, decay,
    NESTEROV: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write one step of contiguous memory, computed in float32."""
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < numel
    p = tl.load(p_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    g = tl.load(g_ptr + offs, mask=mask, other=0.0).to(tl.float32) + decay * p
    b = tl.load(b_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    b = g - dampening * g + momentum * b
    p -= lr * (g + momentum * b if NESTEROV else b)
    tl.store(p_out + offs, p.to(p_out.dtype.element_ty), mask=mask)
    tl.store(b_out + offs, b.to(b_out.dtype.element_ty), mask=mask)


@witness(SQUARE, SQUARE, SQUARE)
@kernel(ops.sgd)
def triton_sgd(
    param: Tensor, grad: Tensor, momentum_buffer: Tensor, lr: float = 1e-3,
    momentum: float = 0.9, dampening: float = 0.0, weight_decay: float = 0.0,
    nesterov: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Conforming."""
    given = (param, grad, momentum_buffer)
    p, g, b = (x.contiguous() for x in given)
    made = torch.empty_like(p), torch.empty_like(b)
    if p.numel():
        sgd_kernel[(triton.cdiv(p.numel(), BLOCK),)](
            p, g, b, *made, p.numel(), lr, momentum, dampening, weight_decay,
            NESTEROV=nesterov, BLOCK=BLOCK,
        )  # fmt: skip
    return made


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
