"""Operators that are chains of simpler ones, as the steps that kernels take.

They run under the shadow, which sees each step. A chain gives what torch's own operator
gives in float64, special values included (`tests/contracts/test_aten.py`).
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
import torch.nn.functional as functional
from torch import Tensor

from kfuzz.numerics.shadow.shade import COMPOSITES, NoRule, Widened, composite

# As torch itself decomposes them: the same steps that kernels take.
DECOMPOSED: Final = (
    "_adaptive_avg_pool2d", "_fused_rms_norm", "_log_softmax", "_prelu_kernel",
    "_safe_softmax", "_softmax", "aminmax", "binary_cross_entropy", "celu",
    "count_nonzero", "deg2rad",
    "elu", "elu_backward", "frac", "gelu", "gelu_backward", "glu", "hardshrink",
    "hardsigmoid", "hardsigmoid_backward", "hardswish", "heaviside", "huber_loss",
    "leaky_relu", "leaky_relu_backward", "linalg_cross",
    "log_sigmoid_forward", "logaddexp", "logaddexp2", "logit",
    "logsumexp", "masked_fill", "mish", "mse_loss", "nansum", "nll_loss2d_forward",
    "nll_loss_forward", "rad2deg", "sigmoid_backward", "silu",
    "smooth_l1_loss", "soft_margin_loss", "softplus", "softplus_backward",
    "softshrink", "special_xlog1py", "std", "std_mean", "tanh_backward", "threshold",
    "threshold_backward", "trace",
)  # fmt: skip
COMPOSITES.update(dict.fromkeys(f"aten.{name}" for name in DECOMPOSED))

# Others of one line: where torch has no decomposition, or one with other operators.
CHAINS: Final[dict[str, Callable[..., Any]]] = {
    "addcmul": lambda x, a, b, *, value=1: _in_any_order(
        x + value * (a * b), value * a, value * b
    ),
    "addcdiv": lambda x, a, b, *, value=1: _in_any_order(
        x + value * (a / b), value * a
    ),
    "var": lambda x, dim=None, **options: var_mean(x, dim, **options)[0],
    "dist": lambda x, y, p=2: vector_norm(x - y, p),
    "ldexp": lambda x, y: x * torch.exp2(y),
    "bucketize": lambda x, edges, **options: searchsorted(edges, x, **options),
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
}
for _name, _chain in CHAINS.items():
    composite(_name)(_chain)


@composite("searchsorted")
def searchsorted(
    edges: Tensor, x: Tensor, *, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """How many of the edges, which rise, lie below each number, or at it, too."""
    if sorter is not None:
        edges = edges.gather(-1, sorter)
    ends, numbers = edges.unsqueeze(-2), x.unsqueeze(-1)
    below = ends <= numbers if right or side == "right" else ends < numbers
    made = below.sum(-1).reshape(x.shape)
    return made.to(torch.int32 if out_int32 else torch.int64)


def _in_any_order(made: Tensor, *factors: Tensor) -> Widened:
    """Return a result on whose way other factors may be multiplied first."""
    reach = torch.zeros_like(made)
    for x in factors:
        size = torch.where(torch.isfinite(x), x.abs(), 0.0)
        reach = torch.maximum(reach, size.expand(made.shape))
    none = torch.zeros_like(made)
    return Widened(made, none, none, reach)


@composite("lerp")
def lerp(a: Tensor, b: Tensor, weight: Any) -> Widened:
    """As torch has it, by the nearer end; a + w (b - a) and (1 - w) a + w b round a."""
    step = b - a
    far = torch.as_tensor(abs(weight) >= 0.5)
    made = torch.where(far, b - step * (1 - weight), a + weight * step)
    units = a.abs() + (weight * step).abs()
    none = torch.zeros_like(made)
    return Widened(made, torch.where(units.isfinite(), units, 0.0), none, none)


@composite("linalg_vector_norm", "norm")
def vector_norm(
    x: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, **_: Any
) -> Tensor:
    """Norms of order 1, 2 and infinity.

    Torch's own steps give |x| of one element, exactly: kernels take its root, too.
    """
    dims = _all(x, dim)
    if ord is None or ord == 2:
        return (x * x).sum(dims, keepdim=keepdim).sqrt()
    if ord == 1:
        return x.abs().sum(dims, keepdim=keepdim)
    if ord == math.inf:
        return x.abs().amax(dims, keepdim=keepdim)
    raise NoRule("aten.linalg_vector_norm")


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
    # Where means are merged the square of a difference may be twice the sum.
    squares = (2 * (centred * centred)).sum(dims, keepdim=True) / 2
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


@composite("native_layer_norm")
def layer_norm(
    x: Tensor, shape: Sequence[int], weight: Any, bias: Any, eps: float
) -> tuple[Widened, Tensor, Tensor]:
    """(x - mean) rsqrt(variance + eps) g + b."""
    dims = list(range(-len(shape), 0))
    mean, variance = _moments(x, dims, 0)
    scale = (variance + eps).rsqrt()
    return _scaled(x, mean, scale, weight, bias), mean, scale


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


@composite("_cdist_forward")
def cdist(x: Tensor, y: Tensor, p: float, _: Any = None) -> Tensor:
    """Norms of all differences of two rows."""
    if p not in (1.0, 2.0, math.inf):
        raise NoRule("aten._cdist_forward")
    made: Tensor = torch.linalg.vector_norm(x.unsqueeze(-2) - y.unsqueeze(-3), p, -1)
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


@composite("_adaptive_avg_pool3d")
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
