"""Torch's own kernels with what each declares on a device.

`CLAIMS.md` says what they declare. On CUDA three flags say how products compute, and
each default is declared: `torch.backends.cuda.matmul.allow_tf32` (off),
`torch.backends.cudnn.allow_tf32` (on),
`torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction` and its like for
bfloat16 (on); see torch's notes on CUDA semantics and numerical accuracy.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.optim import adamw, sgd

from kfuzz.contracts import operators as ops
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.operators import OPERATORS
from kfuzz.contracts.operators.elementwise import turned
from kfuzz.contracts.operators.quantization import MIDDLE
from kfuzz.contracts.platform.table import (
    DEFECTS,
    IMPLEMENTATIONS,
    as_written,
    excuses,
    implements,
    joined,
)


@dataclass(frozen=True)
class Declared:
    """A kernel of torch's on one device in one version.

    Attributes:
        name: the kernel's name.
        operator: what it computes.
        function: what is called.
        claims: its declarations, as keywords of `kfuzz.kernel`.
        excused: the same, and what leaves its listed defects undecided.
    """

    name: str
    operator: Operator
    function: Callable[..., Any]
    claims: dict[str, Any]
    excused: dict[str, Any]


def kernels(device: str, version: str) -> Iterator[Declared]:
    """Yield the kernels bound on a device, "cpu" or "cuda", in a version of torch.

    Raises:
        BindingError: if claims contradict one another, or the version is none.
    """
    for made in IMPLEMENTATIONS.values():
        if device in made.devices:
            claims = made.declared(device, version)
            excuse = excuses(made.name, DEFECTS, device, version)
            excused = joined(claims, excuse)
            yield Declared(made.name, made.operator, made.function, claims, excused)


# Elementwise operators, and those that move elements.

implements(ops.copy, name="torch_copy")(torch.clone)
implements(ops.gelu_tanh, name="torch_gelu_tanh")(
    partial(functional.gelu, approximate="tanh")
)


@implements(ops.swiglu)
def torch_swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """Gate by `torch.nn.functional.silu`."""
    return functional.silu(gate) * up


@implements(ops.geglu)
def torch_geglu(gate: Tensor, up: Tensor) -> Tensor:
    """Gate by `torch.nn.functional.gelu`."""
    return functional.gelu(gate) * up


@implements(ops.transpose)
def torch_transpose(x: Tensor) -> Tensor:
    """Exchange the last two axes; torch's own transposition is a view."""
    return x.transpose(-1, -2).clone()


@implements(ops.rope)
def torch_rope(
    x: Tensor, cos: Tensor, sin: Tensor, *, interleaved: bool = False
) -> Tensor:
    """Multiply, turn, multiply, add, with tables as wide as the heads."""
    other: Tensor = turned(x, interleaved=interleaved)
    return x * cos[:, None] + other * sin[:, None]


