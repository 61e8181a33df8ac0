"""All programs of a launch at once in Triton's interpreter, where that changes nothing.

Each value of a kernel's is an array with one value per program (`Programs`). Where
Python's control flow depends on such a value, what the programs stored is taken back,
and those that agree run again together. A launch in which programs meet in memory, or
one of them does what is to be reported, is undone, and its programs run one after the
other: so all that is recorded, and the order in which programs see each other, is as
ever. The grid is cut so that values stay small.
"""

import ctypes
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import pairwise
from types import CodeType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kfuzz.execution.calls.patches import Patches
from kfuzz.execution.interpreter import programs
from kfuzz.execution.interpreter.memory import Region, Regions
from kfuzz.execution.interpreter.programs import (
    Array,
    Diverged,
    NotVectorised,
    Programs,
    TooLarge,
    count_of,
    elementwise,
    numpy_for,
    shaped,
    spread,
)
from kfuzz.execution.interpreter.races import Race, RaceLog, chosen, consecutive

LEAST_PROGRAMS: Final = 1
"""Fewer run one after the other."""

_MOST_LOADS: Final = 10_000
"""More in one go may be a wait for a program."""

_LEAST_TOGETHER: Final = 4
_MOST_SKIPPED: Final = 64

Indices = NDArray[np.int64]


