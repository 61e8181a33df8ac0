"""Activations, losses and fused arithmetic as chains of simpler operators.

They run under the shadow, which sees each step.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
import torch.nn.functional as functional
from torch import Tensor

from kfuzz.numerics.shadow.shade import NoRule, Widened, composite

# Chains of one line. At thresholds NaN stays.
CHAINS: Final[dict[str, Callable[..., Any]]] = {
    "silu": lambda x: x * x.sigmoid(),
    "celu": lambda x, alpha=1: torch.where(
        x > 0, x, alpha * (x.clamp(max=0) / alpha).expm1()
    ),
    "threshold": lambda x, least, value: torch.where(x <= least, value, x),
    "hardshrink": lambda x, width=0.5: torch.where(
        (x >= -width) & (x <= width), 0.0, x
    ),
    # Nearer to 0 by the width, or 0 within it.
    "softshrink": lambda x, width=0.5: torch.where(
        x > width, x - width, torch.where(x < -width, x + width, x * 0.0)
    ),
    "leaky_relu": lambda x, slope=0.01: torch.where(x > 0, x, x * slope),
    "_prelu_kernel": lambda x, weight: torch.where(x > 0, x, x * weight),
    "mish": lambda x: x * functional.softplus(x).tanh(),
    "hardswish": lambda x: x * (x + 3).clamp(0, 6) / 6,
    "hardsigmoid": lambda x: (x + 3).clamp(0, 6) / 6,
    "addcmul": lambda x, a, b, *, value=1: _in_any_order(
        x + value * (a * b), value * a, value * b
    ),
    "addcdiv": lambda x, a, b, *, value=1: _in_any_order(
        x + value * (a / b), value * a
    ),
    "var": lambda x, dim=None, **options: var_mean(x, dim, **options)[0],
    "std": lambda x, dim=None, **options: var_mean(x, dim, **options)[0].sqrt(),
    "masked_fill": lambda x, mask, value: torch.where(mask, value, x),
    # Squared differences: each, their mean or their sum.
    "mse_loss": lambda a, b, reduction=1: _reduced((a - b) * (a - b), reduction),
}


def _in_any_order(made: Tensor, *factors: Tensor) -> Widened:
    """Return a result on whose way other factors may be multiplied first."""
    reach = torch.zeros_like(made)
    for x in factors:
        size = torch.where(torch.isfinite(x), x.abs(), 0.0)
        reach = torch.maximum(reach, size.expand(made.shape))
    none = torch.zeros_like(made)
    return Widened(made, none, none, reach)


@composite("gelu")
def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    """`x Phi(x)` by erf, or the approximation by tanh."""
    if approximate == "tanh":
        inner = (x + 0.044715 * (x * x * x)) * math.sqrt(2 / math.pi)
        return 0.5 * x * (1 + inner.tanh())
    return 0.5 * x * (1 + (x * math.sqrt(0.5)).erf())


@composite("softplus")
def softplus(x: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    """log1p(exp(beta x)) / beta, x above the threshold."""
    scaled = x * beta
    return torch.where(scaled > threshold, x, scaled.exp().log1p() / beta)


@composite("elu")
def elu(
    x: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1
) -> Tensor:
    """Scale times x, or times alpha (exp(x) - 1)."""
    below = alpha * (x * input_scale).clamp(max=0).expm1()
    return torch.where(x > 0, x, below) * scale


@composite("smooth_l1_loss")
def smooth_l1(x: Tensor, y: Tensor, reduction: int = 1, beta: float = 1.0) -> Tensor:
    """d^2 / (2 beta) for small differences, |d| - beta / 2 for others."""
    far = (x - y).abs()
    if not beta:
        return _reduced(far, reduction)
    near = 0.5 * far * far / beta
    return _reduced(torch.where(far < beta, near, far - 0.5 * beta), reduction)


@composite("huber_loss")
def huber(x: Tensor, y: Tensor, reduction: int = 1, delta: float = 1.0) -> Tensor:
    """d^2 / 2 for small differences, delta (|d| - delta / 2) for others."""
    far = (x - y).abs()
    near = 0.5 * far * far
    large = delta * (far - 0.5 * delta)
    return _reduced(torch.where(far <= delta, near, large), reduction)


@composite("log_sigmoid_forward")
def log_sigmoid(x: Tensor) -> tuple[Tensor, Tensor]:
    """min(x, 0) - log1p(exp(-|x|))."""
    small = (-x.abs()).exp()
    return x.clamp(max=0) - small.log1p(), small


@composite("glu")
def glu(x: Tensor, dim: int = -1) -> Tensor:
    """The first half times the sigmoid of the second."""
    halves = x.chunk(2, dim)
    made: Tensor = halves[0] * halves[1].sigmoid()
    return made


@composite("xlogy")
def xlogy(x: Any, y: Any) -> Tensor:
    """`x log(y)`, 0 where x is."""
    like = x if isinstance(x, Tensor) else y
    x, y = torch.as_tensor(x, dtype=like.dtype), torch.as_tensor(y, dtype=like.dtype)
    made = torch.where(x == 0, torch.zeros_like(like), x * y.log())
    return torch.where(y.isnan(), y, made)


@composite("addmv")
def addmv(x: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """`beta x + alpha a b`."""
    start = x.expand(a.shape[0])[:, None]
    column: Tensor = torch.addmm(start, a, b[:, None], beta=beta, alpha=alpha)
    return column[:, 0]


@composite("aminmax")
def aminmax(x: Tensor, *, dim: Any = None, keepdim: bool = False) -> Any:
    """Least and greatest."""
    dims = _all(x, dim)
    return x.amin(dims, keepdim=keepdim), x.amax(dims, keepdim=keepdim)


def _reduced(x: Tensor, reduction: int) -> Tensor:
    if reduction == 0:
        return x
    return x.mean() if reduction == 1 else x.sum()


@composite("binary_cross_entropy_with_logits")
def bce_with_logits(
    x: Tensor, y: Tensor, weight: Any = None, pos_weight: Any = None,
    reduction: int = 1,
) -> Tensor | Widened:  # fmt: skip
    """(1 - y) x + log(1 + exp(-x)), stable; torch's (1 - y) x - log_sigmoid(x) too."""
    if pos_weight is not None:
        raise NoRule("aten.binary_cross_entropy_with_logits")
    if weight is not None or reduction:
        made = functional.binary_cross_entropy_with_logits(x, y, reduction="none")
        return _reduced(made if weight is None else made * weight, reduction)
    tail = (-x.abs()).exp().log1p()
    made = x.clamp(min=0) - x * y + tail
    # At an infinity torch's own form has other terms that cancel.
    made = torch.where(x.isinf(), (1 - y) * x + (-x).clamp(min=0), made)
    first, second = ((1 - y) * x).abs(), tail - x.clamp(max=0)
    terms = torch.where(made.isfinite(), 3 * first + 2 * second, 0.0)
    return Widened(made, terms, x.abs() + 2, torch.maximum(first, second))


