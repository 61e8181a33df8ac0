"""Operators of aten that are chains of simpler ones, as the steps that kernels take.

They run under the shadow, which sees each step. A chain gives what torch's own operator
gives in float64, special values included (`tests/contracts/test_aten.py`).
"""

import math
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor

from kfuzz.numerics.shadow.composites import vector_norm
from kfuzz.numerics.shadow.shade import NoRule, composite

CHAINS: Final[dict[str, Callable[..., Any]]] = {
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
for _name, _chain in CHAINS.items():
    composite(_name)(_chain)


def _all(x: Tensor, dim: Any) -> list[int]:
    """Return the dimensions that a reduction is over."""
    if dim is None or (isinstance(dim, list | tuple) and not dim):
        return list(range(x.dim()))
    return [dim] if isinstance(dim, int) else list(dim)


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
    made = made if weight is None else made * weight
    if not reduction:
        return made
    return made.mean() if reduction == 1 else made.sum()


@composite("soft_margin_loss")
def soft_margin_loss(x: Tensor, y: Tensor, reduction: int = 1) -> Tensor:
    """log(1 + exp(-x y)), which overflows where x y is far below 0."""
    made = (-y * x).exp().log1p()
    if not reduction:
        return made
    return made.mean() if reduction == 1 else made.sum()


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