class Session:
    """The memory operations of all programs of a launch: they stand for those of one.

    Args:
        regions: what the launch may touch.
        programs: how many it runs.
        gets_on: called when some programs begin.

    Attributes:
        atomic: whether what is carried out now is part of an atomic operation.
        origin: as of `AddressCheck`.
        volatile, casts: likewise; not used.
        regions: what the launch may touch.
        hints: whether what a kernel promises its compiler is checked, too.
    """

    def __init__(
        self, regions: Regions, programs: int, gets_on: Callable[[], None]
    ) -> None:
        self._gets_on = gets_on
        self.atomic = self.volatile = self.casts = self.hints = False
        self.origin: int | None = None
        self.regions = regions
        each = regions.all
        if any(a.high > b.low for a, b in pairwise(each)):
            raise NotVectorised("arguments overlap")
        self._log = RaceLog(programs, journal=True)
        if not self._log.possible and programs > 1:
            raise NotVectorised("that many programs are not followed")
        self._numbers = np.zeros(1, np.int64)
        self._loaded = 0
        # In order: what a store or an atomic replaced.
        self._undo: list[tuple[Array, Any, Array]] = []
        self._views: dict[tuple[Region, int], Array] = {}
        self._written: dict[Region, Callable[[], None]] = {}

    def begin(self, numbers: NDArray[np.int64]) -> tuple[int, int]:
        """Begin some programs, and return where to roll back to.

        Args:
            numbers: of the programs, in the order in which they would run.
        """
        self._gets_on()
        self._numbers, self._loaded = numbers, 0
        return len(self._undo), len(self._log.journal)

    def roll_back(self, place: tuple[int, int] = (0, 0)) -> None:
        """Undo what was done since."""
        while len(self._undo) > place[0]:
            array, places, held = self._undo.pop()
            array[places] = held
        self._log.roll_back(place[1])
        if not place[0]:
            while self._written:
                self._written.popitem()[1]()

    def promised(self, hint: str, untrue: Any) -> None:
        """Leave an untrue hint to whoever records it."""
        raise NotVectorised(f"{hint} is untrue")

    def polled(self, ptrs: Any, result: Any) -> None:
        """Do nothing: what waits for another program loads more than it may."""

    def load(self, native: Any, ptrs: Any, mask: Any, other: Any, dtype: Any) -> Any:
        """Carry out a load."""
        self._loaded += 1
        if self._loaded > _MOST_LOADS:
            raise NotVectorised("a program may wait for another")
        many, (ptrs, mask, other) = self._lanes(ptrs, mask, other)
        word = np.dtype(f"u{np.dtype(dtype).itemsize}")
        if other.itemsize != word.itemsize:
            raise NotVectorised("a load's default value of another size")
        result = other.view(word)
        for region, lanes, units in self._pieces(ptrs, mask, word.itemsize):
            live = mask if lanes is None else lanes
            # For a load that all do stand the first and the last.
            ends = self._numbers[[0, -1]] if self._log.possible else ()
            for whose in [self._all(ptrs.shape)] if many else ends:
                races = self._log.load(region, whose, ptrs, live, word.itemsize, "")
                self._apart("a load", races)
            found = self._memory(region, word)[units]
            if region.writes is not None and not region.writes.complete:
                numbers = _numbers(lanes)
                offsets = _chosen(units, numbers) * word.itemsize
                held = _chosen(found, numbers).view(np.uint8).reshape(-1, word.itemsize)
                if region.writes.missing(offsets, word.itemsize, held).any():
                    raise NotVectorised("a load of what nothing wrote")
            result = found if lanes is None else np.where(lanes, found, result)
        result = np.array(result, order="C", copy=None).view(dtype)
        return Programs(result) if many else result

    def store(self, native: Any, ptrs: Any, values: Any, mask: Any) -> Any:
        """Carry out a store."""
        ptrs, values, mask = self._spread(ptrs, values, mask)
        word = np.dtype(f"u{values.itemsize}")
        for region, offsets, whose, lanes, memory, key in self._stores(
            ptrs, mask, word
        ):
            stored, held = _chosen(values.view(word), lanes), self._undo[-1][-1]
            if self._log.possible:
                races = self._log.store(region, whose, offsets, stored, held, "")
                self._apart("a store", races)
            memory[key] = stored

    def atomic_rmw(
        self, native: Any, op: Any, ptrs: Any, value: Any, mask: Any, sem: Any
    ) -> Any:
        """Carry out an atomic of each program, in their order."""
        # Triton 3.6 crashes where elements are apart.
        ptrs, value, mask = map(np.ascontiguousarray, self._spread(ptrs, value, mask))
        word = np.dtype(f"u{value.itemsize}")
        for region, offsets, whose, *_ in self._stores(ptrs, mask, word):
            races = self._log.atomic(region, whose, offsets, word.itemsize, "")
            self._apart("an atomic", races)
        result = native.atomic_rmw(op, ptrs, value, mask, sem)
        return Programs(result) if len(self._numbers) > 1 else result[0]

    def atomic_cas(self, *operands: Any) -> Any:
        """Refuse: who comes first decides what the others do."""
        raise NotVectorised("a compare-and-swap")

    def _lanes(self, ptrs: Any, *others: Any) -> tuple[bool, list[Array]]:
        """Return operands in one shape, and whether programs differ in them."""
        operands = [shaped(x, ptrs.shape) for x in (ptrs, *others)]
        count = count_of(operands)
        return bool(count), [spread(x, count) if count else x for x in operands]

    def _spread(self, *operands: Any) -> list[Array]:
        """Return operands in one shape, each program's."""
        many, found = self._lanes(*operands)
        return found if many else [spread(x, len(self._numbers)) for x in found]

    def _all(self, shape: tuple[int, ...]) -> Indices:
        """Return the number of each lane's program."""
        numbers = self._numbers.reshape(-1, *(1,) * (len(shape) - 1))
        return np.broadcast_to(numbers, shape)

    def _apart(self, access: str, races: list[Race]) -> None:
        """Go on if accesses meet nobody else's."""
        for race in races:
            raise NotVectorised(f"{access} meets another program's {race.access}")
        if self._log.incomplete:
            raise NotVectorised("memory of that size is not followed")

    def _pieces(
        self, ptrs: Array, mask: Array, size: int
    ) -> list[tuple[Region, Any, Indices]]:
        """Return the regions that live lanes touch, which lanes, and where.

        None stands for all lanes. Where it touches is counted in elements of the
        access, 0 for other lanes.
        """
        whole = bool(mask.all())
        if not ptrs.size or not (whole or mask.any()):
            return []
        first = int(ptrs.flat[0 if whole else int(mask.argmax())])
        home = self.regions.home(self.origin)
        region = home or self.regions.covering(first, first + size)
        if region is not None:
            lanes = None if whole else mask
            offsets = _offsets(region, ptrs, lanes)
            if offsets.view(np.uint64).max() <= region.high - region.low - size:
                return [(region, lanes, _counted(offsets, size))]
        numbers = self.regions.numbers(ptrs, size, home)
        if (mask & (numbers < 0)).any():
            raise NotVectorised("an access outside of the arguments")
        found = []
        for number in np.unique(numbers[mask]):
            region, lanes = self.regions.all[number], mask & (numbers == number)
            offsets = _offsets(region, ptrs, lanes)
            found.append((region, lanes, _counted(offsets, size)))
        return found

    def _memory(self, region: Region, word: np.dtype[Any]) -> Array:
        """Return what a region holds, as an array of words."""
        key = region, word.itemsize
        if key not in self._views:
            count = (region.high - region.low) // word.itemsize
            held: Any = (ctypes.c_byte * (count * word.itemsize)).from_address(
                region.low
            )
            self._views[key] = np.frombuffer(held, word)
        return self._views[key]

    def _stores(
        self, ptrs: Array, mask: Array, word: np.dtype[Any]
    ) -> Iterator[tuple[Region, Indices, Indices, Any, Array, Any]]:
        """Keep what memory holds before a store.

        Yields:
            Per region that is stored to it, byte offsets and programs of the lanes that
            do, which these are, its memory, and what chooses them there.
        """
        size = word.itemsize
        for region, mine, units in self._pieces(ptrs, mask, size):
            lanes = _numbers(mine)
            touched = _chosen(units, lanes)
            offsets, writes = touched * size, region.writes
            if region.spec and not region.holds_elements(offsets, size).all():
                raise NotVectorised("a store between elements")
            if writes is not None and not writes.complete:
                if region not in self._written:
                    self._written[region] = partial(writes.restore, writes.state())
                writes.mark(offsets, size)
            memory, key = self._memory(region, word), consecutive(touched)
            self._undo.append((memory, key, chosen(memory, key)))
            whose = _chosen(self._all(units.shape), lanes)
            yield region, offsets, whose, lanes, memory, key


