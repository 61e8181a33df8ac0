"""Special values planted in members of a burst, as a function of the member's seed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from kfuzz.core.dtypes import DTYPES
from kfuzz.core.recipe import Plant, TensorSpec, contiguous_strides
from kfuzz.core.specials import specials
from kfuzz.core.tiles import edges
from kfuzz.execution.values.fills import repeated_axes
from kfuzz.execution.values.generator import uploaded
from kfuzz.execution.values.grids import Words, splitmix64_all
from kfuzz.execution.values.patterns import INTEGERS, as_signed

# One member in so many has plants, up to so many.
_SHARE: Final = 4
_MOST: Final = 3
SLOTS: Final = _MOST
"""Plants of one member that a table has room for, see `Overwrites.columns`."""
# One index in so many lies anywhere along its axis.
_ANYWHERE: Final = 4
# Keeps the words of plants apart from those of fills.
_SALT: Final = np.uint64(0x5B9C1E37A2D840F6)


@dataclass(frozen=True, eq=False)
class Plan:
    """Where which special values are planted in many members.

    Attributes:
        present: bool [members, slots]: which slots hold a plant.
        at: int64 [members, slots, rank], logical indices.
        choice: int64 [members, slots]: which of the special values.
    """

    present: NDArray[np.bool_]
    at: NDArray[np.int64]
    choice: NDArray[np.int64]


def planned(spec: TensorSpec, seeds: Words, *, finite: bool) -> Plan:
    """Return the plants of members, each from its own seed alone.

    A quarter of the members has one to three. Along the structured axis three in four
    lie at an end, the middle or a tile edge, along other axes at an end; the rest lie
    anywhere.

    Args:
        spec: a filled argument that is not empty.
        seeds: of its fill, one per member.
        finite: whether NaN and infinities are left out.
    """
    assert spec.fill is not None
    rank = len(spec.shape)
    numbers = np.arange(1 + _MOST * (rank + 1), dtype=np.uint64)
    words = splitmix64_all(splitmix64_all(seeds ^ _SALT)[:, None] + numbers)
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


def plants_of(
    spec: TensorSpec, plan: Plan, member: int, *, finite: bool
) -> tuple[Plant, ...]:
    """Return the plants of one member of a plan as a recipe has them."""
    bits = specials(spec.dtype, finite=finite)
    slots = plan.present[member].nonzero()[0].tolist()
    return tuple(
        Plant(tuple(plan.at[member, j].tolist()), bits[plan.choice[member, j]])
        for j in slots
    )


@dataclass(frozen=True, eq=False)
class _Part:
    """What is overwritten in some consecutive members.

    Attributes:
        first: number of the first of them.
        at: int64 [members, slots], flat indices of elements.
        bits: int64, broadcasts to it.
        kept: bool [members, slots]: which slots count.
    """

    first: int
    at: NDArray[np.int64]
    bits: NDArray[np.int64]
    kept: NDArray[np.bool_]


class Overwrites:
    """Elements of many members that are overwritten, by one call."""

    def __init__(self, spec: TensorSpec, members: int) -> None:
        """Begin with none.

        Args:
            spec: of the argument.
            members: how many there are.
        """
        self._spec = spec
        self._members = members
        self._parts: list[_Part] = []
        steps = list(contiguous_strides(spec.shape))
        # What is written at one index of a repeated axis is read at all of them.
        for axis in repeated_axes(spec):
            steps[axis] = 0
        self._steps = steps

    def add(self, plants: Sequence[Plant], first: int, last: int) -> None:
        """Add the same plants for members `first` to `last`, exclusive.

        No member is added twice.
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
        """Add the plants of a plan whose first member has the number `first`."""
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
        """Return all as int64 [members, SLOTS, 2], None where one has more.

        Of each slot the flat index, counted from 1, and the bits; 0 for none.
        """
        made = np.zeros((self._members, SLOTS, 2), dtype=np.int64)
        for part in self._parts:
            count, slots = part.at.shape
            if slots > SLOTS:
                return None
            rows = made[part.first : part.first + count, :slots]
            rows[..., 0] = (part.at + 1) * part.kept
            rows[..., 1] = part.bits
        return made

    def write(self, values: Tensor) -> None:
        """Overwrite the elements of contiguous values [members, *shape]."""
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
