"""Premises: what launches have in common, and what breaks it."""

from kfuzz.features.prove.fitting import Fit
from kfuzz.features.prove.sampling import Grouping, Watch, constants_of
from tests.features.prove.kernels import launch

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
