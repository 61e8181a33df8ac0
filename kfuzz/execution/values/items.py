"""The items of a batch as recipes: their seeds, families and planted special values."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from kfuzz.core.budget import Burst
from kfuzz.core.dtypes import DTYPES, specials
from kfuzz.core.random_streams import Purpose, stream
from kfuzz.core.recipe import Case, Fill, Plant, TensorSpec, contiguous_strides, parsed
from kfuzz.core.value_families import COPIES, SLOTS, edges, is_hostile
from kfuzz.execution.values.formula import (
    INTEGERS,
    Words,
    as_signed,
    splitmix64_all,
    uploaded,
)

# First item, one past the last, and the family that they have.
Run: TypeAlias = tuple[int, int, str]
# Seeds have as many bits as a number in JSON keeps everywhere.
_SEED_BITS: Final = 53
_MASK64: Final = (1 << 64) - 1
# One item in so many has plants, up to so many.
_SHARE: Final = 4
_MOST: Final = SLOTS
# One index in so many lies anywhere along its axis.
_ANYWHERE: Final = 4


def item_seeds(seed: int, first: int, last: int) -> Words:
    """Return the seeds that a fill has in items `first` to `last`, exclusive.

    Args:
        seed: the fill's own, which item 0 keeps.
        first: the first item.
        last: one past the last.

    Returns:
        uint64 [last - first].
    """
    if (first, last) == (0, 1):
        return np.array([seed & _MASK64], dtype=np.uint64)
    base = np.uint64(stream(seed, Purpose.ITEMS))
    numbers = np.arange(first, last, dtype=np.uint64)
    made = splitmix64_all(numbers + base) >> np.uint64(64 - _SEED_BITS)
    if first == 0 and last:
        made[0] = seed & _MASK64
    return made


def item(batch: Burst, number: int) -> Case:
    """Return one item as a case of its own.

    Fills have a seed of their own and the family of their group, planted arguments
    plants of their own; all else is the case's, and item 0 is the case. Indices are
    all below their bound, but for those of item 0.

    Raises:
        IndexError: if the batch has no item of this number.
    """
    if not 0 <= number < batch.members:
        raise IndexError(f"item {number} of {batch.members}")
    if number == 0:
        return batch.case
    tensors = {
        name: _spec(batch, name, spec, number)
        for name, spec in batch.case.tensors.items()
    }
    return replace(batch.case, tensors=tensors)


def _spec(batch: Burst, name: str, spec: TensorSpec, number: int) -> TensorSpec:
    if spec.fill is None:
        return spec
    if is_shared(spec):
        return spec
    family = _family(batch, name, spec, spec.fill, batch.group(number), number)
    seeds = item_seeds(spec.fill.seed, number, number + 1)
    plants = spec.plants
    if name in batch.planted and spec.numel:
        plan = planned(spec, seeds, finite=batch.finite)
        bits = specials(spec.dtype, finite=batch.finite)
        plants = tuple(
            Plant(tuple(plan.at[0, j].tolist()), bits[plan.choice[0, j]])
            for j in plan.present[0].nonzero()[0].tolist()
        )
    source = spec.fill.source if family in COPIES else None
    fill = Fill(family, int(seeds[0]), spec.fill.axis, source)
    return replace(spec, fill=fill, plants=plants)


def _family(
    batch: Burst, name: str, spec: TensorSpec, fill: Fill, group: int, number: int
) -> str:
    family = batch.family(name, group) or fill.family
    if number and spec.below and is_hostile(family):
        return "index_uniform"
    return family


def runs_of(batch: Burst, name: str, spec: TensorSpec, fill: Fill) -> list[Run]:
    """Return the items of an argument by their family, consecutive ones together."""
    if batch.members == 1 or is_shared(spec):
        return [(0, batch.members, fill.family)]
    groups = 1 + len(batch.families)
    # Item 0 may have a family of its own.
    starts = {0, 1, *(-(-batch.members * g // groups) for g in range(groups))}
    made: list[Run] = []
    begun, current = 0, ""
    for start in sorted(s for s in starts if s < batch.members):
        family = _family(batch, name, spec, fill, batch.group(start), start)
        if family != current and start:
            made.append((begun, start, current))
            begun = start
        current = family
    return [*made, (begun, batch.members, current)]


def is_shared(spec: TensorSpec) -> bool:
    """Whether all items have the same values: offsets are sizes, as shapes are."""
    return parsed(spec.domain).cuts


def repeated_axes(spec: TensorSpec) -> list[int]:
    """Return the axes along which every index holds what index 0 holds."""
    steps = zip(spec.shape, spec.element_strides, strict=True)
    return [axis for axis, (n, stride) in enumerate(steps) if stride == 0 and n > 1]


@dataclass(frozen=True, eq=False)
class Plan:
    """Where which special values are planted in many items.

    Attributes:
        present: bool [items, slots]: which slots hold a plant.
        at: int64 [items, slots, rank], logical indices.
        choice: int64 [items, slots]: which of the special values.
    """

    present: NDArray[np.bool_]
    at: NDArray[np.int64]
    choice: NDArray[np.int64]


def planned(spec: TensorSpec, seeds: Words, *, finite: bool) -> Plan:
    """Return the plants of items, each from its own seed alone.

    A quarter of the items has one to three. Along the structured axis three in four
    lie at an end, the middle or a tile edge, along other axes at an end; the rest lie
    anywhere.

    Args:
        spec: a filled argument that is not empty.
        seeds: of its fill, one per item.
        finite: whether NaN and infinities are left out.
    """
    assert spec.fill is not None
    rank = len(spec.shape)
    numbers = np.arange(1 + _MOST * (rank + 1), dtype=np.uint64)
    keys = splitmix64_all(splitmix64_all(seeds) ^ np.uint64(Purpose.PLANTS.key))
    words = splitmix64_all(keys[:, None] + numbers)
    # 63 bits: remainders of signed integers are then those of unsigned ones.
    drawn = (words >> np.uint64(1)).view(np.int64)
    first, slots = drawn[:, :1], drawn[:, 1:].reshape(-1, _MOST, rank + 1)
    count = np.where(first % _SHARE == 0, 1 + (first >> 8) % _MOST, 0)
    found = np.empty((len(seeds), _MOST, rank), dtype=np.int64)
    for axis, n in enumerate(spec.shape):
        ends = edges(n) if axis - rank == spec.fill.axis else (0, n - 1)
        word = slots[..., axis]
        place = word // _ANYWHERE
        at_end = np.array(ends)[place % len(ends)]
        found[..., axis] = np.where(word % _ANYWHERE == 0, place % n, at_end)
    kinds = len(specials(spec.dtype, finite=finite))
    present = np.arange(_MOST) < count
    return Plan(present, found, slots[..., rank] % kinds)


@dataclass(frozen=True, eq=False)
class _Part:
    """What is overwritten in some consecutive items.

    Attributes:
        first: number of the first of them.
        at: int64 [items, slots], flat indices of elements.
        bits: int64, broadcasts to it.
        kept: bool [items, slots]: which slots count.
    """

    first: int
    at: NDArray[np.int64]
    bits: NDArray[np.int64]
    kept: NDArray[np.bool_]


class Overwrites:
    """Elements of many items that are overwritten, by one call."""

    def __init__(self, spec: TensorSpec, items: int) -> None:
        """Begin with none."""
        self._spec = spec
        self._items = items
        self._parts: list[_Part] = []
        steps = list(contiguous_strides(spec.shape))
        # What is written at one index of a repeated axis is read at all of them.
        for axis in repeated_axes(spec):
            steps[axis] = 0
        self._steps = steps

    def add(self, plants: Sequence[Plant], first: int, last: int) -> None:
        """Add the same plants for items `first` to `last`, exclusive.

        No item is added twice.
        """
        if not plants or first >= last:
            return
        itemsize = DTYPES[self._spec.dtype].itemsize
        # The last of several plants of one element counts.
        chosen = {
            sum(i * step for i, step in zip(plant.at, self._steps, strict=True)): plant
            for plant in plants
        }
        at = np.tile(np.array(list(chosen), dtype=np.int64), (last - first, 1))
        bits = [as_signed(plant.bits, itemsize) for plant in chosen.values()]
        kept = np.ones(at.shape, dtype=np.bool_)
        self._parts.append(_Part(first, at, np.array(bits, dtype=np.int64), kept))

    def add_plan(self, plan: Plan, first: int, *, finite: bool) -> None:
        """Add the plants of a plan whose first item has the number `first`."""
        spec = self._spec
        itemsize = DTYPES[spec.dtype].itemsize
        flat = plan.at @ np.array(self._steps, dtype=np.int64)
        kept = plan.present.copy()
        for early in range(_MOST):
            for late in range(early + 1, _MOST):
                same = flat[:, early] == flat[:, late]
                kept[:, early] &= ~(same & plan.present[:, late])
        signed = np.array(
            [as_signed(bits, itemsize) for bits in specials(spec.dtype, finite=finite)]
        )
        self._parts.append(_Part(first, flat, signed[plan.choice], kept))

    def columns(self) -> NDArray[np.int64] | None:
        """Return all as int64 [items, SLOTS, 2], None where one has more.

        Of each slot the flat index, counted from 1, and the bits; 0 for none.
        """
        made = np.zeros((self._items, SLOTS, 2), dtype=np.int64)
        for part in self._parts:
            count, slots = part.at.shape
            if slots > SLOTS:
                return None
            rows = made[part.first : part.first + count, :slots]
            rows[..., 0] = (part.at + 1) * part.kept
            rows[..., 1] = part.bits
        return made

    def write(self, values: Tensor) -> None:
        """Overwrite the elements of contiguous values [items, *shape]."""
        at, bits = [], []
        for part in self._parts:
            numbers = np.arange(part.first, part.first + len(part.at))[:, None]
            at.append((part.at + numbers * math.prod(self._spec.shape))[part.kept])
            bits.append(np.broadcast_to(part.bits, part.at.shape)[part.kept])
        if not sum(map(len, at)):
            return
        both = np.stack((np.concatenate(at), np.concatenate(bits)))
        place, given = uploaded(both, values.device).unbind(0)
        raw = values.view(-1).view(INTEGERS[values.element_size()])
        raw.index_put_((place,), given.to(raw.dtype))


def overwrites_of(batch: Burst, name: str, spec: TensorSpec) -> Overwrites | None:
    """Return the plants of all items of an argument; None where there are none."""
    is_planned = name in batch.planted and spec.fill is not None and batch.members > 1
    if not spec.numel or not (spec.plants or is_planned):
        return None
    made, count = Overwrites(spec, batch.members), batch.members
    if is_planned and spec.fill is not None:
        seeds = item_seeds(spec.fill.seed, 1, count)
        made.add_plan(planned(spec, seeds, finite=batch.finite), 1, finite=batch.finite)
        count = 1
    made.add(spec.plants, 0, count)
    return made