@composite("nll_loss_forward", "nll_loss2d_forward")
def nll_loss(
    x: Tensor, target: Tensor, weight: Any, reduction: int, ignored: int
) -> tuple[Tensor, Tensor]:
    """-w[t] x[t], the ignored left out; total weight."""
    along = 1 if x.dim() > 1 else 0
    kept = target != ignored
    at = torch.where(kept, target, 0).unsqueeze(along)
    chosen = -x.gather(along, at).squeeze(along)
    share = torch.ones_like(chosen)
    if weight is not None:
        share = weight[at.squeeze(along)]
        chosen = chosen * share
    chosen = torch.where(kept, chosen, 0.0)
    total = torch.where(kept, share, 0.0).sum()
    if reduction == 0:
        return chosen, total
    return (chosen.sum() / total if reduction == 1 else chosen.sum()), total


# Operators that are chains of simpler ones, as the steps that kernels take.
#
# They run under the shadow, which sees each step.


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
    dims = _all(x, dim)
    if any(x.shape[d] == 0 for d in dims):
        return x.exp().sum(dims, keepdim).log()
    top = x.amax(dims, keepdim=True)
    top = torch.where(torch.isinf(top), torch.zeros_like(top), top)
    made = (x - top).exp().sum(dims, keepdim=True).log() + top
    if keepdim:
        return made
    return made.sum(dims) if not x.dim() else _without(made, dims)


