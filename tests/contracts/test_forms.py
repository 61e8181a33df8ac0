"""Forms that an operator declares: what lies within the bound of any is accepted."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import kfuzz
from kfuzz import strategies as ks
from kfuzz.contracts import operators as ops
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.oracle import accept
from kfuzz.numerics.acceptance import Acceptance, Problem
from kfuzz.numerics.compare import compare
from kfuzz.numerics.formats import FORMATS

F32 = FORMATS["float32"]


def difference(x: Tensor) -> Tensor:
    """(x + 1) - 1."""
    return (x + 1) - 1


def plain(x: Tensor) -> Tensor:
    """x itself."""
    return x * 1


def of(forms: dict[str, tuple[Callable[..., Any], ...]]) -> Operator:
    return kfuzz.Operator(
        "same", inputs={"x": ks.tensors("*")}, oracle=plain, forms=forms,
        algorithms={"exact": "nothing is added"},
    )  # fmt: skip


def accepted(operator: Operator, *xs: Tensor, **claims: Any) -> Acceptance:
    tensors = dict(zip(operator.tensors, (x.double()[None] for x in xs), strict=False))
    scalars = {n: p.default for n, p in operator.scalars.items()}
    claimed = operator.defaults.declare("", **claims)
    return accept(operator, Problem(tensors, scalars, F32, F32, claimed))["y"]


def missed(operator: Operator, y: Tensor, *xs: Tensor, **claims: Any) -> int:
    return int(compare(y[None], accepted(operator, *xs, **claims)).missed.sum())


X = torch.linspace(1e-4, 1e-3, 64)


def test_what_another_declared_form_gives_is_accepted() -> None:
    cancelling = (X + 1) - 1
    assert missed(of({"": (plain,)}), cancelling, X) > 32
    both = of({"": (plain, difference), "exact": (plain,)})
    assert missed(both, cancelling, X) == 0
    assert missed(both, X, X) == 0
    assert missed(both, cancelling, X, algorithm="exact") > 32
    assert missed(both, cancelling, X, algorithm="as_reference") > 32
    # Each form's own bound, not four times it.
    far = X + 8 * 2.0**-24
    assert missed(both, far, X) == 64


def test_a_special_value_of_any_form_is_accepted() -> None:
    def by_choice(x: Tensor) -> Tensor:
        return torch.where(x == -torch.inf, 0.0, x * 1)

    x = torch.tensor([-torch.inf, -torch.inf, -torch.inf, 1.0])
    y = torch.tensor([-torch.inf, 0.0, torch.nan, torch.nan])
    either = of({"": (plain, by_choice)})
    made = compare(y[None], accepted(either, x)).missed[0].tolist()
    assert made == [False, False, True, True]


@pytest.mark.parametrize("shift", [0.0, 1e4])
def test_either_form_of_batch_norm_and_no_coarser_one(shift: float) -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(4, 8, 64, generator=generator) + shift
    mean, var = x.mean((0, 2)), x.var((0, 2))
    r = (var + 1e-5).rsqrt()
    direct = (x - mean[:, None]) * r[:, None]
    folded = x * r[:, None] + (-mean * r)[:, None]
    assert missed(ops.batch_norm, direct, x, mean, var) == 0
    assert missed(ops.batch_norm, folded, x, mean, var) == 0
    coarse = x * r[:, None] + (-mean * r).bfloat16().float()[:, None]
    assert missed(ops.batch_norm, coarse, x, mean, var) > 100


def by_torch(x: Tensor) -> Tensor:
    """x.var(-1)."""
    return x.var(-1)


@pytest.mark.parametrize(
    "operator", [ops.var, kfuzz.reference(by_torch, {"x": ks.tensors("M N")})]
)
def test_a_variance_of_merged_means_may_overflow_on_the_way(operator: Operator) -> None:
    """Of two elements it is d d / 2, whose d d overflows where that fits."""
    x = torch.tensor([[2.3e19, 0.0], [2.3e18, 0.0]])
    d = x[:, 1] - x[:, 0]
    merged = d * d * 0.5
    assert merged[0].isinf()
    assert x.double().var(-1).max() < F32.max_finite
    assert missed(operator, merged, x) == 0
    assert missed(operator, merged.clamp(max=0), x) == 1


def test_a_step_computed_of_scalars_in_float32_is_within_the_bound() -> None:
    def corrected(x: Tensor, *, beta: float = 0.999, step: int = 3) -> Tensor:
        return x / (1 - beta**step)

    operator = kfuzz.reference(corrected)
    beta = torch.tensor(0.999)
    narrow = torch.tensor(1.0) - beta * beta * beta
    assert missed(operator, X / narrow, X) == 0
    assert missed(operator, X / (1 - beta * beta), X) == 64


def test_the_page_of_an_operator_names_its_forms() -> None:
    assert "(b - mean r g)" in ops.batch_norm.oracle_text()
    assert "forms" not in ops.sum.oracle_text()
