"""Strata: the kinds of cases there are, and which of them a search has visited.

A stratum is what is drawn in a case but for its bits: shape class, layout, dtype and
value family of its first floating argument. The ledger depends on the cases alone, in
order, so that what it proposes is the same in every run of one seed.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from kfuzz.core.burst import Burst
from kfuzz.core.event import Region
from kfuzz.core.recipe import Case, TensorSpec
from kfuzz.core.value_families.tiles import TILES
from kfuzz.strategies.layouts import layout_name

# Above this a row no longer fits the widest usual block.
_LARGE: Final = 1024


@dataclass(frozen=True)
class Stratum:
    """One kind of case.

    Attributes:
        shape: class of the sizes, see `shape_class_of`.
        layout: as `kfuzz.strategies.layouts.layout_name` calls it.
        dtype: element type.
        family: value family; "pinned" where all values are explicit.
    """

    shape: str
    layout: str
    dtype: str
    family: str


def stratum_of(case: Case) -> Stratum:
    """Return the stratum of a case."""
    spec = case.data
    family = spec.fill.family if spec.fill else "pinned"
    return Stratum(shape_class_of(spec), layout_name(spec), spec.dtype, family)


def shape_class_of(spec: TensorSpec) -> str:
    """Return the class of a tensor's sizes: the structured axis, then all others.

    Returns:
        "empty", "0-d", or two words: for the axis "one", "small" (below the least
        tile), "tile", "beside" (one more or one less than tiles), "between" or
        "large"; for the rows "one" or "several".
    """
    if not spec.shape:
        return "0-d"
    if not spec.numel:
        return "empty"
    axis = spec.fill.axis if spec.fill else -1
    n = spec.shape[axis] if -len(spec.shape) <= axis < len(spec.shape) else 1
    rows = "several" if spec.numel > n else "one"
    return f"{_size_class(n)} {rows}"


def _size_class(n: int) -> str:
    least = TILES[0]
    if n < least - 1:
        return "one" if n == 1 else "small"
    if n > _LARGE + 1:
        return "large"
    if n % least == 0:
        return "tile"
    return "beside" if n % least in (1, least - 1) else "between"


def structure_of(case: Case) -> int:
    """Return a number that tells apart what a call is given but for its values.

    Shapes, strides, offsets, dtypes and scalars; it says nothing in another process.
    """
    tensors = tuple(
        (s.shape, s.element_strides, s.offset, s.dtype) for s in case.tensors.values()
    )
    return hash((tensors, tuple(case.tensors), tuple(case.scalars.items())))


def families_of(batch: Burst) -> list[str]:
    """Return the families of a batch's first floating argument, one for each group."""
    data, own = batch.case.data, stratum_of(batch.case).family
    name = next(n for n, spec in batch.case.tensors.items() if spec is data)
    groups = range(min(1 + len(batch.families), batch.members))
    return [batch.family(name, group) or own for group in groups]


class Ledger:
    """How often each stratum of one kernel has been visited."""

    def __init__(self) -> None:
        self.visits: Counter[Stratum] = Counter()
        self._worst: dict[Stratum, float] = {}
        self._failing: Counter[Stratum] = Counter()

    def visit(
        self, case: Case, *, family: str = "", ratio: float = 0.0, fails: bool = False
    ) -> None:
        """Count one case.

        The items of one group of a batch, which differ in bits only, are one case.

        Args:
            case: gives the stratum.
            family: of its first floating argument, where it is not the case's own, as
                in the groups of a batch.
            ratio: its |error| / tolerance, where the case was judged by itself.
            fails: whether it violates a contract.
        """
        stratum = stratum_of(case)
        if family:
            stratum = replace(stratum, family=family)
        self.visits[stratum] += 1
        self._worst[stratum] = max(ratio, self._worst.get(stratum, 0.0))
        self._failing[stratum] += fails

    def novelty(self, stratum: Stratum) -> float:
        """Return how new a stratum is: 1 before the first visit, then 1/2."""
        return 1 / (1 + self.visits[stratum])

    def regions(self) -> tuple[Region, ...]:
        """Return visits and greatest errors by sizes and family, sorted."""
        cases: Counter[tuple[str, str]] = Counter()
        failing: Counter[tuple[str, str]] = Counter()
        worst: dict[tuple[str, str], float] = {}
        for stratum, visits in self.visits.items():
            key = (stratum.shape, stratum.family)
            cases[key] += visits
            failing[key] += self._failing[stratum]
            worst[key] = max(worst.get(key, 0.0), self._worst.get(stratum, 0.0))
        return tuple(
            Region(*key, cases[key], worst[key], failing[key]) for key in sorted(cases)
        )

    def wanting(
        self,
        trait: str,
        among: Sequence[str],
        *,
        like: Case | None = None,
        count: int = 1,
    ) -> tuple[str, ...]:
        """Return the values of one trait that were visited least.

        Args:
            trait: a field of `Stratum`, such as "family".
            among: the values to choose from; among equals the first comes first.
            like: count visits to the strata that differ from this case's in the trait
                alone before visits to all strata.
            count: how many values to return at most; none comes twice.
        """
        near: Counter[str] = Counter()
        everywhere: Counter[str] = Counter()
        here = None if like is None else replace(stratum_of(like), **{trait: ""})
        for stratum, visits in self.visits.items():
            value = getattr(stratum, trait)
            everywhere[value] += visits
            if here is not None and replace(stratum, **{trait: ""}) == here:
                near[value] += visits
        ranked = sorted(dict.fromkeys(among), key=lambda v: (near[v], everywhere[v]))
        return tuple(ranked[:count])
