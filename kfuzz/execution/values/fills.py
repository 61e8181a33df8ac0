"""Recipes become values: the logical elements of arguments, bit for bit.

The items of a batch are made together; a case is a batch of one.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from kfuzz.core.budget import Burst
from kfuzz.core.dtypes import DTYPES
from kfuzz.core.errors import KfuzzError, suggestion
from kfuzz.core.recipe import OFFSETS, SPANS, Case, Fill, TensorSpec, parsed
from kfuzz.core.value_families import COPIES, STRETCHED, families_of
from kfuzz.execution.device.backends import backend_of
from kfuzz.execution.values.formula import INTEGERS, Grid, Streams, as_signed, fill_rows
from kfuzz.execution.values.items import (
    Overwrites,
    Run,
    is_shared,
    item_seeds,
    overwrites_of,
    repeated_axes,
    runs_of,
)
from kfuzz.numerics.compare import is_fused
from kfuzz.numerics.domains import fitted, holds
from kfuzz.numerics.formats import FORMATS, round_to

# The most that a grid of a kernel has of its second dimension.
_MOST_FUSED: Final = 1 << 16
_MASK64: Final = (1 << 64) - 1
HOST: Final = torch.device("cpu")


def logical_values(case: Case, name: str, device: torch.device) -> Tensor:
    """Return the logical elements of one argument, the same bits everywhere.

    Pinned values, or the fill and then the plants. Along a dimension with
    stride 0 every index holds what index 0 holds, as a kernel reads it; a plant
    at any index of it is a plant at all of them.

    Args:
        case: the recipe; a fill may copy from another of its arguments.
        name: the argument.
        device: where the values are made.

    Returns:
        A contiguous tensor of the spec's shape and dtype, fresh storage.

    Raises:
        KfuzzError: where the recipe is impossible.
    """
    return _Making(Burst(case, 1), device).values(name, ())[0]


def batch_values(
    batch: Burst, device: torch.device, step: Callable[[], None] = lambda: None
) -> dict[str, Tensor]:
    """Return the logical elements of all arguments in all items.

    They are the bits of `logical_values(item(batch, i), name, device)`.

    Args:
        batch: the items.
        device: where the values are made.
        step: called before each argument is made.

    Returns:
        Per argument a contiguous tensor [items, *shape] of its dtype.

    Raises:
        KfuzzError: where a recipe is impossible.
    """
    making = _Making(batch, device)
    for name in batch.case.tensors:
        step()
        making.values(name, ())
    making.finish()
    return {name: making.made[name] for name in batch.case.tensors}


class _Making:
    """The values of a batch in the making.

    Attributes:
        made: values by argument; on a GPU those of the last ones are written by
            `finish`.
    """

    def __init__(self, batch: Burst, device: torch.device) -> None:
        self.made: dict[str, Tensor] = {}
        self._batch = batch
        self._device = device
        self._fills: Any = None
        # To compile a kernel for one case would take longer than to do without.
        if batch.members > 1 and is_fused(device):
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
        batch, device = self._batch, self._device
        spec = checked(batch.case, name, seen)
        shape = (batch.members, *spec.shape)
        overwrites = overwrites_of(batch, name, spec)
        if spec.fill is None:
            values = pinned(spec, device).expand(shape).contiguous()
        else:
            values = torch.empty(shape, dtype=getattr(torch, spec.dtype), device=device)
            if self._fill(name, spec, spec.fill, values, overwrites, seen):
                overwrites = None
        if overwrites is not None:
            self.finish()
            overwrites.write(values)
        if spec.domain and spec.fill is not None:
            self.finish()
            whole = batch.case.bound(spec)
            values = fitted(values, spec.domain, whole, len(spec.shape))
        for axis in repeated_axes(spec):
            self.finish()
            values = values.narrow(axis + 1, 0, 1).expand(shape)
        self.made[name] = values.contiguous()
        return self.made[name]

    def _fill(
        self,
        name: str,
        spec: TensorSpec,
        fill: Fill,
        values: Tensor,
        overwrites: Overwrites | None,
        seen: tuple[str, ...],
    ) -> bool:
        """Write the values of all items; return whether those overwritten are too."""
        runs = runs_of(self._batch, name, spec, fill)
        for _, _, family in runs:
            if family != fill.family:
                check_fill(name, spec, replace(fill, family=family))
        if not spec.numel:
            return False
        left = self._copied(name, spec, fill, values, runs, seen)
        seeds = item_seeds(fill.seed, 0, self._batch.members)
        if is_shared(spec):
            seeds[:] = seeds[0]
        streams = Streams(seeds, self._device)
        if not self._is_fused(values, spec):
            bound = bound_of(self._batch.case, name, spec)
            for run in left:
                _fill(values, spec, fill, run, bound, streams)
            return False
        plants = None
        if overwrites is not None and left == runs:
            plants = overwrites.columns()
        self._fills.add(values, left, streams, axis=fill.axis, plants=plants)
        return plants is not None

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
        """Write the items that copy another argument; return the other runs."""
        left = []
        for start, stop, family in runs:
            if family in COPIES:
                assert fill.source is not None
                source = self.values(fill.source, (*seen, name))
                self.finish()
                part = source[start:stop]
                copied = transposed(part, spec, values.dtype)
                if copied is not None:
                    values[start:stop] = copied
                    continue
                family = "randn"
            left.append((start, stop, family))
        return left


def _fill(
    values: Tensor, spec: TensorSpec, fill: Fill, run: Run, bound: int, streams: Streams
) -> None:
    """Write the values of the items of a run, which copies no other argument.

    Args:
        values: [items, *shape], contiguous, of which they are written.
        spec: of the argument, not empty.
        fill: of the case; only its axis counts here.
        run: the items and their family.
        bound: of indices, what they stay below.
        streams: of all items.
    """
    start, stop, family = run
    rank = len(spec.shape)
    n = spec.shape[fill.axis] if rank else 1
    # Of integers any format: they do not ask.
    fmt = FORMATS.get(spec.dtype, FORMATS["float64"])
    grid = Grid(spec.numel // n, n, fmt, streams, start, stop)
    part = values if streams.one is not None else values[start:stop]
    if rank == 0 or fill.axis == -1:
        fill_rows(part.view(grid.shape), grid, family, bound=bound)
        return
    # Rows along an axis that is not the last are copied to their places.
    rows = torch.empty_like(part).view(grid.shape)
    fill_rows(rows, grid, family, bound=bound)
    outer = list(spec.shape)
    del outer[fill.axis]
    part.copy_(rows.view(stop - start, *outer, n).movedim(-1, fill.axis))


def checked(case: Case, name: str, seen: tuple[str, ...] = ()) -> TensorSpec:
    """Return the spec of an argument whose recipe is possible.

    Args:
        case: the recipe.
        name: the argument.
        seen: arguments that copy from it, one from the other.

    Raises:
        KfuzzError: where the recipe is impossible.
    """
    if name not in case.tensors or name in seen:
        cause = "copies from itself" if name in seen else "is no argument of this case"
        raise KfuzzError(
            f"{name!r} {cause}",
            where=".".join((*seen, name)),
            fix=f"a fill's source is another of: {', '.join(case.tensors)}",
        )
    spec = case.tensors[name]
    if problem := spec.problem():
        raise KfuzzError(problem, where=name)
    if spec.fill is not None:
        check_fill(name, spec, spec.fill)
    return spec


def check_fill(name: str, spec: TensorSpec, fill: Fill) -> None:
    """Raise a KfuzzError if an argument cannot be filled so."""
    kind, known = families_of(spec.dtype, spec.below)
    if fill.family not in known:
        raise KfuzzError(
            f"unknown {kind} family {fill.family!r}",
            where=name,
            fix=suggestion(fill.family, known),
        )
    rank = len(spec.shape)
    if not (-rank <= fill.axis < 0 or (rank == 0 and fill.axis == -1)):
        raise KfuzzError(
            f"fill axis {fill.axis} of a rank-{rank} tensor",
            where=name,
            fix="give an axis counted from the end, -1 for the last",
        )
    if spec.numel and fill.family in COPIES and fill.source is None:
        raise KfuzzError(f"the fill {fill.family} names no source", where=name)


def pinned(spec: TensorSpec, device: torch.device) -> Tensor:
    """Return explicit values, contiguous, fresh storage."""
    assert spec.values is not None
    dtype = getattr(torch, spec.dtype)
    if not spec.values:
        return torch.empty(spec.shape, dtype=dtype, device=device)
    raw = torch.frombuffer(
        bytearray(spec.values), dtype=INTEGERS[DTYPES[spec.dtype].itemsize]
    )
    return raw.to(device).reshape(spec.shape).view(dtype)


def bound_of(case: Case, name: str, spec: TensorSpec) -> int:
    """Return the size that the indices of an argument stay below; 0 for no indices.

    Offsets reach it.

    Raises:
        KfuzzError: if there is no index below it.
    """
    if not spec.below:
        return 0
    bound = case.bound(spec)
    words = parsed(spec.domain).words
    if SPANS in words:  # the last one may end where the dimension does
        return bound + 1
    if OFFSETS in words:
        return max(bound, 1)
    if bound < 1:
        raise KfuzzError(
            f"no index lies below dimension {spec.below!r} of size {bound}", where=name
        )
    return bound


def in_domain(case: Case, name: str) -> bool:
    """Whether the pinned values of an argument lie in its domain."""
    spec = case.tensors[name]
    if not spec.domain or spec.values is None:
        return True
    whole, rank = case.bound(spec), len(spec.shape)
    return holds(pinned(spec, HOST), spec.domain, whole, rank)


def refitted(case: Case) -> Case:
    """Return a case with every pinned argument put into its domain."""
    tensors = dict(case.tensors)
    for name, spec in case.tensors.items():
        if spec.problem() is None and not in_domain(case, name):
            whole, rank = case.bound(spec), len(spec.shape)
            made = fitted(pinned(spec, HOST), spec.domain, whole, rank).contiguous()
            data = made.view(-1).view(torch.uint8).numpy().tobytes()
            tensors[name] = replace(spec, values=data)
    return replace(case, tensors=tensors)


def transposed(source: Tensor, spec: TensorSpec, dtype: torch.dtype) -> Tensor | None:
    """Return each source with its last two axes swapped, tiled to the shape.

    Args:
        source: logical elements of the items, stacked.
        spec: what is to be filled; its shape and the name of its dtype.
        dtype: its dtype.

    Returns:
        Contiguous, fresh storage; missing leading axes repeat, superfluous ones keep
        their first index. None if the source is empty.
    """
    if source.numel() == 0:
        return None
    rank = 1 + len(spec.shape)
    if source.dim() > 2:
        source = source.transpose(-1, -2)
    while source.dim() > rank:
        source = source.select(1, 0)
    items, *inner = source.shape
    source = source.reshape((items, *(1,) * (rank - source.dim()), *inner))
    # Axes that shrink first: what lies between is never larger than both ends.
    sizes = source.shape
    wanted = enumerate(spec.shape, start=1)
    for axis, n in sorted(wanted, key=lambda a: a[1] > sizes[a[0]]):
        if source.shape[axis] != n:
            index = torch.arange(n, device=source.device) % source.shape[axis]
            source = source.index_select(axis, index)
    if source.dtype != dtype:
        exact = source.to(torch.float64)
        source = round_to(exact, FORMATS[spec.dtype]).to(dtype)
    # A copy: the plants of this argument must not reach the source.
    return source.clone(memory_format=torch.contiguous_format)


def can_stretch(spec: TensorSpec) -> bool:
    """Whether an argument's values can be made a stretch at a time."""
    return (
        spec.fill is not None
        and spec.fill.family in STRETCHED
        and spec.fill.axis == -1
        and spec.dtype in FORMATS
        and not spec.below
        and not spec.domain
        and spec.is_contiguous
        and spec.offset == 0
    )


