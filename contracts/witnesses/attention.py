"""Attention forward in Triton: tiles of keys, rescaled online, weights never stored."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.witness import witness

BLOCK_S, BLOCK_T = 32, 64
NARROW_HEAD, WIDE_HEAD = 32, 128
# A program per head: more of them only take the interpreter longer.
CLASS = f"B <= 4 and H <= 8 and D <= {WIDE_HEAD}"
# One binary for all sizes and strides: a search tries hundreds of them.
SIZES = (
    "causal", "window", "H", "G", "S", "T", "D", "tiles_s",
    "stride_qb", "stride_qh", "stride_qs", "stride_qd",
    "stride_kb", "stride_kh", "stride_kt", "stride_kd",
    "stride_vb", "stride_vh", "stride_vt", "stride_vd",
    "stride_ms", "stride_mt", "stride_sink",
)  # fmt: skip


@triton.jit(do_not_specialize=SIZES)
def attention_kernel(
    q_ptr, k_ptr, v_ptr, mask_ptr, sinks_ptr, out_ptr, lse_ptr, scale, cap,
    causal, window, H, G, S, T, D, tiles_s,
    stride_qb, stride_qh, stride_qs, stride_qd,
    stride_kb, stride_kh, stride_kt, stride_kd,
    stride_vb, stride_vh, stride_vt, stride_vd,
    stride_ms, stride_mt, stride_sink,
    MASK: tl.constexpr, SINKS: tl.constexpr, CAP: tl.constexpr, LSE: tl.constexpr,
    BLOCK_S: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """One tile of queries of one head against all keys; out is contiguous."""
    pid = tl.program_id(0)
    head = (pid // tiles_s % H).to(tl.int64)
    batch = (pid // tiles_s // H).to(tl.int64)
    group = head // (H // G)
    offs_s = (pid % tiles_s).to(tl.int64) * BLOCK_S + tl.arange(0, BLOCK_S)
    offs_d = tl.arange(0, BLOCK_D).to(tl.int64)
    in_s, in_d = offs_s < S, offs_d < D
    q_tile = offs_s[:, None] * stride_qs + offs_d[None, :] * stride_qd
    q_tile += batch * stride_qb + head * stride_qh
    q = tl.load(q_ptr + q_tile, mask=in_s[:, None] & in_d[None, :], other=0.0)

    top = tl.full([BLOCK_S], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_S], tl.float32)
    if SINKS:
        sink = tl.load(sinks_ptr + head * stride_sink).to(tl.float32)
        top = tl.zeros([BLOCK_S], tl.float32) + sink
        total = tl.where(top == float("-inf"), 0.0, 1.0)
    acc = tl.zeros([BLOCK_S, BLOCK_D], tl.float32)
    for start in range(0, T, BLOCK_T):
        offs_t = start + tl.arange(0, BLOCK_T).to(tl.int64)
        in_t = offs_t < T
        k_tile = offs_t[None, :] * stride_kt + offs_d[:, None] * stride_kd
        k_tile += batch * stride_kb + group * stride_kh
        k = tl.load(k_ptr + k_tile, mask=in_d[:, None] & in_t[None, :], other=0.0)
        v_tile = offs_t[:, None] * stride_vt + offs_d[None, :] * stride_vd
        v_tile += batch * stride_vb + group * stride_vh
        v = tl.load(v_ptr + v_tile, mask=in_t[:, None] & in_d[None, :], other=0.0)

        scores = tl.dot(q, k, input_precision="ieee") * scale
        if CAP:
            scores = cap * (1.0 - 2.0 / (tl.exp(2.0 * (scores / cap)) + 1.0))
        if MASK:
            m_tile = offs_s[:, None] * stride_ms + offs_t[None, :] * stride_mt
            within = in_s[:, None] & in_t[None, :]
            added = tl.load(mask_ptr + m_tile, mask=within, other=0.0)
            scores += added.to(tl.float32)
        ahead = offs_t[None, :] - offs_s[:, None]
        seen = ((ahead <= 0) | (causal == 0)) & (tl.abs(ahead) < window)
        scores = tl.where(seen & in_t[None, :], scores, float("-inf"))

        new = tl.maximum(top, tl.max(scores, axis=1))
        # Nothing is shifted by -Inf: a key to come may be visible.
        shift = tl.where(new == float("-inf"), 0.0, new)
        weights = tl.exp(scores - shift[:, None])
        rescaling = tl.exp(top - shift)
        total = total * rescaling + tl.sum(weights, axis=1)
        acc = acc * rescaling[:, None]
        acc = tl.dot(weights.to(v.dtype), v, acc, input_precision="ieee")
        top = new

    if LSE:
        row = (batch * H + head) * S + offs_s
        tl.store(lse_ptr + row, top + tl.log(total), mask=in_s)
    total = tl.where(total == 0.0, 1.0, total)  # no visible key: the row is 0
    out_tile = ((batch * H + head) * S + offs_s[:, None]) * D + offs_d[None, :]
    out = (acc / total[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + out_tile, out, mask=in_s[:, None] & in_d[None, :])


def launch(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, sinks: Tensor | None = None,
    *, causal: bool, scale: float | None, window: int | None = None, softcap: float |
    None = None, seen_lse: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return softmax(scale q k^T + mask) v, and its log-sum-exp if it is seen."""
    (batch, heads, s, d), (_, groups, t, _) = q.shape, k.shape
    out = torch.empty((batch, heads, s, d), dtype=q.dtype, device=q.device)
    lse = out if not seen_lse else out.new_empty(out.shape[:-1], dtype=torch.float32)
    if out.numel():
        scale = 1 / math.sqrt(d) if scale is None else scale
        tiles_s = triton.cdiv(s, BLOCK_S)
        attention_kernel[(batch * heads * tiles_s,)](
            q, k, v, q if mask is None else mask, q if sinks is None else sinks,
            out, lse, float(scale), float(softcap or 0.0),
            int(causal), s + t if window is None else window,
            heads, groups, s, t, d, tiles_s,
            *q.stride(), *k.stride(), *v.stride(),
            *((0, 0) if mask is None else mask.stride()),
            0 if sinks is None else sinks.stride(0),
            MASK=mask is not None, SINKS=sinks is not None, CAP=softcap is not None,
            LSE=seen_lse, BLOCK_S=BLOCK_S, BLOCK_T=BLOCK_T,
            BLOCK_D=NARROW_HEAD if d <= NARROW_HEAD else WIDE_HEAD, num_stages=1,
        )  # fmt: skip
    return out, lse


HEADS = (2, 2, 16, 16)


@witness(HEADS, HEADS, HEADS, (16, 16), (2,))
@kernel(ops.attention, shape_class=CLASS, masked_row="zero")
def triton_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None,
    sinks: Tensor | None = None, causal: bool = False, scale: float | None = None,
    window: int | None = None, softcap: float | None = None,
) -> Tensor:  # fmt: skip
    """Conforming."""
    return launch(
        q, k, v, mask, sinks, causal=causal, scale=scale, window=window, softcap=softcap
    )[0]


@witness(HEADS, HEADS, HEADS, (16, 16))
@kernel(ops.attention_lse, shape_class=CLASS, masked_row="zero")
def triton_attention_lse(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, causal: bool = False,
    scale: float | None = None, window: int | None = None, softcap: float | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Conforming."""
    return launch(
        q, k, v, mask, causal=causal, scale=scale, window=window, softcap=softcap,
        seen_lse=True,
    )  # fmt: skip