def _all(x: Tensor, dim: Any) -> list[int]:
    """Return the dimensions that a reduction is over."""
    if dim is None or (isinstance(dim, list | tuple) and not dim):
        return list(range(x.dim()))
    return [dim] if isinstance(dim, int) else list(dim)


def _without(x: Tensor, dims: Sequence[int]) -> Tensor:
    """Drop dimensions of size 1."""
    for d in sorted((d % x.dim() for d in dims), reverse=True):
        x = x.squeeze(d)
    return x


def _moments(x: Tensor, dims: Any, less: float) -> tuple[Tensor, Tensor]:
    """Return mean and variance, kept dimensions, in two passes."""
    dims = _all(x, dims)
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
    dims = _all(x, dim)
    return _without(variance, dims), _without(mean, dims)


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
    dims = _all(x, dim)
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


# Operators of aten that are chains of simpler ones, as the steps that kernels take.
#
# They run under the shadow, which sees each step. A chain gives what torch's own
# operator gives in float64, special values included (`tests/contracts/test_aten.py`).

STEPS_OF_ATEN: Final[dict[str, Callable[..., Any]]] = {
    "deg2rad": lambda x: x * (math.pi / 180),
    "rad2deg": lambda x: x * (180 / math.pi),
    "frac": lambda x: x - x.trunc(),
    "heaviside": lambda x, values: torch.where(
        x == 0, values, torch.where(x > 0, torch.ones_like(x), torch.zeros_like(x))
    ),
    "ldexp": lambda x, y: x * torch.exp2(y),
    "nansum": lambda x, dim=None, keepdim=False, **_: torch.where(
        x.isnan(), torch.zeros_like(x), x
    ).sum(_all(x, dim), keepdim=keepdim),
    "count_nonzero": lambda x, dim=None: (x != 0).sum(_all(x, dim)),
    "trace": lambda x: x.diagonal().sum(),
    "dist": lambda x, y, p=2: vector_norm(x - y, p),
    "special_xlog1py": lambda x, y: torch.where(
        y.isnan(), y, torch.where(x == 0, torch.zeros_like(x), x * y.log1p())
    ),
    "special_entr": lambda x: torch.where(
        x > 0, -x * x.log(), torch.where(x < 0, -math.inf, x * 0.0)
    ),
    "addr": lambda x, a, b, *, beta=1, alpha=1: torch.addmm(
        x.expand(a.shape[0], b.shape[0]), a[:, None], b[None], beta=beta, alpha=alpha
    ),
    "addbmm": lambda x, a, b, *, beta=1, alpha=1: torch.addmm(
        x.expand(a.shape[1], b.shape[2]),
        a.permute(1, 0, 2).reshape(a.shape[1], a.shape[0] * a.shape[2]),
        b.reshape(b.shape[0] * b.shape[1], b.shape[2]),
        beta=beta,
        alpha=alpha,
    ),
    # Gradients, each times g.
    "tanh_backward": lambda g, y: g * (1 - y * y),
    "sigmoid_backward": lambda g, y: g * ((1 - y) * y),
    "threshold_backward": lambda g, x, least: torch.where(
        x <= least, torch.zeros_like(g), g
    ),
    "leaky_relu_backward": lambda g, x, slope, _: torch.where(x > 0, g, g * slope),
    "hardsigmoid_backward": lambda g, x: torch.where(
        (x > -3) & (x < 3), g / 6, torch.zeros_like(g)
    ),
}
for _name, _chain in (CHAINS | STEPS_OF_ATEN).items():
    composite(_name)(_chain)


@composite("nan_to_num")
def nan_to_num(
    x: Tensor, nan: Any = None, posinf: Any = None, neginf: Any = None
) -> Tensor:
    """Numbers in the place of NaN and infinities; the format's own are not known."""
    if posinf is None or neginf is None:
        raise NoRule("aten.nan_to_num")
    made = torch.where(x.isnan(), 0.0 if nan is None else nan, x)
    made = torch.where(x == math.inf, posinf, made)
    return torch.where(x == -math.inf, neginf, made)


@composite("logaddexp2")
def logaddexp2(a: Tensor, b: Tensor) -> Tensor:
    """Max + log2(1 + 2^-|a - b|); of equal infinities that one."""
    tail = torch.exp2(-(a - b).abs()).log1p() / math.log(2)
    made = torch.maximum(a, b) + tail
    return torch.where((a == b) & a.isinf(), a, made)


