import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from kfuzz.core.declaration import Declaration
from kfuzz.core.recipe import Plant
from kfuzz.numerics.compare import Outcome, compare
from tests.helpers import correct_algorithms as correct
from tests.helpers.operator_cases import (
    DTYPES,
    OPERATORS,
    TORCH,
    Algorithm,
    case_of,
    compared,
    describe,
    pose_case,
    posed,
)

NAMES = list(OPERATORS)


def fails_on(
    name: str,
    dtype: str,
    impostor: Algorithm,
    family: str,
    shape: tuple[int, ...],
    *,
    other: str = "randn",
    seed: int = 1,
    claims: Declaration | None = None,
) -> bool:
    scalars = {"dim": -1} if name in ("sum", "softmax", "amax") else {}
    if name == "layer_norm":
        scalars = {"eps": 1e-5}
    case = case_of(name, dtype, family, shape, scalars, other=other, seed=seed)
    values, problem, acceptance = pose_case(OPERATORS[name], case, claims)
    made = compared(impostor, case, values, problem, acceptance)
    return bool(made.missed.any())


SHAPE = {name: (4, 64, 4) if name == "matmul" else (4, 64) for name in NAMES}


def dropped(name: str, keep: int) -> Algorithm:
    """Leave out the last elements of the reduced axis."""

    def call(*xs: Tensor, **scalars: object) -> Tensor:
        if name == "matmul":
            return torch.matmul(xs[0][:, :keep], xs[1][:keep])
        x = xs[0].float()
        if name == "softmax":
            top = x.amax(-1, keepdim=True)
            weight = torch.exp(x - top)
            total = weight[..., :keep].sum(-1, keepdim=True)
            return (weight / total).to(xs[0].dtype)
        if name == "layer_norm":
            part = x[..., :keep]
            mean = part.mean(-1, keepdim=True)
            v = ((part - mean) ** 2).mean(-1, keepdim=True)
            y = (x - mean) * torch.rsqrt(v + 1e-5) * xs[1].float() + xs[2].float()
            return y.to(xs[0].dtype)
        return TORCH[name](xs[0][..., :keep], **scalars)

    return call


REDUCING = ["sum", "softmax", "layer_norm", "matmul", "amax"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", REDUCING)
def test_a_dropped_tail_is_refused(name: str, dtype: str) -> None:
    shape = (4, 65, 4) if name == "matmul" else (4, 65)
    for family in ("tail_big", "onehot_tail", "ramp"):
        other = "ones" if name == "matmul" else "randn"
        found = (
            fails_on(name, dtype, dropped(name, 64), family, shape, other=other, seed=s)
            for s in range(1, 7)
        )
        assert any(found), family


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["softmax", "layer_norm"])
def test_intermediates_in_the_output_format_are_admitted_where_declared(
    name: str, dtype: str
) -> None:
    """Sums in float32, everything else rounded to the output's format."""

    def softmax(x: Tensor, *, dim: int) -> Tensor:
        weight = torch.exp(x - x.amax(dim, keepdim=True))
        return weight / weight.sum(dim, keepdim=True)

    def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, *, eps: float) -> Tensor:
        d = x - x.mean(-1, keepdim=True)
        r = torch.rsqrt((d * d).mean(-1, keepdim=True) + eps)
        return d * r * weight + bias

    kernel: Algorithm = softmax if name == "softmax" else layer_norm
    refused = 0
    for case, values, problem, loose in posed(
        name, dtype, (("intermediates", "output"),)
    ):
        if next(iter(values.values())).numel() == 0:
            continue
        assert not compared(kernel, case, values, problem, loose).missed.any(), (
            describe(case)
        )
        strict = pose_case(OPERATORS[name], case)[2]
        refused += bool(compared(kernel, case, values, problem, strict).missed.any())
    assert refused > 10


def test_flushing_a_subnormal_against_an_infinity_may_give_nan() -> None:
    """Matrix units that flush their operands compute 0 * Inf."""
    plain = case_of("matmul", "bfloat16", "zeros", (1, 2, 1), {}, other="ones")
    # The least subnormal meets +Inf.
    small = replace(plain.tensors["a"], plants=(Plant((0, 1), 1),))
    infinite = replace(plain.tensors["b"], plants=(Plant((1, 0), 0x7F80),))
    case = plain.with_tensor("a", small).with_tensor("b", infinite)
    results = torch.tensor([math.inf, math.nan, -math.inf, 0.0]).reshape(4, 1, 1, 1)
    any_mode = pose_case(OPERATORS["matmul"], case)[2]
    missed = [bool(compare(y, any_mode).missed) for y in results]
    assert missed == [False, False, True, True]
    claims = Declaration(subnormals="preserve")
    strict = pose_case(OPERATORS["matmul"], case, claims)[2]
    missed = [bool(compare(y, strict).missed) for y in results]
    assert missed == [False, True, True, True]


def test_flushed_weights_and_biases_of_layer_norm_are_admitted() -> None:
    case = case_of(
        "layer_norm", "float32", "randn", (8, 128), {"eps": 1e-5}, other="minnormal"
    )
    values, problem, acceptance = pose_case(OPERATORS["layer_norm"], case)
    flushing = correct.LAYER_NORMS["flushing_norm"]
    made = compared(flushing, case, values, problem, acceptance)
    assert not made.missed.any()


def test_float16_intermediates_that_overflow_or_vanish_are_undecided() -> None:
    """Squares of 300 exceed float16; an eps of 1e-12 is zero in it."""
    claims = Declaration(intermediates="output")
    operator = OPERATORS["layer_norm"]
    for family, eps in (("absorb", 0.1), ("all_equal", 1e-12)):
        case = case_of("layer_norm", "float16", family, (2, 31), {"eps": eps})
        acceptance = pose_case(operator, case, claims)[2]
        made = compare(torch.full((1, 2, 31), math.nan), acceptance)
        assert (made.outcomes == Outcome.UNDECIDED).all()
        declared_wide = pose_case(operator, case)[2]
        made = compare(torch.full((1, 2, 31), math.nan), declared_wide)
        assert (made.outcomes == Outcome.NAN_UNEXPECTED).all()
