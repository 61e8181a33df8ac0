"""Losses, an optimizer step and dropout by other algorithms than torch's, in Triton."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.rows import check_indices, empty, over_elements
from kfuzz.contracts.witnesses.witness import SQUARE, witness

# Losses by other algorithms than torch's: in one Triton kernel, in chunks.

# Rows whose logits exist at once.
CHUNK = 16


@triton.jit
def log1p_exp(d):
    """log(1 + exp(-|d|)), below 2^-12 by its first term."""
    small = tl.exp(-tl.abs(d))
    return tl.where(small < 0.000244140625, small, tl.log(1.0 + small))


@triton.jit(do_not_specialize=["numel"])
def loss_kernel(
    x_ptr, t_ptr, y_ptr, numel, first, NAME: tl.constexpr, BLOCK: tl.constexpr
):
    """Write the loss of each element of contiguous memory to y, in float32.

    Args:
        x_ptr: what is predicted.
        t_ptr: the target.
        y_ptr: float32.
        numel: of each.
        first: the loss's parameter, if it has one.
        NAME: as the operator's.
        BLOCK: elements of a program.
    """
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < numel
    x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    t = tl.load(t_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    if NAME == "kl_div":
        y = tl.where(t == 0, 0.0 * x, t * (tl.log(t) - x))
    elif NAME == "kl_div_log":
        y = -tl.exp(t) * (x - t)
    elif NAME == "js_div":
        # M log M once, in place of a logarithm in each term.
        p, q = tl.exp(t), tl.exp(x)
        m = first * p + (1.0 - first) * q
        y = first * p * t + (1.0 - first) * q * x - m * tl.log(m)
    else:
        tl.static_assert(NAME == "bce")
        y = tl.maximum(x, 0.0) - x * t + log1p_exp(x)
        y = tl.where(x != x, x, y)
    tl.store(y_ptr + offs, y, mask=mask)


def losses(x: Tensor, t: Tensor, name: str, first: float = 1.0) -> Tensor:
    """Return the float32 losses of elements, contiguous."""
    tensors = x.contiguous(), t.contiguous(), empty(x, torch.float32)
    return over_elements(loss_kernel, tensors, float(first), NAME=name)


def reduced(loss: Tensor, reduction: str, like: Tensor) -> Tensor:
    """Return float32 losses reduced and stored as another tensor is."""
    if reduction == "batchmean":
        loss = loss.sum() / loss.shape[0]
    elif reduction != "none":
        loss = loss.mean() if reduction == "mean" else loss.sum()
    return loss.to(like.dtype)


@witness(SQUARE, SQUARE)
@kernel(ops.kl_div)
def triton_kl_div(
    x: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False
) -> Tensor:
    """Conforming."""
    name = "kl_div_log" if log_target else "kl_div"
    return reduced(losses(x, target, name), reduction, x)


@witness(SQUARE, SQUARE)
@kernel(ops.js_div)
def triton_js_div(
    x: Tensor, target: Tensor, beta: float = 0.5, reduction: str = "mean"
) -> Tensor:
    """Conforming."""
    if beta in (0.0, 1.0):
        pair = (x, target) if beta == 0.0 else (target, x)
        return reduced(losses(*pair, "kl_div_log"), reduction, x)
    return reduced(losses(x, target, "js_div", beta), reduction, x)


@witness(SQUARE, SQUARE)
@kernel(ops.bce_with_logits)
def triton_bce_with_logits(
    x: Tensor, target: Tensor, reduction: str = "mean"
) -> Tensor:
    """Conforming."""
    return reduced(losses(x, target, "bce"), reduction, x)


@witness((64, 32), (512, 32), (64,), (512,), backends=("cpu",))
@kernel(ops.linear_cross_entropy)
def chunked_linear_cross_entropy(
    x: Tensor, weight: Tensor, target: Tensor, bias: Tensor, ignore_index: int = -100,
    label_smoothing: float = 0.0, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Conforming: float32 logits of a few rows at a time."""
    kept = target != ignore_index
    check_indices(target, weight.shape[0], ignored=ignore_index)
    rows = []
    for part, wanted in zip(x.split(CHUNK), target.split(CHUNK), strict=True):  # type: ignore[no-untyped-call]
        logits = functional.linear(part.float(), weight.float(), bias.float())
        depth = logits - logits.amax(-1, keepdim=True)
        log_total = depth.exp().sum(-1).log()
        at = torch.where(wanted == ignore_index, 0, wanted)[:, None]
        loss = log_total - depth.gather(-1, at)[:, 0]
        if label_smoothing:
            mean = log_total - depth.mean(-1)
            loss = (1 - label_smoothing) * loss + label_smoothing * mean
        rows.append(loss)
    loss = torch.where(kept, torch.cat(rows), 0.0) if rows else x.new_zeros(0).float()
    if reduction == "mean":
        return (loss.sum() / kept.sum()).to(x.dtype)
    return reduced(loss, reduction, x)


# A step of an optimizer and dropout in Triton, in one pass over the memory.


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
    over_elements(
        adamw_kernel, (param, grad, exp_avg, exp_avg_sq), lr, beta1, beta2, eps,
        weight_decay, 1.0 - beta1**step, 1.0 - beta2**step,
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
    return over_elements(dropout_kernel, (x.contiguous(), empty(x)), p, seed)


@witness(SQUARE)
@kernel(ops.dropout)
def triton_dropout(x: Tensor, p: float = 0.0, seed: int = 0) -> Tensor:
    """Conforming."""
    return dropout(x, p, seed)
