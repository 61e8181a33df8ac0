"""Correct elementwise algorithms in float32, and their half-precision impostors.

Each form is written once, over the exponential that it calls, and runs on float32
tensors; `stored` rounds its result once to the data's format.
"""

import math
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor

Function = Callable[..., Tensor]
LEAST_NORMAL: Final = 2.0**-126
LOG2_E: Final = 1.4426950408889634
LN_2: Final = 0.6931471805599453


def stored(form: Function) -> Function:
    """Make an operator's implementation of a form in float32."""

    def call(*xs: Tensor, **scalars: Any) -> Tensor:
        return form(*(x.float() for x in xs), **scalars).to(xs[0].dtype)

    return call


def flush(x: Tensor) -> Tensor:
    """Replace float32 subnormals by zeros of their sign."""
    return torch.where(x.abs() < LEAST_NORMAL, torch.copysign(torch.zeros(()), x), x)


def flushed(form: Function) -> Function:
    """Return a form whose operands and result are flushed."""
    return lambda *xs, **scalars: flush(form(*map(flush, xs), **scalars))


def nudged(y: Tensor) -> Tensor:
    """Move results by two units in the last place, up and down in turn."""
    up = (torch.arange(y.numel()) % 2 == 0).reshape(y.shape)
    far = torch.where(up, torch.full_like(y, math.inf), torch.full_like(y, -math.inf))
    moved = torch.nextafter(torch.nextafter(y, far), far)
    # exp(0), and tanh and erf where they saturate, are 1 in every library.
    usual = (
        torch.isfinite(y)
        & torch.isfinite(moved)
        & (y.abs() > LEAST_NORMAL)
        & (y.abs() != 1)
    )
    return torch.where(usual, moved, y)


# What kernels call exp: a library's at its documented error, one through base 2, and
# one that flushes too.
EXPONENTIALS: Final[dict[str, Function]] = {
    "coarse": lambda x: nudged(torch.exp(x)),
    "exp2": lambda x: torch.exp2(x * LOG2_E),
    "flushing": lambda x: flush(torch.exp2(flush(x) * LOG2_E)),
}


def over_exponentials(**forms: Function) -> dict[str, Function]:
    """Return every form with every exponential, stored."""
    return {
        f"{name} {kind}": stored(
            lambda *xs, _form=form, _exp=exp, **scalars: _form(_exp, *xs, **scalars)
        )
        for name, form in forms.items()
        for kind, exp in EXPONENTIALS.items()
    }


def in_turn(made: dict[str, Function]) -> dict[str, Function]:
    """Return the first form with the first exponential, the second with the next, …

    Together with the honest one that is enough for many small cases.
    """
    step = len(EXPONENTIALS) + 1
    several = len(made) > len(EXPONENTIALS)
    return dict(list(made.items())[:: step if several else 1])


# --- sigmoid and its kin --------------------------------------------------------


def reciprocal_sigmoid(exp: Function, x: Tensor) -> Tensor:
    return 1 / (1 + exp(-x))


def stable_sigmoid(exp: Function, x: Tensor) -> Tensor:
    e = exp(-x.abs())
    return torch.where(x >= 0, 1 / (1 + e), e * (1 / (1 + e)))


def silu_product(exp: Function, x: Tensor) -> Tensor:
    return x * reciprocal_sigmoid(exp, x)


def silu_quotient(exp: Function, x: Tensor) -> Tensor:
    return x / (1 + exp(-x))


def silu_stable(exp: Function, x: Tensor) -> Tensor:
    return x * stable_sigmoid(exp, x)


def tanh_of_sigmoid(exp: Function, x: Tensor) -> Tensor:
    return 2 * reciprocal_sigmoid(exp, 2 * x) - 1


# --- gelu -----------------------------------------------------------------------


def gelu_factor(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.erf(x * 0.7071067811865476))


def gelu_sum(x: Tensor) -> Tensor:
    half = 0.5 * x
    return torch.where(
        x == math.inf, x, half + half * torch.erf(x / 1.4142135623730951)
    )