def _chosen(values: Array, lanes: Any) -> Array:
    """Return the elements of the lanes, by their numbers, along one axis."""
    return values.reshape(-1)[... if lanes is None else lanes]


def _numbers(lanes: Any) -> Any:
    """Return the numbers of lanes, which takes less time to choose by."""
    return None if lanes is None else np.flatnonzero(lanes)


def _offsets(region: Region, ptrs: Array, lanes: Any) -> Indices:
    offsets: Indices = (ptrs - np.uint64(region.low)).view(np.int64)
    if lanes is not None:
        offsets *= lanes
    return offsets


def _counted(offsets: Indices, size: int) -> Indices:
    """Return offsets in elements instead of bytes."""
    if int(np.bitwise_or.reduce(offsets, axis=None)) & (size - 1):
        raise NotVectorised("accesses of several sizes")
    return offsets >> size.bit_length() - 1


# How many bytes the largest value of a program takes, by a kernel's code.
_sizes: dict[CodeType, int] = {}
# Kernels whose programs had to run one after the other: for how many launches they do
# so unasked, for how many the next time, and why.
_skipped: dict[CodeType, tuple[int, int, str]] = {}


def run(
    builder: Any,
    kernel: Callable[..., Any],
    arguments: Mapping[str, Any],
    grid: tuple[int, int, int],
    order: NDArray[np.int64],
    session: Callable[[], Session],
) -> str:
    """Run the programs of a launch together.

    Args:
        builder: the interpreter's.
        kernel: the function of one program.
        arguments: of the launch.
        grid: its size.
        order: the programs' places in the grid, z fastest, in the order to run.
        session: makes what carries out its memory operations, and watches.

    Returns:
        "" if they ran, else why nothing was done.
    """
    if len(order) < LEAST_PROGRAMS or np.__version__.startswith("1."):
        return "few programs"
    code = kernel.__code__
    skip, next_time, why = _skipped.get(code, (0, 1, ""))
    if skip:
        _skipped[code] = skip - 1, next_time, why
        return why
    following: Session | None = None

    def some(group: NDArray[np.int64]) -> None:
        builder.grid_idx = _places(order[group], grid)
        kernel(**arguments)

    try:
        following = session()
        _run(some, len(order), code, following)
        _skipped.pop(code, None)
        return ""
    except (Exception, NotVectorised) as error:
        # Whatever it is that a program raises, it does so alone.
        why = str(error) if isinstance(error, NotVectorised) else type(error).__name__
    if following is not None:
        following.roll_back()
    _skipped[code] = next_time, min(2 * next_time, _MOST_SKIPPED), why
    return why


