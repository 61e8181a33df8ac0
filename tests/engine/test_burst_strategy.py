"""Bursts as they are drawn: which families, plants and members they have."""

import torch
from hypothesis import HealthCheck, Phase, given, seed, settings

from kfuzz import strategies as ks
from kfuzz.core.declaration import Declaration
from kfuzz.execution.values.fills import batch_values
from kfuzz.strategies.cases import Domain, bursts, cases
from tests.helpers.budgets import SIZE_BUDGETS

CPU = torch.device("cpu")
NORM = (
    {
        "x": ks.tensors("* N"),
        "weight": ks.tensors("N", role="weight"),
        "var": ks.tensors("N", role="variance"),
    },
    {"reduced": "N"},
)
MATMUL = ({"a": ks.tensors("M K"), "b": ks.tensors("K N")}, {"reduced": "K"})


def drawn(operator, count=60, *, members=lambda case: 8, from_seed=3, **rest):
    parameters, extra = operator
    declaration = Declaration().declare("test", **rest)
    budget = SIZE_BUDGETS["cpu"]
    strategy = cases(parameters, declaration=declaration, budget=budget, **extra)
    domain = Domain(parameters, declaration, budget)
    found = []

    @seed(from_seed)
    @settings(
        max_examples=count,
        database=None,
        phases=[Phase.generate],
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(bursts(strategy, domain, members=members))
    def take(burst):
        found.append(burst)

    take()
    return found


def test_nothing_but_finite_values_where_others_are_undefined():
    for burst in drawn(NORM, 60, nonfinite="undefined"):
        assert burst.finite
        if burst.case.elements > 20_000:
            continue
        for name, made in batch_values(burst, CPU).items():
            assert torch.isfinite(made.double()).all(), f"{name} of {burst}"


def test_the_same_seed_draws_the_same_bursts():
    assert drawn(MATMUL, 30) == drawn(MATMUL, 30)
    assert drawn(MATMUL, 30) != drawn(MATMUL, 30, from_seed=4)