@composite("logaddexp")
def logaddexp(a: Tensor, b: Tensor) -> Tensor:
    """Max + log(1 + exp(-|a - b|)); of equal infinities that one."""
    made = torch.maximum(a, b) + (-(a - b).abs()).exp().log1p()
    return torch.where((a == b) & a.isinf(), a, made)


@composite("lerp")
def lerp(a: Tensor, b: Tensor, weight: Any) -> Tensor:
    """From the nearer end: a + w (b - a) below a half, b - (1 - w) (b - a) above."""
    w = torch.as_tensor(weight, dtype=a.dtype, device=a.device)
    from_b = b - (b - a) * (1 - w)
    return torch.where(w.abs() < 0.5, a + w * (b - a), from_b)


@composite("logit")
def logit(x: Tensor, eps: float | None = None) -> Tensor:
    """log(x / (1 - x)), x within [eps, 1 - eps]."""
    inside = x if eps is None else x.clamp(eps, 1 - eps)
    return (inside / (1 - inside)).log()


@composite("gelu_backward")
def gelu_backward(g: Tensor, x: Tensor, *, approximate: str = "none") -> Tensor:
    """Gradients of `x Phi(x)`, by erf or the approximation by tanh."""
    if approximate == "tanh":
        cube = x * x * x
        inner = (x + 0.044715 * cube) * math.sqrt(2 / math.pi)
        t = inner.tanh()
        slope = (1 + 3 * 0.044715 * (x * x)) * math.sqrt(2 / math.pi)
        return g * (0.5 * (1 + t) + 0.5 * x * ((1 - t * t) * slope))
    cdf = 0.5 * (1 + (x * math.sqrt(0.5)).erf())
    density = (-0.5 * (x * x)).exp() * (1 / math.sqrt(2 * math.pi))
    return g * (cdf + x * density)


@composite("softplus_backward")
def softplus_backward(g: Tensor, x: Tensor, beta: float, threshold: float) -> Tensor:
    """`g z / (1 + z)`, z = exp(beta x); g above the threshold."""
    z = (x * beta).exp()
    return torch.where(x * beta > threshold, g, g * z / (z + 1))


@composite("elu_backward")
def elu_backward(
    g: Tensor, alpha: float, scale: float, input_scale: float, is_result: bool,
    x: Tensor,
) -> Tensor:  # fmt: skip
    """Gradients at the argument, not at the result."""
    if is_result:
        raise NoRule("aten.elu_backward")
    below = g * (input_scale * alpha * scale) * (x * input_scale).exp()
    return torch.where(x <= 0, below, g * scale)


@composite("binary_cross_entropy")
def binary_cross_entropy(
    x: Tensor, y: Tensor, weight: Tensor | None = None, reduction: int = 1
) -> Tensor:
    """-(y log x + (1 - y) log(1 - x)), each logarithm at least -100."""
    some, none = x.log().clamp(min=-100), (-x).log1p().clamp(min=-100)
    made = (y - 1) * none - y * some
    return _reduced(made if weight is None else made * weight, reduction)


@composite("soft_margin_loss")
def soft_margin_loss(x: Tensor, y: Tensor, reduction: int = 1) -> Tensor:
    """log(1 + exp(-x y)), which overflows where x y is far below 0."""
    return _reduced((-y * x).exp().log1p(), reduction)