def stretch(spec: TensorSpec, start: int, stop: int, device: torch.device) -> Tensor:
    """Return elements `start` to `stop` of an argument, in C order.

    They are the bits that `logical_values` gives the same elements.

    Args:
        spec: see `can_stretch`.
        start: number of the first element.
        stop: one past the number of the last.
        device: where they are made.

    Returns:
        Shape (stop - start,), in the spec's dtype.

    Raises:
        KfuzzError: if the recipe does not allow it.
    """
    if not can_stretch(spec):
        raise KfuzzError("the values of this recipe cannot be made in parts")
    assert spec.fill is not None
    streams = Streams(np.array([spec.fill.seed & _MASK64], dtype=np.uint64), device)
    grid = Grid(
        1, stop - start, FORMATS[spec.dtype], streams, first=start, total=spec.numel
    )
    rows = torch.empty(grid.shape, dtype=getattr(torch, spec.dtype), device=device)
    fill_rows(rows, grid, spec.fill.family)
    values = rows.view(-1)
    raw = values.view(INTEGERS[values.element_size()])
    for plant in spec.plants:
        at = 0
        for index, n in zip(plant.at, spec.shape, strict=True):
            at = at * n + index
        if start <= at < stop:
            raw[at - start] = as_signed(plant.bits, values.element_size())
    return values


# Torch's random generators: the same state at every call, as before afterwards.

SEED: Final = 0x5EED
"""What the generators are seeded with where nothing else is asked for."""

OTHER_SEED: Final = 0xD1CE
"""What they are seeded with to see whether a result depends on it."""


@contextmanager
def seeded(device: torch.device, seed: int) -> Iterator[None]:
    """Seed the generators of the CPU and of a device while the block runs.

    Their states are those from before when it ends.
    """
    generators = backend_of(device).generators(device)
    states = [generator.get_state() for generator in generators]
    for generator in generators:
        generator.manual_seed(seed)
    try:
        yield
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)
