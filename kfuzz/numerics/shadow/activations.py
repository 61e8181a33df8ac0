"""Activations, losses and fused arithmetic as chains of simpler operators.

They run under the shadow, which sees each step.
"""

import math
from collections.abc import Callable
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


for _name, _chain in CHAINS.items():
    composite(_name)(_chain)


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
    dims = list(range(x.dim())) if dim is None else dim
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
