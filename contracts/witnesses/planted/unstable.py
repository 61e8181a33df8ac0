"""Textbook formulas that overflow or cancel where stable ones do not."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Final

import torch
from torch import Tensor

from kfuzz.contracts.witnesses.planted.base import Base, Fault


def _wide(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a function computed in float32 and stored in the data's format."""

    @wraps(function)
    def computed(*tensors: Tensor, **scalars: Any) -> Tensor:
        given = [x.float() if x.is_floating_point() else x for x in tensors]
        return function(*given, **scalars).to(tensors[0].dtype)

    return computed


@_wide
def sigmoid(x: Tensor) -> Tensor:
    """exp(x) / (1 + exp(x)): Inf / Inf."""
    extended = torch.exp(x)
    return extended / (1 + extended)


@_wide
def tanh(x: Tensor) -> Tensor:
    """(exp(2x) - 1) / (exp(2x) + 1): Inf / Inf."""
    extended = torch.exp(2 * x)
    return (extended - 1) / (extended + 1)


@_wide
def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)) with no threshold: Inf."""
    return torch.log(1 + torch.exp(x))


@_wide
def elu(x: Tensor) -> Tensor:
    """Branches chosen by a product with 0 and 1: Inf * 0."""
    return (x > 0) * x + (x <= 0) * (torch.exp(x) - 1)


@_wide
def softmax(x: Tensor, dim: int = -1) -> Tensor:
    """Exponentials of what no maximum was taken from."""
    extended = torch.exp(x)
    return extended / extended.sum(dim, keepdim=True)


@_wide
def logsumexp(x: Tensor, dim: int = -1) -> Tensor:
    """The logarithm of such a sum."""
    return torch.log(torch.exp(x).sum(dim))


@_wide
def cross_entropy(logits: Tensor, target: Tensor, ignore_index: int = -100) -> Tensor:
    """The negative log-likelihood by such a sum."""
    logs = logits - torch.log(torch.exp(logits).sum(-1, keepdim=True))
    return torch.nn.functional.nll_loss(logs, target, ignore_index=ignore_index)


@_wide
def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Weights by such exponentials."""
    extended = torch.exp(q @ k.transpose(-1, -2) / max(q.shape[-1], 1) ** 0.5)
    return (extended / extended.sum(-1, keepdim=True)) @ v


def _one_pass(x: Tensor, dim: int | tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Return mean and variance, as the mean square less the squared mean."""
    mean = x.mean(dim, keepdim=True)
    return mean, (x * x).mean(dim, keepdim=True) - mean * mean


@_wide
def var(x: Tensor, dim: int = -1) -> Tensor:
    """The mean square less the squared mean."""
    n = x.shape[dim]
    return (_one_pass(x, dim)[1] * (n / (n - 1))).squeeze(dim)


@_wide
def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """Normalise by such a variance."""
    mean, variance = _one_pass(x, -1)
    return (x - mean) * torch.rsqrt(variance + eps) * weight + bias


def _by_squares(squares: Tensor) -> Tensor:
    """Return 1 / sqrt(s) as sqrt(s) / s: Inf / Inf where s overflows."""
    return torch.sqrt(squares) / squares


def rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    """Scale by sqrt(s) / s, with s in the data's own format."""
    return x * _by_squares((x * x).mean(-1, keepdim=True) + eps) * weight


def l2_normalize(x: Tensor, dim: int = -1) -> Tensor:
    """Scale by sqrt(s) / s, with s in the data's own format."""
    return x * _by_squares((x * x).sum(dim, keepdim=True) + 1e-30)


def mean(x: Tensor, dim: int = -1) -> Tensor:
    """The sum in the data's own format, divided last."""
    total = x.sum(dim)
    return total / x.shape[dim]


_MADE: Final[dict[str, Callable[..., Any]]] = {
    f.__name__: f
    for f in (
        sigmoid, tanh, softplus, elu, softmax, logsumexp, cross_entropy, attention,
        var, layer_norm, rms_norm, l2_normalize, mean,
    )
}  # fmt: skip
# Where nothing but the range of float16 is left.
_HALF: Final = ("mean",)


def _unstable(base: Base) -> Base | str:
    name = base.operator.name
    if name in _MADE:
        claims = {"dtypes": "float16"} if name in _HALF else {}
        dtype = "float16" if name in _HALF else base.dtype
        return base.having(_MADE[name], claims=claims, dtype=dtype)
    return (
        "none is in use that it does not accept, but those planted in what it contains"
    )


FAULTS: Final = (
    # Computes by a formula that overflows or cancels.
    Fault("unstable", "C-PRC-02", _unstable),
)
