"""Premises: what launches have in common, and what breaks it."""

from dataclasses import replace

import pytest
import torch

from kfuzz.contracts import operators as ops
from kfuzz.contracts.binding import fit
from kfuzz.execution.launches.capture import (
    ConstArgument,
    Launch,
    NotCapturedError,
    capture,
)
from kfuzz.features.prove.fitting import Fit
from kfuzz.features.prove.sampling import Grouping, Watch, constants_of
from tests.features.prove.kernels import launch
from tests.helpers.judged_cases import x_case

SIZES = (1, 2, 3, 17, 63, 64, 65, 100, 128, 1000, 4096, 100_000)


def test_sizes_and_grid_are_fitted_and_printed() -> None:
    relations = Fit([launch(n) for n in SIZES]).fitted()
    texts = {premise.text for premise in relations.premises}
    assert {"x.size(0) = n", "y is contiguous", "grid.0 = cdiv(n, BLOCK)"} <= texts


def test_a_launch_with_another_grid_breaks_a_premise() -> None:
    relations = Fit([launch(n) for n in SIZES]).fitted()
    assert relations.broken_by(launch(777)) is None
    broken = relations.broken_by(launch(777, programs=5))
    assert broken is not None
    assert broken.text == "grid.0 = cdiv(n, BLOCK)"


def test_what_differs_from_launch_to_launch_is_free() -> None:
    launches = [launch(n, step=1 + n % 5) for n in SIZES]
    relations = Fit(launches).fitted()
    assert relations.broken_by(launch(50, step=1000)) is None


def test_a_proof_is_withdrawn_by_a_launch_of_another_kind() -> None:
    launches = [launch(n) for n in SIZES]
    grouping = Grouping.of(launches)
    key = grouping.key(launches[0])
    known = {key: frozenset({constants_of(launches[0])})}
    watch = Watch(grouping, {key: Fit(launches).fitted()}, known)
    assert watch.broken_by(launches) == ""
    assert "cdiv(n, BLOCK)" in watch.broken_by([launch(9, programs=3)])
    assert watch.broken_by([launch(9, step=2)])


def test_a_constant_of_many_sizes_is_one_symbol() -> None:
    def with_constant(n: int, value: object = None) -> Launch:
        made, constant = launch(n), n if value is None else value
        given = ConstArgument(constant, str(constant))
        return replace(made, arguments={**made.arguments, "n": given})

    launches = [with_constant(n) for n in SIZES]
    grouping = Grouping.of(launches, [("copy", 1, "n")])
    general = [grouping.general(each) for each in launches]
    [key] = {grouping.key(each) for each in general}
    [constants] = {constants_of(each) for each in general}
    relations = Fit(general).fitted()
    watch = Watch(grouping, {key: relations}, {key: frozenset({constants})})
    assert watch.broken_by([with_constant(777)]) == ""
    for value in (-1, 1 << 31, True, 7.0):
        assert watch.broken_by([with_constant(777, value)])


def test_what_a_wrapper_raises_itself_rejects_and_what_torch_raises_limits() -> None:
    def picky(x: torch.Tensor) -> torch.Tensor:
        if x.ndim > 1:
            raise NotImplementedError
        return torch.nonzero(x)

    bound = fit(ops.relu, picky, {}, name=None, module=__name__, top_level=False)
    for shape, why, limit in (
        ((4, 8), "^NotImplementedError$", False),
        ((4,), "^DynamicOutputShape", True),
    ):
        with pytest.raises(NotCapturedError, match=why) as caught:
            capture(bound, x_case("randn", shape))
        assert caught.value.limit is limit
