"""Correct and faulty implementations: elementwise."""

from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional

from kfuzz.contracts import operators as ops
from kfuzz.contracts.operator import Operator
from tests.helpers import elementwise_algorithms as forms
from tests.helpers.elementwise_algorithms import (
    flushed,
    in_turn,
    over_exponentials,
    stored,
)
from tests.helpers.impostors import (
    Algorithm,
    Setup,
    Subject,
)

SHAPES: Final = ((3, 33), (), (0,))
RANDN: Final = ("randn",)


NO_INFINITY: Final = frozenset({"clamp", "sigmoid", "tanh"})


def unary(operator: Operator, honest: Algorithm, **known: Any) -> Subject:
    setups = tuple(
        Setup((shape,), scalars)
        for shape, scalars in zip(SHAPES, _scalars(operator), strict=True)
    )
    known.setdefault("families", RANDN)
    known["infinities"] = operator.name not in NO_INFINITY
    ordinary = Setup(((4, 64),), _defaults(operator))
    return Subject(operator, honest, setups, ordinary, **known)


def binary(operator: Operator, honest: Algorithm, **known: Any) -> Subject:
    setups = tuple(Setup((shape, shape)) for shape in SHAPES)
    known.setdefault("families", RANDN)
    return Subject(operator, honest, setups, Setup(((4, 64), (4, 64))), **known)


def _defaults(operator: Operator) -> dict[str, Any]:
    return {name: p.default for name, p in operator.scalars.items()}


def _scalars(operator: Operator) -> list[dict[str, Any]]:
    """Return the scalars of each shape: the defaults, then others in turn."""
    made = []
    for i in range(len(SHAPES)):
        chosen = _defaults(operator)
        for name, p in operator.scalars.items():
            values = (p.default, *p.domain)
            chosen[name] = values[i % len(values)]
        made.append(chosen)
    return made


def plain_swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return functional.silu(gate.float()).mul(up.float()).to(gate.dtype)


def plain_geglu(gate: Tensor, up: Tensor) -> Tensor:
    return (forms.gelu_factor(gate.float()) * up.float()).to(gate.dtype)


def gated_late(exp: Algorithm, gate: Tensor, up: Tensor) -> Tensor:
    return (gate * up) / (1 + exp(-gate))


def gated_early(exp: Algorithm, gate: Tensor, up: Tensor) -> Tensor:
    return up * forms.silu_stable(exp, gate)


OVER_EXPONENTIALS: Final = {
    "elu": over_exponentials(exp=forms.elu_exp, clamped=forms.elu_clamped),
    "exp": over_exponentials(exp=lambda exp, x: exp(x)),
    "sigmoid": over_exponentials(
        reciprocal=forms.reciprocal_sigmoid, stable=forms.stable_sigmoid
    ),
    "softplus": over_exponentials(
        log1p=forms.softplus_log1p,
        stable=forms.softplus_stable,
        log=forms.softplus_log,
    ),
    "silu": over_exponentials(
        product=forms.silu_product,
        quotient=forms.silu_quotient,
        stable=forms.silu_stable,
    ),
    "gelu_tanh": over_exponentials(
        sigmoid=forms.gelu_tanh_sigmoid, exp=forms.gelu_tanh_exp
    ),
    "swiglu": over_exponentials(late=gated_late, early=gated_early),
}

