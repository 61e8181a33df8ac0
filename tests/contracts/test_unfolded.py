"""Operators at another rank: one dimension as several, or as none."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from kfuzz.contracts import operators as ops
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.oracle import accept
from kfuzz.core.declaration import Declaration
from kfuzz.core.errors import BindingError
from kfuzz.numerics.acceptance import Problem
from kfuzz.numerics.comparator.compare import compare_members
from kfuzz.numerics.formats import FORMATS

FLOAT32 = FORMATS["float32"]


def misses(
    operator: Operator, y: Tensor, scalars: dict[str, Any], **given: Tensor
) -> int:
    doubles = {name: x.to(torch.float64)[None] for name, x in given.items()}
    problem = Problem(doubles, scalars, FLOAT32, FLOAT32, Declaration())
    accepted = accept(operator, problem)
    assert accepted["y"].shape == tuple(y.shape)
    return int(compare_members({"y": y[None]}, accepted)["y"].missed.sum())


@pytest.mark.parametrize("dims", ["", "H", "H W", "D H W"])
def test_norms_of_channels_at_every_rank(dims: str) -> None:
    chance = torch.Generator().manual_seed(5)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=chance)

    x = drawn(3, 6, *(4, 5, 2)[: len(dims.split())])
    weight, bias, mean, var = drawn(6), drawn(6), drawn(6), drawn(6).abs()
    group = ops.group_norm.unfolded(L=dims)
    y = functional.group_norm(x, 3, weight, bias, 1e-5)
    scalars = {"num_groups": 3, "eps": 1e-5}
    given = {"x": x, "weight": weight, "bias": bias}
    assert misses(group, y, scalars, **given) == 0
    assert misses(group, y * 1.001, scalars, **given) > 0.9 * y.numel()
    batch = ops.batch_norm.unfolded(L=dims)
    y = functional.batch_norm(x, mean, var, weight, bias, eps=1e-5)
    given |= {"mean": mean, "var": var}
    ordered = {name: given[name] for name in batch.tensors}
    assert misses(batch, y, {"eps": 1e-5}, **ordered) == 0
    assert misses(batch, y * 1.001, {"eps": 1e-5}, **ordered) > 0.9 * y.numel()


def test_products_of_two_batch_dimensions() -> None:
    a, b = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 5, 6)
    bmm = ops.bmm.unfolded(B="B H")
    assert misses(bmm, a @ b, {}, a=a, b=b) == 0
    assert misses(bmm, (a @ b).flip(0), {}, a=a, b=b) > 0


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: ops.group_norm.unfolded(K="H W"), "'K' is no dimension"),
        (lambda: ops.group_norm.unfolded(C="H W"), "'C' cannot be unfolded"),
        (lambda: ops.group_norm.unfolded(L="B W"), "'B' is taken"),
        (lambda: ops.topk.unfolded(), "not unfolded"),
    ],
)
def test_what_cannot_be_unfolded_is_refused(make: Any, match: str) -> None:
    with pytest.raises(BindingError, match=match):
        make()
