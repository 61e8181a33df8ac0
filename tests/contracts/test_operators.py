import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from kfuzz.core.recipe import Plant
from kfuzz.numerics.compare import Outcome
from tests.helpers import correct_algorithms as correct
from tests.helpers.impostors import DTYPES, Algorithm, pose_case, posed
from tests.helpers.subjects.basic import SUBJECTS, TORCH, pose, setup


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
    sizes = setup(name, *shape, **SUBJECTS[name].ordinary.scalars)
    for family in ("tail_big", "onehot_tail", "ramp"):
        other = "ones" if name == "matmul" else "randn"
        cases = (pose(name, dtype, family, sizes, other=other, seed=s)
                 for s in range(1, 7))  # fmt: skip
        found = (bool(c.judge(dropped(name, 64)).missed.any()) for c in cases)
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
    for strict in posed(SUBJECTS[name], dtype):
        if next(iter(strict.values.values())).numel() == 0:
            continue
        loose = pose_case(SUBJECTS[name], strict.case, intermediates="output")
        assert not loose.judge(kernel).missed.any(), str(loose)
        refused += bool(strict.judge(kernel).missed.any())
    assert refused > 10


def test_flushing_a_subnormal_against_an_infinity_may_give_nan() -> None:
    """Matrix units that flush their operands compute 0 * Inf."""
    sizes = setup("matmul", 1, 2, 1)
    plain = pose("matmul", "bfloat16", "zeros", sizes, other="ones").case
    # The least subnormal meets +Inf.
    small = replace(plain.tensors["a"], plants=(Plant((0, 1), 1),))
    infinite = replace(plain.tensors["b"], plants=(Plant((1, 0), 0x7F80),))
    case = plain.with_tensor("a", small).with_tensor("b", infinite)
    results = torch.tensor([math.inf, math.nan, -math.inf, 0.0]).reshape(4, 1, 1)
    for claims, wanted in (
        ({}, [False, False, True, True]),
        ({"subnormals": "preserve"}, [False, True, True, True]),
    ):
        made = pose_case(SUBJECTS["matmul"], case, **claims)
        assert [made.refuses({"y": y}) for y in results] == wanted


def test_flushed_weights_and_biases_of_layer_norm_are_admitted() -> None:
    sizes = setup("layer_norm", 8, 128, eps=1e-5)
    case = pose("layer_norm", "float32", "randn", sizes, other="minnormal")
    assert not case.judge(correct.LAYER_NORMS["flushing_norm"]).missed.any()


def test_float16_intermediates_that_overflow_or_vanish_are_undecided() -> None:
    """Squares of 300 exceed float16; an eps of 1e-12 is zero in it."""
    for family, eps in (("absorb", 0.1), ("all_equal", 1e-12)):
        sizes = setup("layer_norm", 2, 31, eps=eps)
        for claims, wanted in (
            ({"intermediates": "output"}, Outcome.UNDECIDED),
            ({}, Outcome.NAN_UNEXPECTED),
        ):
            case = pose("layer_norm", "float16", family, sizes, **claims)
            made = case.judge(lambda *_, **__: torch.full((2, 31), math.nan))
            assert (made.outcomes == wanted).all()