SUBJECTS: Final = {
    s.operator.name: s
    for s in (
        binary(
            ops.add, torch.add,
            correct={
                "flushed": stored(flushed(torch.add)),
                "swapped": lambda a, b: b + a,
            },
            half=torch.add,
        ),
        binary(
            ops.mul, torch.mul,
            correct={
                "flushed": stored(flushed(torch.mul)),
                "swapped": lambda a, b: b * a,
            },
            half=torch.mul,
        ),
        unary(
            ops.copy, torch.clone, half=torch.clone, right=frozenset({"identity"}),
            correct={"added": lambda x: x.flatten().clone().view_as(x)},
        ),
        unary(
            ops.clamp, torch.clamp, half=lambda x, *, min, max: x.clamp(min, max),
            correct={
                "bounds": stored(
                    lambda x, *, min, max: torch.minimum(
                        torch.maximum(x, torch.tensor(min)), torch.tensor(max)
                    )
                ),
                "selected": lambda x, *, min, max: torch.where(
                    x < min, min, torch.where(x > max, max, x)
                ).to(x.dtype),
            },
        ),
        unary(
            ops.leaky_relu, functional.leaky_relu, half=forms.half_leaky_relu,
            correct={
                "selected": stored(
                    lambda x, *, negative_slope: torch.where(
                        x > 0, x, negative_slope * x
                    )
                ),
                "maximum": stored(
                    lambda x, *, negative_slope: torch.maximum(x, negative_slope * x)
                ),
                "flushed": stored(flushed(
                    lambda x, *, negative_slope: x.clamp(min=0)
                    + negative_slope * x.clamp(max=0)
                )),
            },
        ),
        unary(
            ops.elu, functional.elu, half=forms.half_elu,
            correct={
                "expm1": stored(forms.elu_expm1),
                **in_turn(OVER_EXPONENTIALS['elu']),
            },
        ),
        unary(
            ops.exp, torch.exp, half=forms.half_exp,
            correct=in_turn(OVER_EXPONENTIALS['exp']),
        ),
        unary(
            ops.log, torch.log, half=forms.half_log,
            correct={
                "base 2": stored(lambda x: torch.log2(x) * forms.LN_2),
                "coarse": stored(lambda x: forms.nudged(torch.log(x))),
                "flushed": stored(flushed(torch.log)),
            },
        ),
        unary(
            ops.sigmoid, torch.sigmoid, half=forms.half_sigmoid,
            correct=in_turn(OVER_EXPONENTIALS['sigmoid']),
        ),
        unary(
            ops.tanh, torch.tanh, half=forms.half_tanh,
            correct={
                "coarse": stored(lambda x: forms.nudged(torch.tanh(x))),
                "flushed": stored(flushed(torch.tanh)),
            },
        ),
        unary(
            ops.softplus, functional.softplus, half=forms.half_softplus,
            correct=in_turn(OVER_EXPONENTIALS['softplus']),
        ),
        unary(
            ops.silu, functional.silu, half=lambda x: x * forms.half_sigmoid(x),
            correct=in_turn(OVER_EXPONENTIALS['silu']),
        ),
        unary(
            ops.gelu, stored(forms.gelu_factor), half=forms.half_gelu,
            correct={
                "sum": stored(forms.gelu_sum),
                "coarse": stored(forms.gelu_coarse),
                "complement": stored(forms.gelu_complement),
                "flushed": stored(flushed(forms.gelu_factor)),
            },
        ),
        unary(
            ops.gelu_tanh, stored(forms.gelu_tanh_plain), half=forms.half_gelu_tanh,
            correct={
                "coarse": stored(forms.gelu_tanh_coarse),
                **in_turn(OVER_EXPONENTIALS['gelu_tanh']),
            },
        ),
        binary(
            ops.swiglu, plain_swiglu,
            half=lambda gate, up: gate * forms.half_sigmoid(gate) * up,
            correct=in_turn(OVER_EXPONENTIALS['swiglu']),
        ),
        binary(
            ops.geglu, plain_geglu, half=lambda gate, up: forms.half_gelu(gate) * up,
            correct={
                "sum": stored(lambda gate, up: up * forms.gelu_sum(gate)),
                "late": stored(
                    lambda gate, up: 0.5 * (gate * up)
                    * (1 + torch.erf(gate * 0.7071067811865476))
                ),
            },
        ),
        Subject(
            ops.transpose,
            lambda x: x.transpose(-1, -2),
            tuple(Setup((s,)) for s in ((3, 33), (0, 4), (2, 2, 3, 3))),
            Setup(((8, 16),)),
            correct={"contiguous": lambda x: x.transpose(-1, -2).contiguous()},
            half=lambda x: x.transpose(-1, -2),
        ),
    )
}  # fmt: skip
# One operation of 16-bit numbers in 16 bits is right.
SINGLE: Final = frozenset({"add", "mul", "copy", "clamp", "transpose"})
