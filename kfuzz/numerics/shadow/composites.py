"""Operators that are chains of simpler ones, as the steps that kernels take.

They run under the shadow, which sees each step.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kfuzz.numerics.shadow.shade import NoRule, Widened, composite


@composite("_softmax", "_safe_softmax")
def softmax(x: Tensor, dim: int, *_: Any, **__: Any) -> Tensor:
    """exp(x - max) / sum."""
    if not x.numel():
        return x.clone()
    weight = (x - x.amax(dim, keepdim=True)).exp()
    return weight / weight.sum(dim, keepdim=True)


@composite("_log_softmax")
def log_softmax(x: Tensor, dim: int, *_: Any) -> Tensor:
    """(x - max) - log(sum exp(x - max))."""
    if not x.numel():
        return x.clone()
    depth = x - x.amax(dim, keepdim=True)
    return depth - depth.exp().sum(dim, keepdim=True).log()


@composite("logsumexp")
def logsumexp(x: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """`max + log(sum exp(x - max))`, the maximum 0 where it is infinite."""
    dims = [dim] if isinstance(dim, int) else list(dim) or list(range(x.dim()))
    if any(x.shape[d] == 0 for d in dims):
        return x.exp().sum(dims, keepdim).log()
    top = x.amax(dims, keepdim=True)
    top = torch.where(torch.isinf(top), torch.zeros_like(top), top)
    made = (x - top).exp().sum(dims, keepdim=True).log() + top
    if keepdim:
        return made
    return made.sum(dims) if not x.dim() else _without(made, dims)


def _without(x: Tensor, dims: Sequence[int]) -> Tensor:
    """Drop dimensions of size 1."""
    for d in sorted((d % x.dim() for d in dims), reverse=True):
        x = x.squeeze(d)
    return x


def _moments(x: Tensor, dims: Any, less: float) -> tuple[Tensor, Tensor]:
    """Return mean and variance, kept dimensions, in two passes."""
    if dims is None or (isinstance(dims, list | tuple) and not dims):
        dims = list(range(x.dim()))
    dims = [dims] if isinstance(dims, int) else list(dims)
    n = math.prod(x.shape[d] for d in dims)
    mean = x.mean(dims, keepdim=True)
    centred = x - mean
    squares = (centred * centred).sum(dims, keepdim=True)
    return mean, squares / max(n - less, 0)


@composite("var_mean")
def var_mean(
    x: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """Variance and mean in two passes."""
    if isinstance(dim, bool):
        raise NoRule("aten.var_mean")
    mean, variance = _moments(x, dim, 1 if correction is None else correction)
    if keepdim:
        return variance, mean
    dims = list(range(x.dim())) if dim is None or dim == [] else dim
    dims = [dims] if isinstance(dims, int) else dims
    return _without(variance, dims), _without(mean, dims)


@composite("var")
def var(x: Tensor, dim: Any = None, **options: Any) -> Tensor:
    """Variance in two passes."""
    return var_mean(x, dim, **options)[0]  # type: ignore[no-any-return]


@composite("std")
def std(x: Tensor, dim: Any = None, **options: Any) -> Tensor:
    """Root of the variance."""
    variance: Tensor = var_mean(x, dim, **options)[0]
    return variance.sqrt()


@composite("std_mean")
def std_mean(x: Tensor, dim: Any = None, **options: Any) -> tuple[Tensor, Tensor]:
    """Root of the variance, and mean."""
    variance, mean = var_mean(x, dim, **options)
    return variance.sqrt(), mean


@composite("linalg_vector_norm", "norm")
def vector_norm(
    x: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, **_: Any
) -> Tensor:
    """Norms of order 1, 2 and infinity."""
    ord = 2 if ord is None else ord
    dims = list(range(x.dim())) if dim is None or dim == [] else dim
    if ord == 2:
        return (x * x).sum(dims, keepdim=keepdim).sqrt()
    if ord == 1:
        return x.abs().sum(dims, keepdim=keepdim)
    if ord == math.inf:
        return x.abs().amax(dims, keepdim=keepdim)
    raise NoRule("aten.linalg_vector_norm")


@composite("native_layer_norm")
def layer_norm(
    x: Tensor, shape: Sequence[int], weight: Any, bias: Any, eps: float
) -> tuple[Widened, Tensor, Tensor]:
    """(x - mean) rsqrt(variance + eps) g + b."""
    dims = list(range(-len(shape), 0))
    mean, variance = _moments(x, dims, 0)
    scale = (variance + eps).rsqrt()
    return _scaled(x, mean, scale, weight, bias), mean, scale


@composite("_fused_rms_norm")
def rms_norm(
    x: Tensor, shape: Sequence[int], weight: Any, eps: float | None
) -> tuple[Tensor, Tensor]:
    """`x rsqrt(mean(x x) + eps) g`."""
    dims = list(range(-len(shape), 0))
    least = torch.finfo(torch.float64).eps if eps is None else eps
    scale = ((x * x).mean(dims, keepdim=True) + least).rsqrt()
    return _affine(x * scale, weight, None), scale


def _affine(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def _scaled(x: Tensor, mean: Tensor, scale: Tensor, weight: Any, bias: Any) -> Widened:
    """Return (x - mean) r g + b, which many kernels form as x (r g) + (b - mean r g).

    That rounds three numbers of the size of x r g and mean r g, however near they
    lie; and r g may underflow or overflow.
    """
    made = _affine((x - mean) * scale, weight, bias)
    size, middle = (torch.where(torch.isfinite(t), t.abs(), 0.0) for t in (x, mean))
    size = size + middle
    factor = scale if weight is None else scale * weight.abs()
    lost = 1 + factor + scale + size * (1 + scale)
    lost = lost if weight is None else lost + weight.abs()
    # 0 times an infinite factor is no magnitude.
    reach = torch.where(size > 1, size * factor, factor)
    return Widened(made, 3 * size * factor, lost, reach)


def _channels(x: Any, like: Tensor) -> Any:
    return None if x is None else x.reshape(-1, *[1] * (like.dim() - 2))


@composite("native_group_norm")
def group_norm(
    x: Tensor, weight: Any, bias: Any, n: int, c: int, size: int, groups: int,
    eps: float,
) -> tuple[Widened, Tensor, Tensor]:  # fmt: skip
    """layer_norm of each group of channels, affine by channel."""
    rows = x.reshape(n, groups, -1)
    mean, variance = _moments(rows, [-1], 0)
    scale = (variance + eps).rsqrt()
    each = (t.expand(rows.shape).reshape(x.shape) for t in (mean, scale))
    at, factor = each
    made = _scaled(x, at, factor, _channels(weight, x), _channels(bias, x))
    return made, mean.squeeze(-1), scale.squeeze(-1)


@composite("native_batch_norm", "_native_batch_norm_legit_no_training",
           "_native_batch_norm_legit")  # fmt: skip
def batch_norm(x: Tensor, weight: Any, bias: Any, *rest: Any) -> Any:
    """With the running moments, or with those of the batch.

    The running moments stay as they are: no result of the call depends on how they
    change.
    """
    if isinstance(rest[0], bool):  # without running moments
        rest = (None, None, *rest)
    mean, variance, *options = rest
    training, eps = (
        (options[0], options[2]) if len(options) == 3 else (False, *options[1:])
    )
    if training:
        mean, variance = _moments(x, [d for d in range(x.dim()) if d != 1], 0)
        mean, variance = mean.reshape(-1), variance.reshape(-1)
    scale = (variance + eps).rsqrt()
    each = (_channels(t, x) for t in (mean, scale, weight, bias))
    at, factor, g, b = each
    return _scaled(x, at, factor, g, b), mean, scale


@composite("cudnn_batch_norm", "miopen_batch_norm")
def library_batch_norm(x: Tensor, *rest: Any) -> Any:
    """What the libraries of GPUs compute, with what they keep for the gradient."""
    kept = torch.empty(0, dtype=torch.uint8, device=x.device)
    return (*batch_norm(x, *rest), kept)


@composite("_scaled_dot_product_flash_attention_for_cpu")
def attention(
    q: Tensor, k: Tensor, v: Tensor, dropout: float = 0.0, causal: bool = False, *,
    attn_mask: Any = None, scale: float | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """softmax(scale q k^T + mask) v; 0 where everything is masked."""
    if dropout:
        raise NoRule("aten._scaled_dot_product_flash_attention_for_cpu")
    if k.shape[1] != q.shape[1]:
        k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
        v = v.repeat_interleave(q.shape[1] // v.shape[1], 1)
    scores = (q @ k.mT) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
        scores = torch.where(seen, scores, -math.inf)
    if attn_mask is not None and attn_mask.dtype is torch.bool:
        scores = torch.where(attn_mask, scores, -math.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    weight = torch.softmax(scores, -1)
    masked = (scores == -math.inf).all(-1, keepdim=True)
    weight = torch.where(masked, 0.0, weight)
    return weight @ v, torch.logsumexp(scores, -1)