@composite("linalg_cross")
def cross(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """Differences of two products."""
    ahead = x.roll(-1, dim) * y.roll(-2, dim)
    return ahead - x.roll(-2, dim) * y.roll(-1, dim)


@composite("_cdist_forward")
def cdist(x: Tensor, y: Tensor, p: float, _: Any = None) -> Tensor:
    """Norms of all differences of two rows."""
    if p not in (1.0, 2.0, math.inf):
        raise NoRule("aten._cdist_forward")
    made: Tensor = vector_norm(x.unsqueeze(-2) - y.unsqueeze(-3), p, -1)
    return made


# Pooling as chains of simpler operators, in any number of dimensions.
#
# They run under the shadow, which sees each step.


def _average(name: str, rank: int) -> None:
    """Register the mean of each window in some number of dimensions."""

    def pool(
        x: Tensor, size: Sequence[int], stride: Sequence[int] = (),
        padding: Sequence[int] = (0,), ceil: bool = False, counted: bool = True,
        divisor: Any = None,
    ) -> Tensor:  # fmt: skip
        """The mean of each window."""
        padded = any(padding)
        if ceil or divisor is not None or (padded and not counted):
            raise NoRule(f"aten.{name}")
        steps = _pooling_all(stride or size, rank)
        made = _windows(
            x,
            _pooling_all(size, rank),
            steps,
            _pooling_all(padding, rank),
            [1] * rank,
            0.0,
        )
        return made.mean(list(range(-rank, 0)))

    composite(name)(pool)


def _greatest(name: str, rank: int) -> None:
    """Register the maximum of each window in some number of dimensions."""

    def pool(
        x: Tensor, size: Sequence[int], stride: Sequence[int] = (),
        padding: Sequence[int] = (0,), dilation: Sequence[int] = (1,),
        ceil: bool = False,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """The maximum of each window, and its place in the space."""
        if ceil:
            raise NoRule(f"aten.{name}")
        sizes, room = _pooling_all(size, rank), _pooling_all(padding, rank)
        steps, far = _pooling_all(stride or size, rank), _pooling_all(dilation, rank)
        return _highest(x, sizes, steps, room, far)

    composite(name)(pool)


for _rank in (2, 3):
    _average(f"avg_pool{_rank}d", _rank)
    _greatest(f"max_pool{_rank}d_with_indices", _rank)


@composite("_adaptive_avg_pool2d", "_adaptive_avg_pool3d")
def adaptive_average(x: Tensor, size: Sequence[int]) -> Tensor:
    """The mean of each part, where all parts have one size."""
    rank = len(size)
    parts = _parts(x, size, "aten._adaptive_avg_pool")
    made = _windows(x, parts, parts, [0] * rank, [1] * rank, 0.0)
    return made.mean(list(range(-rank, 0)))


@composite("adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_greatest(x: Tensor, size: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The maximum of each part, where all parts have one size."""
    parts = _parts(x, size, "aten.adaptive_max_pool")
    return _highest(x, parts, parts, [0] * len(size), [1] * len(size))


def _parts(x: Tensor, size: Sequence[int], name: str) -> list[int]:
    """Return the sizes of equal parts."""
    have = x.shape[-len(size) :]
    if any(m == 0 or n % m for n, m in zip(have, size, strict=True)):
        raise NoRule(name)
    return [n // m for n, m in zip(have, size, strict=True)]


def _highest(
    x: Tensor, size: Sequence[int], stride: Sequence[int], room: Sequence[int],
    far: Sequence[int],
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return the maximum of each window, and its place in the space."""
    rank = len(size)
    windows = _windows(x, size, stride, room, far, -math.inf)
    values, at = windows.flatten(-rank).max(-1)
    place = torch.zeros_like(at)
    for axis in range(rank):
        inside = at // math.prod(size[axis + 1 :])
        inside = inside - inside // size[axis] * size[axis]
        count = values.shape[axis - rank]
        first = torch.arange(count, device=x.device) * stride[axis] - room[axis]
        first = first.reshape(-1, *[1] * (rank - 1 - axis))
        place = place * x.shape[axis - rank] + first + inside * far[axis]
    return values, place


def _windows(
    x: Tensor, size: Sequence[int], stride: Sequence[int], room: Sequence[int],
    far: Sequence[int], fill: float,
) -> Tensor:  # fmt: skip
    """Return [..., *places, *size].

    Args:
        x: [..., *space].
        size: elements of a window along each axis.
        stride: from one window to the next.
        room: padding on either side.
        far: from one element of a window to the next.
        fill: what the padding holds.
    """
    rank = len(size)
    if any(room):
        edges = [n for axis in reversed(room) for n in (axis, axis)]
        x = functional.pad(x, edges, value=fill)
    for axis in range(rank):
        # Each window that is unfolded comes last, and its places stay where they were.
        x = x.unfold(-rank, (size[axis] - 1) * far[axis] + 1, stride[axis])
        x = x[..., :: far[axis]]
    return x


def _pooling_all(x: Sequence[int], rank: int) -> list[int]:
    return list(x) * rank if len(x) == 1 else list(x)
