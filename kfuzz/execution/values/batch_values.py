"""The members of a burst: the recipe of one, and the values of all at once."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from torch import Tensor

from kfuzz.core.burst import Burst
from kfuzz.core.families import INDEX_FAMILIES
from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.core.streams import splitmix64
from kfuzz.execution.values.fills import (
    bound_of,
    check_fill,
    checked,
    fill_rows,
    format_of_grid,
    pinned,
    repeated_axes,
    transposed,
)
from kfuzz.execution.values.generator import Grid
from kfuzz.execution.values.grids import Grids, Streams, Words, splitmix64_all
from kfuzz.execution.values.indices import HOSTILE
from kfuzz.execution.values.planting import Overwrites, planned, plants_of
from kfuzz.numerics.comparator.summary import is_fused

# Keeps the seeds of members apart from the words of any one seed.
_SALT: Final = 0xC2B2AE3D27D4EB4F
# First member, one past the last, and the family that they have.
Run: TypeAlias = tuple[int, int, str]
# The most that a grid has of its second dimension.
_MOST_FUSED: Final = 1 << 16
_MASK64: Final = (1 << 64) - 1
# Seeds have as many bits as a number in JSON keeps everywhere.
_SEED_BITS: Final = 53


def member_seeds(seed: int, first: int, last: int) -> Words:
    """Return the seeds that a fill has in members `first` to `last`, exclusive.

    Args:
        seed: the fill's own, which member 0 keeps.
        first: the first member.
        last: one past the last.

    Returns:
        uint64 [last - first].
    """
    base = np.uint64(splitmix64((seed & _MASK64) ^ _SALT))
    numbers = np.arange(first, last, dtype=np.uint64)
    made = splitmix64_all(numbers + base) >> np.uint64(64 - _SEED_BITS)
    if first == 0 and last:
        made[0] = seed & _MASK64
    return made


def member(burst: Burst, number: int) -> Case:
    """Return one member as a case of its own.

    Fills have a seed of their own and the family of their group, planted arguments
    plants of their own; all else is the case's, and member 0 is the case. Indices are
    all below their bound, but for those of member 0.

    Raises:
        IndexError: if the burst has no member of this number.
    """
    if not 0 <= number < burst.members:
        raise IndexError(f"member {number} of {burst.members}")
    if number == 0:
        return burst.case
    tensors = {
        name: _spec(burst, name, spec, number)
        for name, spec in burst.case.tensors.items()
    }
    return replace(burst.case, tensors=tensors)


def _spec(burst: Burst, name: str, spec: TensorSpec, number: int) -> TensorSpec:
    if spec.fill is None:
        return spec
    family = _family(burst, name, spec, spec.fill, burst.group(number), number)
    seeds = member_seeds(spec.fill.seed, number, number + 1)
    plants = spec.plants
    if name in burst.planted and spec.numel:
        plan = planned(spec, seeds, finite=burst.finite)
        plants = plants_of(spec, plan, 0, finite=burst.finite)
    fill = _filled_by(spec.fill, family, int(seeds[0]))
    return replace(spec, fill=fill, plants=plants)


def _filled_by(fill: Fill, family: str, seed: int) -> Fill:
    source = fill.source if family == "transpose_of" else None
    return Fill(family, seed, fill.axis, source)


def _family(
    burst: Burst, name: str, spec: TensorSpec, fill: Fill, group: int, number: int
) -> str:
    family = burst.family(name, group) or fill.family
    if number and spec.below and INDEX_FAMILIES[family].group == "hostile":
        return "index_uniform"
    return family


def burst_values(
    burst: Burst, device: torch.device, step: Callable[[], None] = lambda: None
) -> dict[str, Tensor]:
    """Return the logical elements of all arguments in all members.

    They are the bits of `logical_values(member(burst, i), name, device)`.

    Args:
        burst: the members.
        device: where the values are made.
        step: called before each argument is made.

    Returns:
        Per argument a contiguous tensor [members, *shape] of its dtype.

    Raises:
        KfuzzError: where a recipe is impossible.
    """
    making = _Making(burst, device)
    for name in burst.case.tensors:
        step()
        making.values(name, ())
    making.finish()
    return {name: making.made[name] for name in burst.case.tensors}


class _Making:
    """The values of a burst in the making.

    Attributes:
        made: values by argument; on a GPU those of the last ones are written by
            `finish`.
    """

    def __init__(self, burst: Burst, device: torch.device) -> None:
        self.made: dict[str, Tensor] = {}
        self._burst = burst
        self._device = device
        self._fills: Any = None
        if is_fused(device):
            from kfuzz.execution.values import fused_fills

            self._fills = fused_fills.Fills()

    def finish(self) -> None:
        """Write what is still to be written."""
        if self._fills is not None:
            self._fills.send()

    def values(self, name: str, seen: tuple[str, ...]) -> Tensor:
        """Return the values of one argument."""
        if name in self.made:
            return self.made[name]
        burst, device = self._burst, self._device
        spec = checked(burst.case, name, seen)
        shape = (burst.members, *spec.shape)
        if spec.fill is None:
            values, seeds = pinned(spec, device).expand(shape).contiguous(), None
        else:
            values = torch.empty(shape, dtype=getattr(torch, spec.dtype), device=device)
            seeds = member_seeds(spec.fill.seed, 0, burst.members)
        overwrites = _overwrites(burst, name, spec, seeds) if spec.numel else None
        if spec.fill is not None and seeds is not None:
            runs = list(_runs(burst, name, spec, spec.fill))
            for _, _, family in runs:
                check_fill(name, spec, replace(spec.fill, family=family))
            if spec.numel:
                left = self._copied(name, spec, spec.fill, values, runs, seen)
                streams, plants = Streams(seeds, device), None
                if self._is_fused(values, spec):
                    if overwrites is not None and left == runs:
                        plants = overwrites.columns()
                    self._fills.add(
                        values, left, streams, axis=spec.fill.axis, plants=plants
                    )
                else:
                    bound = bound_of(burst.case, name, spec)
                    _fill(values, spec, spec.fill, left, bound, streams)
                if plants is not None:
                    overwrites = None
        if overwrites is not None:
            self.finish()
            overwrites.write(values)
        for axis in repeated_axes(spec):
            self.finish()
            values = values.narrow(axis + 1, 0, 1).expand(shape)
        self.made[name] = values.contiguous()
        return self.made[name]

    def _is_fused(self, values: Tensor, spec: TensorSpec) -> bool:
        if self._fills is None or spec.numel >= 1 << 30 or len(values) >= _MOST_FUSED:
            return False
        from kfuzz.execution.values import fused_fills

        return values.dtype in fused_fills.DTYPES

    def _copied(
        self,
        name: str,
        spec: TensorSpec,
        fill: Fill,
        values: Tensor,
        runs: list[Run],
        seen: tuple[str, ...],
    ) -> list[Run]:
        """Write the members that copy another argument; return the other runs."""
        left = []
        for start, stop, family in runs:
            if family == "transpose_of":
                assert fill.source is not None
                source = self.values(fill.source, (*seen, name))
                self.finish()
                part = source[start:stop]
                copied = transposed(part, spec, values.dtype, stacked=1)
                if copied is not None:
                    values[start:stop] = copied
                    continue
                family = "randn"
            left.append((start, stop, family))
        return left


def _overwrites(
    burst: Burst, name: str, spec: TensorSpec, seeds: Words | None
) -> Overwrites:
    """Return the plants of all members of an argument that is not empty."""
    made = Overwrites(spec, burst.members)
    alike = burst.members
    if name in burst.planted and seeds is not None and burst.members > 1:
        alike = 1
        made.add_plan(
            planned(spec, seeds[1:], finite=burst.finite), 1, finite=burst.finite
        )
    made.add(spec.plants, 0, alike)
    return made


def _runs(burst: Burst, name: str, spec: TensorSpec, fill: Fill) -> Iterator[Run]:
    """Yield (first, one past the last, family) of members with one family."""
    groups = 1 + len(burst.families)
    # Member 0 may have a family of its own.
    starts = {0, 1, *(-(-burst.members * g // groups) for g in range(groups))}
    begun, current = 0, ""
    for start in sorted(s for s in starts if s < burst.members):
        family = _family(burst, name, spec, fill, burst.group(start), start)
        if family != current and start:
            yield begun, start, current
            begun = start
        current = family
    yield begun, burst.members, current


def _fill(
    values: Tensor,
    spec: TensorSpec,
    fill: Fill,
    runs: list[Run],
    bound: int,
    streams: Streams,
) -> None:
    """Write the values of the members that `runs` names.

    Args:
        values: [members, *shape], contiguous, of which they are written.
        spec: of the argument, not empty.
        fill: of the case; only its axis counts here.
        runs: none of them copies another argument.
        bound: of indices, what they stay below.
        streams: of all members.
    """
    device = values.device
    rank = len(spec.shape)
    n = spec.shape[fill.axis] if rank else 1
    rows, fmt = spec.numel // n, format_of_grid(spec)
    in_order = rank == 0 or fill.axis == -1
    outer = list(spec.shape)
    if rank:
        del outer[fill.axis]
    for start, stop, family in runs:
        part = values[start:stop]
        # Rows along an axis that is not the last are copied to their places.
        target = part if in_order else torch.empty_like(part)
        if family in HOSTILE and spec.below:
            for number in range(start, stop):
                grid = Grid(rows, n, fmt, int(streams.seeds[number]), device)
                one = target[number - start].view(grid.shape)
                fill_rows(one, grid, family, bound=bound)
        else:
            grids = Grids(rows, n, fmt, 0, device, streams, start, stop)
            fill_rows(target.view(grids.shape), grids, family, bound=bound)
        if not in_order:
            rows_at_end = target.view(stop - start, *outer, n)
            part.copy_(rows_at_end.movedim(-1, fill.axis))
