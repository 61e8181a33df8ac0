"""Cross-entropy in Triton: the loss of every row, then their mean in torch."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.rows import check_indices, tile
from kfuzz.contracts.witnesses.witness import witness

SIZES = ("stride_xn", "stride_xc", "stride_t", "n", "c", "ignore")


@triton.jit(do_not_specialize=(*SIZES, "smoothing"))
def loss_kernel(
    x_ptr, target_ptr, loss_ptr, stride_xn, stride_xc, stride_t, n, c, ignore,
    smoothing, ROWS: tl.constexpr, BLOCK: tl.constexpr, SMOOTH: tl.constexpr,
):  # fmt: skip
    """loss[i] = -log softmax(x[i, :])[target[i]] in float32, 0 where ignored."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]
    x_rows = x_ptr + rows * stride_xn

    top = tl.full([ROWS, BLOCK], float("-inf"), tl.float32)
    for start in range(0, c, BLOCK):
        offs = start + lanes.to(tl.int64)
        mask = (rows < n) & (offs < c)
        x = tl.load(x_rows + offs * stride_xc, mask=mask, other=float("-inf"))
        top = tl.maximum(top, x.to(tl.float32))
    row_max = tl.max(top, axis=1)[:, None]

    parts = tl.full([ROWS, BLOCK], 0.0, tl.float32)
    shifts = tl.full([ROWS, BLOCK], 0.0, tl.float32)
    for start in range(0, c, BLOCK):
        offs = start + lanes.to(tl.int64)
        mask = (rows < n) & (offs < c)
        x = tl.load(x_rows + offs * stride_xc, mask=mask, other=float("-inf"))
        d = x.to(tl.float32) - row_max
        parts += tl.exp(d)
        if SMOOTH:
            shifts += tl.where(mask, d, 0.0)
    log_total = tl.log(tl.sum(parts, axis=1)[:, None])

    target = tl.load(target_ptr + rows * stride_t, mask=rows < n, other=0).to(tl.int64)
    kept = (rows < n) & (target != ignore)
    picked = kept & (target < c)
    x = tl.load(x_rows + target * stride_xc, mask=picked, other=0.0)
    loss = log_total - (x.to(tl.float32) - row_max)
    if SMOOTH:
        mean = log_total - tl.sum(shifts, axis=1)[:, None] / c
        loss = (1.0 - smoothing) * loss + smoothing * mean
    tl.store(loss_ptr + rows, tl.where(kept, loss, 0.0), mask=rows < n)


def launch(
    logits: Tensor, target: Tensor, ignore: int, smoothing: float, *, bound: int
) -> Tensor:
    """Return the mean loss; targets from `bound` on are refused."""
    check_indices(target, bound, ignored=ignore)
    n, c = logits.shape
    loss = torch.empty(n, dtype=torch.float32, device=logits.device)
    constants = tile(c)
    if n:
        loss_kernel[(triton.cdiv(n, constants["ROWS"]),)](
            logits,
            target,
            loss,
            *logits.stride(),
            target.stride(0),
            n,
            c,
            ignore,
            smoothing,
            **constants,
            SMOOTH=smoothing > 0,
        )
    return (loss.sum() / (target != ignore).sum()).to(logits.dtype)


@witness((64, 512), (64,))
@kernel(ops.cross_entropy)
def triton_cross_entropy(
    logits: Tensor,
    target: Tensor,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Tensor:
    """Conforming."""
    bound = logits.shape[1]
    return launch(logits, target, ignore_index, label_smoothing, bound=bound)


@witness((64, 512), (64,), breaks="C-EXC-02")
@kernel(ops.cross_entropy)
def cross_entropy_padded_label(
    logits: Tensor,
    target: Tensor,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Tensor:
    """Violates C-EXC-02: takes the columns that pad a block for classes."""
    block = tile(logits.shape[1])["BLOCK"]
    bound = triton.cdiv(logits.shape[1], block) * block
    return launch(logits, target, ignore_index, label_smoothing, bound=bound)