@implements(ops.rope.fixed(interleaved=True, repeats=2))
def torch_rope_complex(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Multiply complex numbers, with tables half as wide as the heads."""
    pairs = torch.unflatten(x, -1, (cos.shape[-1], 2))
    pairs = torch.view_as_complex(pairs.clone(memory_format=torch.contiguous_format))
    return torch.view_as_real(pairs * torch.complex(cos, sin)[:, None]).flatten(-2)


@implements(ops.rope_positions)
def torch_rope_positions(
    x: Tensor, cos: Tensor, sin: Tensor, positions: Tensor, interleaved: bool = False,
    part: int = 1,
) -> Tensor:  # fmt: skip
    """Turn the pairs of leading columns with torch's operators."""
    half = cos.shape[-1]
    # An index in brackets may be negative.
    c, s = (functional.embedding(positions, table)[:, :, None] for table in (cos, sin))
    head = x[..., : 2 * half]
    if interleaved:
        a, b = head[..., ::2], head[..., 1::2]
        made = torch.stack((a * c - b * s, b * c + a * s), -1).flatten(-2)
    else:
        a, b = head[..., :half], head[..., half:]
        made = torch.cat((a * c - b * s, b * c + a * s), -1)
    return torch.cat((made, x[..., 2 * half :]), -1)


# Torch's operators that select by indices, add by them, or put in order.


@implements(ops.embedding)
def torch_embedding(weight: Tensor, indices: Tensor) -> Tensor:
    """Look rows up with `torch.nn.functional.embedding`."""
    return functional.embedding(indices, weight)


@implements(ops.gather)
def torch_take_along_dim(x: Tensor, index: Tensor) -> Tensor:
    """Gather along the last dimension with `torch.take_along_dim`."""
    return torch.take_along_dim(x, index, -1)


for _made in (ops.gather, ops.index_select, ops.scatter_add, ops.index_add):
    implements(_made, name=f"torch_{_made.name}")(_made.oracle)  # torch's own call


implements(ops.sort, name="torch_sort_stable")(partial(torch.sort, stable=True))


# Torch's steps of optimizers, and its dropout.


@implements(ops.adamw)
def torch_adamw(
    param: Tensor, grad: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, *, step: int = 1,
    lr: float = 1e-3, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8,
    weight_decay: float = 0.01,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Take a step of copies with `torch.optim.adamw.adamw`."""
    made = param.clone(), exp_avg.clone(), exp_avg_sq.clone()
    adamw.adamw(
        [made[0]], [grad], [made[1]], [made[2]], [], [torch.tensor(step - 1.0)],
        foreach=False, amsgrad=False, beta1=beta1, beta2=beta2, lr=lr,
        weight_decay=weight_decay, eps=eps, maximize=False,
    )  # fmt: skip
    return made


@implements(ops.sgd)
def torch_sgd(
    param: Tensor, grad: Tensor, momentum_buffer: Tensor, *, lr: float = 1e-3,
    momentum: float = 0.9, dampening: float = 0.0, weight_decay: float = 0.0,
    nesterov: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Take a step of copies with `torch.optim.sgd.sgd`."""
    made, buffer = param.clone(), momentum_buffer.clone()
    sgd.sgd(
        [made], [grad], [buffer], foreach=False, weight_decay=weight_decay,
        momentum=momentum, lr=lr, dampening=dampening, nesterov=nesterov,
        maximize=False,
    )  # fmt: skip
    return made, buffer


@implements(ops.dropout)
def torch_dropout(x: Tensor, p: float = 0.0, seed: int = 0) -> Tensor:
    """Multiply by noise as `torch.dropout` does, from a generator of its own."""
    random = torch.Generator(x.device).manual_seed(seed)
    noise = torch.empty_like(x).bernoulli_(1 - p, generator=random)
    return x * noise.div_(1 - p)


# Matrix products, linear layers and convolutions, with their flags.


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


@implements(ops.matmul, devices=("cuda",))
def torch_matmul_tf32(a: Tensor, b: Tensor) -> Tensor:
    """Multiply with TF32 allowed."""
    with setting(torch.backends.cuda.matmul, allow_tf32=True):
        return torch.matmul(a, b)


@implements(ops.matmul, devices=("cuda",))
def torch_matmul_full_reduction(a: Tensor, b: Tensor) -> Tensor:
    """Multiply with every part of a sum kept in float32."""
    with setting(
        torch.backends.cuda.matmul,
        allow_fp16_reduced_precision_reduction=False,
        allow_bf16_reduced_precision_reduction=False,
    ):
        return torch.matmul(a, b)


@implements(ops.linear)
def torch_linear_plain(x: Tensor, weight: Tensor) -> Tensor:
    """Apply `torch.nn.functional.linear` without a bias."""
    return functional.linear(x, weight)


@implements(ops.linear_relu)
def torch_linear_relu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Apply torch's linear and relu."""
    return torch.relu(functional.linear(x, weight, bias))


@implements(ops.linear_gelu)
def torch_linear_gelu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Apply torch's linear and gelu."""
    return functional.gelu(functional.linear(x, weight, bias))


# Torch's attention: the fused operator, and a chain of calls.


@implements(ops.attention)
def torch_attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, scale: float | None = None
) -> Tensor:
    """Apply `torch.nn.functional.scaled_dot_product_attention`."""
    return functional.scaled_dot_product_attention(
        q, k, v, is_causal=causal, scale=scale, enable_gqa=True
    )


@implements(ops.attention)
def torch_attention_masked(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, *, scale: float | None = None
) -> Tensor:
    """Apply the same with an additive mask."""
    return functional.scaled_dot_product_attention(
        q, k, v, mask, scale=scale, enable_gqa=True
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


@implements(ops.attention)
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


@implements(ops.attention_lse)
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


@implements(ops.attention_varlen)
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


@implements(ops.attention_paged)
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


for _made in (ops.conv1d, ops.conv2d, ops.conv3d):
    for _ending in ("", "_bfloat16"):
        implements(_made, name=f"torch_{_made.name}{_ending}")(
            getattr(functional, _made.name)
        )


@implements(ops.conv2d, devices=("cuda",))
def torch_conv2d_ieee(*tensors: Tensor, **scalars: Any) -> Any:
    """Convolve with TF32 forbidden."""
    convolve: Any = functional.conv2d
    with setting(torch.backends.cudnn, allow_tf32=False):
        return convolve(*tensors, **scalars)


@implements(ops.causal_conv1d)
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


@implements(ops.cast)
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


# Reductions, scans and what is made of sums of exponentials.


implements(ops.l2_normalize, name="torch_l2_normalize")(functional.normalize)


# Torch's normalisations.


@implements(ops.layer_norm)
def torch_layer_norm(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5
) -> Tensor:
    """Normalise over the last dimension with `torch.nn.functional.layer_norm`."""
    return functional.layer_norm(x, x.shape[-1:], weight, bias, eps)


@implements(ops.rms_norm)
def torch_rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    """Normalise over the last dimension with `torch.nn.functional.rms_norm`."""
    return functional.rms_norm(x, x.shape[-1:], weight, eps)


@implements(ops.add_rms_norm)
def torch_add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """Add, then normalise the stored sum."""
    h = x + residual
    return functional.rms_norm(h, h.shape[-1:], weight, eps), h


@implements(ops.group_norm)
def torch_group_norm(
    x: Tensor, weight: Tensor, bias: Tensor, num_groups: int = 1, eps: float = 1e-5
) -> Tensor:
    """Normalise groups of channels with `torch.nn.functional.group_norm`."""
    return functional.group_norm(x, num_groups, weight, bias, eps)


@implements(ops.batch_norm)
def torch_batch_norm(
    x: Tensor, mean: Tensor, var: Tensor, weight: Tensor, bias: Tensor,
    eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Normalise by given statistics with `torch.nn.functional.batch_norm`."""
    return functional.batch_norm(x, mean, var, weight, bias, eps=eps)


@implements(ops.layer_norm, name="torch_layer_norm_plain")
def _layer_norm_plain(x: Tensor, eps: float = 1e-5) -> Tensor:
    """Normalise without weight and bias."""
    return functional.layer_norm(x, x.shape[-1:], eps=eps)


@implements(ops.rms_norm, name="torch_rms_norm_plain")
def _rms_norm_plain(x: Tensor, eps: float = 1e-6) -> Tensor:
    """Normalise without a weight."""
    return functional.rms_norm(x, x.shape[-1:], eps=eps)


@implements(ops.instance_norm)
def torch_instance_norm(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5
) -> Tensor:
    """Normalise channels with `torch.nn.functional.instance_norm`."""
    return functional.instance_norm(x, weight=weight, bias=bias, eps=eps)


@implements(ops.weight_norm)
def torch_weight_norm(v: Tensor, g: Tensor) -> Tensor:
    """Scale rows with `torch._weight_norm`."""
    return torch._weight_norm(v, g[:, None], 0)


@implements(ops.gated_rms_norm)
def torch_gated_rms_norm(
    x: Tensor, gate: Tensor, weight: Tensor, eps: float = 1e-5,
    norm_before_gate: bool = True,
) -> Tensor:  # fmt: skip
    """Normalise with `torch.nn.functional.rms_norm`, before or behind the gate."""
    if norm_before_gate:
        return functional.rms_norm(x, x.shape[-1:], weight, eps) * functional.silu(gate)
    return functional.rms_norm(x * functional.silu(gate), x.shape[-1:], weight, eps)


# Torch's losses.


@implements(ops.kl_div)
def torch_kl_div(
    x: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False
) -> Tensor:
    """Take the divergence with `torch.nn.functional.kl_div`."""
    if reduction == "mean":  # which that warns of, and hands on as the number 1
        return torch.kl_div(x, target, 1, log_target=log_target)
    return functional.kl_div(x, target, reduction=reduction, log_target=log_target)


@implements(ops.linear_cross_entropy)
def torch_linear_cross_entropy(
    x: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None = None,
    ignore_index: int = -100, label_smoothing: float = 0.0, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Take the loss of stored logits."""
    return functional.cross_entropy(
        functional.linear(x, weight, bias),
        target,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
        reduction=reduction,
    )


@implements(ops.bce_with_logits)
def torch_bce_with_logits(
    x: Tensor, target: Tensor, weight: Tensor | None = None,
    pos_weight: Tensor | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Take the loss with `torch.nn.functional.binary_cross_entropy_with_logits`."""
    return functional.binary_cross_entropy_with_logits(
        x, target, weight, pos_weight=pos_weight, reduction=reduction
    )


# Routing of tokens to experts, and filters of logits, as chains of torch's calls.


as_written(ops.topk_routing, "float32", "")


@implements(ops.moe_permute)
def torch_moe_permute(
    x: Tensor, experts: Tensor, *, count: int = 4
) -> tuple[Tensor, Tensor, Tensor]:
    """Apply `torch.argsort`, `torch.bincount` and `torch.index_select`."""
    flat = experts.flatten()
    if bool(((flat < 0) | (flat >= count)).any()):
        raise IndexError("an expert that does not exist")
    source = flat.argsort(stable=True)
    counts = torch.bincount(flat, minlength=count).cumsum(0)
    offsets = torch.cat((counts.new_zeros(1), counts))
    return x.index_select(0, source // max(experts.shape[1], 1)), offsets, source


@implements(ops.grouped_matmul)
def torch_grouped_matmul(x: Tensor, weight: Tensor, offsets: Tensor) -> Tensor:
    """Multiply the rows of each group in turn."""
    x, y = x.contiguous(), x.new_empty(x.shape[0], weight.shape[-1])
    ends = offsets.tolist()
    for group, (start, end) in enumerate(pairwise(ends)):
        y[start:end] = x[start:end] @ weight[group]
    return y


@implements(ops.moe_combine)
def torch_moe_combine(y: Tensor, rows: Tensor, weights: Tensor) -> Tensor:
    """Select the rows and multiply by the weights in a batch of products."""
    chosen = y.index_select(0, rows.flatten()).unflatten(0, rows.shape)  # type: ignore[no-untyped-call]
    return torch.bmm(weights.unsqueeze(-2), chosen).squeeze(-2)


as_written(ops.linear_attention, "v", "float32")
as_written(ops.delta_rule, "v", "float32")


# Of all others torch's function of their name, or the steps of their oracle.

for _name, _operator in OPERATORS.items():
    if f"torch_{_name}" not in IMPLEMENTATIONS:
        _found = getattr(torch, _name, getattr(functional, _name, None))
        if _found is None:
            as_written(_operator)
        else:
            implements(_operator, name=f"torch_{_name}")(_found)