def gelu_coarse(x: Tensor) -> Tensor:
    return x * (0.5 * (1 + nudged(torch.erf(x / math.sqrt(2.0))).clamp(-1, 1)))


def gelu_complement(x: Tensor) -> Tensor:
    return 0.5 * x * torch.erfc(-x * 0.7071067811865476)


def _tanh_argument(x: Tensor) -> Tensor:
    return 0.7978845608028654 * x * (1 + 0.044715 * x * x)


def gelu_tanh_plain(x: Tensor) -> Tensor:
    t = 0.7978845608028654 * (x + 0.044715 * (x * x * x))
    return 0.5 * x * (1 + torch.tanh(t))


def gelu_tanh_coarse(x: Tensor) -> Tensor:
    return 0.5 * (x * (1 + nudged(torch.tanh(_tanh_argument(x))).clamp(-1, 1)))


def gelu_tanh_sigmoid(exp: Function, x: Tensor) -> Tensor:
    return x * reciprocal_sigmoid(exp, 2 * _tanh_argument(x))


def gelu_tanh_exp(exp: Function, x: Tensor) -> Tensor:
    return 0.5 * x * (1 + tanh_of_sigmoid(exp, _tanh_argument(x)))


# --- softplus, elu ----------------------------------------------------------------


def softplus_log1p(
    exp: Function, x: Tensor, *, beta: float, threshold: float
) -> Tensor:
    z = x * beta
    return torch.where(z > threshold, x, torch.log1p(exp(z)) / beta)


def softplus_stable(
    exp: Function, x: Tensor, *, beta: float, threshold: float
) -> Tensor:
    z = x * beta
    soft = z.clamp(min=0) + torch.log1p(exp(-z.abs()))
    return torch.where(z > threshold, x, soft * (1 / beta))


def softplus_log(exp: Function, x: Tensor, *, beta: float, threshold: float) -> Tensor:
    z = x * beta
    return torch.where(z > threshold, x, torch.log(1 + exp(z)) / beta)


def elu_exp(exp: Function, x: Tensor, *, alpha: float) -> Tensor:
    return torch.where(x > 0, x, alpha * (exp(x) - 1))


def elu_clamped(exp: Function, x: Tensor, *, alpha: float) -> Tensor:
    e = exp(x.clamp(max=0))
    return x.clamp(min=0) + (alpha * e - alpha)


def elu_expm1(x: Tensor, *, alpha: float) -> Tensor:
    return torch.where(x > 0, x, alpha * nudged(torch.expm1(x.clamp(max=0))))


# --- half precision: every step in the narrow format --------------------------------


def narrow(value: float, like: Tensor) -> Tensor:
    return torch.tensor(value, dtype=like.dtype)


def half_sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-x))


def half_tanh(x: Tensor) -> Tensor:
    e = torch.exp(-2 * x.abs())
    return torch.copysign((1 - e) / (1 + e), x)


def half_gelu(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.erf(x * narrow(0.7071067811865476, x)))


def half_gelu_tanh(x: Tensor) -> Tensor:
    t = narrow(0.7978845608028654, x) * (x + narrow(0.044715, x) * (x * x * x))
    return 0.5 * x * (1 + torch.tanh(t))


def half_softplus(x: Tensor, *, beta: float, threshold: float) -> Tensor:
    z = x * beta
    return torch.where(z > threshold, x, torch.log(1 + torch.exp(z)) / beta)


def half_elu(x: Tensor, *, alpha: float) -> Tensor:
    return torch.where(x > 0, x, alpha * (torch.exp(x) - 1))


def half_leaky_relu(x: Tensor, *, negative_slope: float) -> Tensor:
    return torch.where(x > 0, x, x * narrow(negative_slope, x))


def half_exp(x: Tensor) -> Tensor:
    return torch.exp2(x * narrow(LOG2_E, x))


def half_log(x: Tensor) -> Tensor:
    return torch.log2(x) * narrow(LN_2, x)