def _run(
    some: Callable[[NDArray[np.int64]], None],
    total: int,
    code: CodeType,
    session: Session,
) -> None:
    pending, runs = [np.arange(total)], 0
    size = _sizes.get(code, 0)
    while pending:
        group = pending.pop(0)
        most = programs.LIMIT_BYTES // max(size, 1)
        if most < min(_LEAST_TOGETHER, total):
            raise NotVectorised("its blocks are large")
        if len(group) > most:
            pending[:0] = [group[n : n + most] for n in range(0, len(group), most)]
            continue
        runs += 1
        if runs + len(pending) > max(total // 2, 2):
            raise NotVectorised("programs take many paths")
        place = session.begin(group)
        Programs.largest = 0
        try:
            some(group)
        except Diverged as parted:
            if len(parted.values) != len(group):
                raise NotVectorised("a condition within a reduction") from None
            session.roll_back(place)
            _, numbers = np.unique(parted.values, return_inverse=True)
            parts = [group[numbers == n] for n in range(numbers.max() + 1)]
            pending[:0] = sorted(parts, key=lambda part: int(part[0]))
            continue
        except TooLarge as large:
            session.roll_back(place)
            size = -(-large.nbytes // len(group))
            pending.insert(0, group)
            continue
        if len(group) > 1:
            size = Programs.largest // len(group)
    _sizes[code] = size


def _places(places: NDArray[np.int64], grid: tuple[int, int, int]) -> tuple[Any, ...]:
    """Return a program's indices: numbers where all have the same."""
    found: list[Any] = []
    for axis in np.unravel_index(places, grid):
        same = bool((axis == axis[0]).all())
        found.append(int(axis[0]) if same else Programs(axis.astype(np.int32)))
    return tuple(found)


# Where the interpreter's own code has to know.


def install(module: Any, following: Callable[[], bool], patches: Patches) -> None:
    """Have the interpreter take values of many programs until the patches are undone.

    Args:
        module: `triton.runtime.interpreter`.
        following: returns whether the programs of a launch run together now.
        patches: takes what is replaced.
    """
    patches.set(module, "np", numpy_for(np))
    patches.set(module, "np_umulhi_u64", elementwise(module.np_umulhi_u64))
    printed = module.InterpreterBuilder.create_print

    def create_print(builder: Any, *operands: Any) -> None:
        if following():
            raise NotVectorised("values are printed")
        printed(builder, *operands)

    patches.set(module.InterpreterBuilder, "create_print", create_print)
    for owner, name, scans in (
        (module.ReduceOps, "generic_reduce", False),
        (module.ScanOps, "generic_scan", True),
    ):
        patches.set(owner, name, _combining(module, getattr(owner, name), scans))


def _combining(module: Any, original: Callable[..., Any], scans: bool) -> Any:
    """Return a reduction or scan by a function of scalars, for many programs.

    All lanes that are combined at the same time are programs of one lane.
    """

    def scalar(lanes: Array, dtype: Any) -> Any:
        data = lanes.reshape(-1, 1).astype(module._get_np_dtype(dtype))
        return module.tl.tensor(
            module.TensorHandle(Programs(data), dtype.scalar), dtype.scalar
        )

    def combined(made: Any, lanes: Array) -> Array:
        held = made.handle.data if isinstance(made, module.tl.tensor) else made
        data = held.data if isinstance(held, Programs) else np.asarray(held)
        kinds = {data.dtype.kind, lanes.dtype.kind}
        if data.dtype != lanes.dtype and kinds != {"f"}:
            raise NotVectorised("a reduction of another type")
        return np.broadcast_to(data.reshape(-1), lanes.shape).astype(lanes.dtype)

    def combine(self: Any, values: Any) -> Any:
        count = count_of([v.handle.data for v in values])
        if not count:
            return original(self, values)
        given = [spread(v.handle.data, count) for v in values]
        if self.axis is None:
            given = [x.reshape(count, -1) for x in given]
        elif self.axis < 0:
            raise NotVectorised("an axis counted from the end")
        axis = (self.axis or 0) + 1
        rows = [np.moveaxis(x, axis, 0) for x in given]
        rest, flat = rows[0].shape[1:], [x.reshape(len(x), -1) for x in rows]
        now = [x[0] for x in flat]
        steps = [now]
        for number in range(1, len(flat[0])):
            one = [scalar(x, v.dtype) for x, v in zip(now, values, strict=True)]
            two = [
                scalar(x[number], v.dtype) for x, v in zip(flat, values, strict=True)
            ]
            made = self.combine_fn.fn(*one, *two)
            made = made if isinstance(made, tuple) else (made,)
            now = [combined(m, x) for m, x in zip(made, now, strict=True)]
            steps.append(now)
        results = []
        for place, value in enumerate(values):
            if scans:
                data = np.stack([step[place] for step in steps]).reshape(-1, *rest)
                data = np.ascontiguousarray(np.moveaxis(data, 0, axis))
            else:
                data = now[place].reshape(rest)
                if self.keep_dims:
                    data = np.expand_dims(data, axis)
            results.append(self.to_tensor(Programs(data), value.dtype))
        return results

    return combine
