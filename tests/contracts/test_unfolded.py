"""Operators at other ranks: a dimension as several, as none, or as any number."""

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
from kfuzz.numerics.compare import compare_members
from kfuzz.numerics.formats import FORMATS

FLOAT32 = FORMATS["float32"]


def misses(
    operator: Operator, y: Tensor, scalars: dict[str, Any], **given: Tensor
) -> int:
    posed = {
        name: x[None].double() if x.is_floating_point() else x[None]
        for name, x in given.items()
    }
    problem = Problem(posed, scalars, FLOAT32, FLOAT32, Declaration())
    accepted = accept(operator, problem)
    assert accepted["y"].shape == tuple(y.shape)
    return int(compare_members({"y": y[None]}, accepted)["y"].missed.sum())


@pytest.mark.parametrize("star", [False, True])
@pytest.mark.parametrize("dims", ["", "H", "H W", "D H W"])
def test_norms_of_channels_at_every_rank(dims: str, star: bool) -> None:
    chance = torch.Generator().manual_seed(5)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=chance)

    x = drawn(3, 6, *(4, 5, 2)[: len(dims.split())])
    weight, bias, mean, var = drawn(6), drawn(6), drawn(6), drawn(6).abs()
    group = ops.group_norm.unfolded(L="*" if star else dims)
    y = functional.group_norm(x, 3, weight, bias, 1e-5)
    scalars = {"num_groups": 3, "eps": 1e-5}
    given = {"x": x, "weight": weight, "bias": bias}
    assert misses(group, y, scalars, **given) == 0
    assert misses(group, y * 1.001, scalars, **given) > 0.9 * y.numel()
    batch = ops.batch_norm.unfolded(L="*" if star else dims)
    y = functional.batch_norm(x, mean, var, weight, bias, eps=1e-5)
    given |= {"mean": mean, "var": var}
    ordered = {name: given[name] for name in batch.tensors}
    assert misses(batch, y, {"eps": 1e-5}, **ordered) == 0
    assert misses(batch, y * 1.001, {"eps": 1e-5}, **ordered) > 0.9 * y.numel()


@pytest.mark.parametrize("dims", ["B H", "*"])
def test_products_of_two_batch_dimensions(dims: str) -> None:
    a, b = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 5, 6)
    bmm = ops.bmm.unfolded(B=dims)
    assert misses(bmm, a @ b, {}, a=a, b=b) == 0
    assert misses(bmm, (a @ b).flip(0), {}, a=a, b=b) > 0


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("star", [False, True])
@pytest.mark.parametrize("dims", ["", "N", "N C H", "N C H W", "N C D H W"])
def test_losses_of_classes_at_every_rank(dims: str, star: bool, reduction: str) -> None:
    chance = torch.Generator().manual_seed(7)
    shape = (3, 5, 4, 2, 2)[: len(dims.split())] if dims else (5,)
    shape = (3, 5) if dims == "N" else shape
    logits = torch.randn(shape, generator=chance)
    axis = 1 if dims else 0
    target = logits.argmin(axis)
    if dims:
        target.view(-1)[0] = -100
    for name in ("cross_entropy", "nll_loss"):
        x = logits if name == "cross_entropy" else logits.log_softmax(axis)
        loss = getattr(ops, name).unfolded(N="* C *" if star else dims)
        known = {n: p.default for n, p in loss.scalars.items()}
        y = getattr(functional, name)(x, target, reduction=reduction)
        given = dict(zip(loss.tensors, (x, target), strict=False))
        scalars = known | {"reduction": reduction}
        assert misses(loss, y, scalars, **given) == 0
        assert misses(loss, y * 1.01, scalars, **given) >= y.count_nonzero()


@pytest.mark.parametrize("star", [False, True])
@pytest.mark.parametrize("dims", ["", "A B"])
def test_attention_and_convolutions_of_any_batch(dims: str, star: bool) -> None:
    batch = (2, 3)[: len(dims.split())]
    q, k, v = torch.randn(3, *batch, 4, 5, 8)
    attention = ops.attention.unfolded(B="*" if star else dims)
    y = functional.scaled_dot_product_attention(q, k, v)
    scalars = {n: p.default for n, p in attention.scalars.items()}
    assert misses(attention, y, scalars, q=q, k=k, v=v) == 0
    assert misses(attention, y * 1.01, scalars, q=q, k=k, v=v)
    if batch:
        return
    for rank, name in enumerate(("conv1d", "conv2d", "conv3d"), 1):
        x, weight = torch.randn(4, *(5,) * rank), torch.randn(3, 4, *(2,) * rank)
        conv = getattr(ops, name).unfolded(N="*" if star else "")
        scalars = {n: p.default for n, p in conv.scalars.items()}
        y = getattr(functional, name)(x, weight)
        assert misses(conv, y, scalars, x=x, weight=weight) == 0
        assert misses(conv, y * 1.01, scalars, x=x, weight=weight)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: ops.group_norm.unfolded(K="H W"), "'K' is no dimension"),
        (lambda: ops.group_norm.unfolded(C="H W"), "'C' cannot be unfolded"),
        (lambda: ops.group_norm.unfolded(L="B W"), "'B' is taken"),
        (lambda: ops.bmm.unfolded(B="B K H"), "'K' is taken"),
        (lambda: ops.topk.unfolded(), "not unfolded"),
        (lambda: ops.layer_norm.unfolded(N="*"), "'\\*' is taken"),
    ],
)
def test_what_cannot_be_unfolded_is_refused(make: Any, match: str) -> None:
    with pytest.raises(BindingError, match=match):
        make()
