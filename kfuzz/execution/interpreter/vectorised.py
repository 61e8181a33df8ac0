"""All programs of a launch at once in Triton's interpreter, where that changes nothing.

Each value of a kernel's is an array with one value per program (`Programs`). Where
Python's control flow depends on such a value, what the programs stored is taken back,
and those that agree run again together. A launch in which programs meet in memory, or
one of them does what is to be reported, is undone, and its programs run one after the
other: so all that is recorded, and the order in which programs see each other, is as
ever. The grid is cut so that values stay small.
"""

from collections.abc import Callable, Mapping
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
    spread,
)

LEAST_PROGRAMS: Final = 3
"""Fewer take as long one after the other."""

_MOST_POLLS: Final = 100
"""So many loads of one element that all give the same may be a wait for a program."""

_MOST_LOADS: Final = 20_000
"""More of one element or many, in one go, may be a wait, too."""

_MOST_LOGGED: Final = 64 << 20
"""Bytes of pointers of loads that are kept until it is known who stores there."""

_MOST_UNITS: Final = 1 << 26
_LEAST_TOGETHER: Final = 4
_MOST_SKIPPED: Final = 64
_MANY: Final = -1

Indices = NDArray[np.int64]
Numbers = Array | int


class _Marks:
    """Who wrote and who read each unit of a region in a launch.

    Attributes:
        unit: bytes of a unit.
        writers: the number of the program, from 1; 0 for none, `_MANY` for several
            that an atomic operation orders.
        read: whether anything was read.
        readers: alike; `_MANY` for several.
        atomics: the number of the last atomic operation, from 1.
    """

    def __init__(self, region: Region, unit: int) -> None:
        count = -(-(region.high - region.low) // unit)
        if count > _MOST_UNITS:
            raise NotVectorised("memory of that size is not followed")
        self.unit = unit
        self.writers = np.zeros(count, np.int32)
        self.read = False
        self.readers = np.zeros(count, np.int32)
        self.atomics = np.zeros(count, np.int32)


class Session:
    """The memory operations of all programs of a launch: they stand for those of one.

    Args:
        regions: what the launch may touch.
        gets_on: called when some programs begin.

    Attributes:
        atomic: whether what is carried out now is part of an atomic operation.
        volatile, origin: as of `AddressCheck`; not used.
        casts: likewise.
    """

    def __init__(self, regions: Regions, gets_on: Callable[[], None]) -> None:
        self._gets_on = gets_on
        self.atomic = self.volatile = self.casts = False
        self.origin = None
        self._regions = regions
        each = regions.all
        if any(a.high > b.low for a, b in pairwise(each)):
            raise NotVectorised("arguments overlap")
        self._numbers = np.zeros(1, np.int32)
        self._marks: dict[Region, _Marks] = {}
        # Of regions that nothing has stored to: where, lanes, size, and programs.
        self._loads: dict[Region, list[tuple[Indices, Any, int, Any, bool]]] = {}
        self._logged = self._loaded = 0
        # In order: what a store or the mark of an atomic operation replaced.
        self._undo: list[tuple[Array, Indices, Array]] = []
        self._views: dict[tuple[Region, int], Array] = {}
        self._written: dict[Region, Any] = {}
        self._atomics = 0
        self._begun, self._ordered, self._latest = 0, True, 0
        self._polled: Any = None
        self._polls = 0

    def begin(self, numbers: NDArray[np.int32]) -> int:
        """Begin some programs, and return where to roll back to.

        Args:
            numbers: of the programs, from 1, in the order in which they would run.
        """
        self._gets_on()
        self._numbers, self._loaded = numbers, 0
        self._begun = self._atomics
        self._ordered = int(numbers[0]) > self._latest
        return len(self._undo)

    def end(self) -> None:
        """End these programs."""
        self._latest = max(self._latest, int(self._numbers[-1]))

    def roll_back(self, place: int) -> None:
        """Undo what was done since."""
        while len(self._undo) > place:
            array, places, held = self._undo.pop()
            array[places] = held
        if not place:
            for region, state in self._written.items():
                assert region.writes is not None
                region.writes.restore(state)
            self._written.clear()

    def polled(self, ptrs: Any, result: Any) -> None:
        """Note what a load gave: it may be a wait for another program."""
        if ptrs.size != 1:
            self._polled = None
            return
        poll = tuple(getattr(x, "data", x).tobytes() for x in (ptrs, result))
        if poll != self._polled:
            self._polled, self._polls = poll, 0
        self._polls += 1
        if self._polls >= _MOST_POLLS:
            raise NotVectorised("a program may wait for another")

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
            self._log(region, units, lanes, word.itemsize, many)
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
        self._polled = None
        many, (ptrs, values, mask) = self._lanes(ptrs, values, mask)
        word = np.dtype(f"u{values.itemsize}")
        for region, lanes, units in self._pieces(ptrs, mask, word.itemsize):
            if not many and len(self._numbers) > 1:
                raise NotVectorised("programs store to the same elements")
            lanes = _numbers(lanes)
            touched = self._stored(region, units, lanes, word)
            who = self._who(units.shape, lanes, many)
            marks = self._marks_of(region, word.itemsize)
            for marked in (
                (marks.writers, marks.readers) if marks.read else (marks.writers,)
            ):
                seen = marked[touched]
                if np.count_nonzero(seen) and ((seen != 0) & (seen != who)).any():
                    raise NotVectorised(
                        "a program stores where another one loads or stores"
                    )
            marks.writers[touched] = who
            if many and (marks.writers[touched] != who).any():
                raise NotVectorised("programs store to the same elements")
            memory = self._memory(region, word)
            memory[touched] = _chosen(values.view(word), lanes)

    def atomic_rmw(
        self, native: Any, op: Any, ptrs: Any, value: Any, mask: Any, sem: Any
    ) -> Any:
        """Carry out an atomic of each program, in their order."""
        many, operands = self._lanes(ptrs, value, mask)
        if not many and len(self._numbers) > 1:
            many, operands = True, [spread(x, len(self._numbers)) for x in operands]
        ptrs, value, mask = operands
        word = np.dtype(f"u{value.itemsize}")
        self._atomics += 1
        for region, lanes, units in self._pieces(ptrs, mask, word.itemsize):
            lanes = _numbers(lanes)
            touched = self._stored(region, units, lanes, word)
            who = self._who(units.shape, lanes, many)
            marks = self._marks_of(region, word.itemsize)
            seen, last = marks.writers[touched], marks.atomics[touched]
            others = (seen != 0) & (seen != who)
            # All of those came before all of these, here as one after the other.
            before = (last != 0) & (last <= self._begun) & self._ordered
            if ((others & ~before) | (marks.readers[touched] != 0)).any():
                raise NotVectorised("atomics of programs meet other accesses")
            self._undo.append((marks.writers, touched, seen))
            self._undo.append((marks.atomics, touched, last))
            marks.atomics[touched] = self._atomics
            marks.writers[touched] = who
            shared = others | (marks.writers[touched] != who)
            marks.writers[touched[shared]] = _MANY
        result = native.atomic_rmw(op, ptrs, value, mask, sem)
        return Programs(result) if many else result

    def atomic_cas(self, *operands: Any) -> Any:
        """Refuse: who comes first decides what the others do."""
        raise NotVectorised("a compare-and-swap")

    def _lanes(self, ptrs: Any, *others: Any) -> tuple[bool, list[Array]]:
        """Return operands in one shape, and whether programs differ in them."""
        shape, count = ptrs.shape, count_of((ptrs, *others))
        found = []
        for x in (ptrs, *others):
            if not isinstance(x, Programs):
                x = np.asarray(x)
            if x.shape != shape and x.size == int(np.prod(shape)):
                x = x.reshape(shape)
            if x.shape != shape:
                x = np.broadcast_to(x, shape)
            found.append(spread(x, count) if count else x)
        return bool(count), found

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
        region = self._regions.covering(first, first + size)
        if region is not None:
            lanes = None if whole else mask
            offsets = _offsets(region, ptrs, lanes)
            room = region.high - region.low - size
            if offsets.min() >= 0 and offsets.max() <= room:
                return [(region, lanes, _counted(offsets, size))]
        numbers = self._regions.numbers(ptrs, size)
        if (mask & (numbers < 0)).any():
            raise NotVectorised("an access outside of the arguments")
        found = []
        for number in np.unique(numbers[mask]):
            region, lanes = self._regions.all[number], mask & (numbers == number)
            offsets = _offsets(region, ptrs, lanes)
            found.append((region, lanes, _counted(offsets, size)))
        return found

    def _memory(self, region: Region, word: np.dtype[Any]) -> Array:
        """Return what a region holds, as an array of words."""
        key = region, word.itemsize
        if key not in self._views:
            count = (region.high - region.low) // word.itemsize
            self._views[key] = np.asarray(_Memory(region.low, count, word))
        return self._views[key]

    def _stored(
        self, region: Region, units: Indices, lanes: Any, word: np.dtype[Any]
    ) -> Indices:
        """Keep what memory holds before a store, and return where it stores."""
        touched, size = _chosen(units, lanes), word.itemsize
        if not (
            region.spec is None or region.holds_elements(touched * size, size).all()
        ):
            raise NotVectorised("a store between elements")
        if region.writes is not None and not region.writes.complete:
            if region not in self._written:
                self._written[region] = region.writes.state()
            region.writes.mark(touched * size, size)
        memory = self._memory(region, word)
        self._undo.append((memory, touched, memory[touched]))
        return touched

    def _who(self, shape: tuple[int, ...], lanes: Any, many: bool) -> Numbers:
        """Return the number of each lane's program, `_MANY` for all of several."""
        if not many:
            return int(self._numbers[0]) if len(self._numbers) == 1 else _MANY
        numbers = self._numbers.reshape(-1, *(1,) * (len(shape) - 1))
        return _chosen(np.broadcast_to(numbers, shape), lanes)

    def _marks_of(self, region: Region, size: int) -> _Marks:
        """Return the marks of a region that is stored to."""
        marks = self._marks.get(region)
        if marks is None:
            marks = self._marks[region] = _Marks(region, size)
            for units, lanes, wide, numbers, many in self._loads.pop(region, ()):
                self._numbers, now = numbers, self._numbers
                self._read(region, units, lanes, wide, many)
                self._numbers = now
        if size != marks.unit:
            raise NotVectorised("accesses of several sizes")
        return marks

    def _log(
        self, region: Region, units: Indices, lanes: Any, size: int, many: bool
    ) -> None:
        """Note a load: at once where something is stored to the region, else later."""
        if region in self._marks:
            self._read(region, units, lanes, size, many)
            return
        loads = self._loads.setdefault(region, [])
        loads.append((units, lanes, size, self._numbers, many))
        self._logged += units.nbytes
        if self._logged > _MOST_LOGGED:
            self._logged = 0
            for known, (first, *_) in list(self._loads.items()):
                self._marks_of(known, first[2])

    def _read(
        self, region: Region, units: Indices, lanes: Any, size: int, many: bool
    ) -> None:
        lanes = _numbers(lanes)
        marks, touched = self._marks_of(region, size), _chosen(units, lanes)
        marks.read = True
        who = self._who(units.shape, lanes, many)
        writers, readers = marks.writers[touched], marks.readers[touched]
        own = (writers == who) & (writers != _MANY)
        if ((writers != 0) & ~own).any():
            raise NotVectorised("a program reads what another one writes")
        made = np.where((readers == 0) | (readers == who), who, _MANY)
        marks.readers[touched] = made
        marks.readers[touched[marks.readers[touched] != made]] = _MANY


class _Memory:
    """Memory at an address, for NumPy."""

    def __init__(self, address: int, count: int, word: np.dtype[Any]) -> None:
        self.__array_interface__ = {
            "data": (address, False), "shape": (count,), "typestr": word.str,
            "version": 3,
        }  # fmt: skip


def _chosen(values: Array, lanes: Any) -> Array:
    """Return the elements of the lanes, by their numbers, along one axis."""
    flat = values.reshape(-1)
    return flat if lanes is None else flat[lanes]


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
    if size > 1:
        if int(np.bitwise_or.reduce(offsets, axis=None)) & (size - 1):
            raise NotVectorised("accesses of several sizes")
        offsets >>= size.bit_length() - 1
    return offsets


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
    try:
        following = session()
        _run(builder, kernel, arguments, grid, order, following)
        _skipped.pop(code, None)
        return ""
    except (Exception, NotVectorised) as error:
        # Whatever it is that a program raises, it does so alone.
        why = str(error) if isinstance(error, NotVectorised) else type(error).__name__
    if following is not None:
        following.roll_back(0)
    _skipped[code] = next_time, min(2 * next_time, _MOST_SKIPPED), why
    return why


def _run(
    builder: Any,
    kernel: Callable[..., Any],
    arguments: Mapping[str, Any],
    grid: tuple[int, int, int],
    order: NDArray[np.int64],
    session: Session,
) -> None:
    total, runs = len(order), 0
    pending = [np.arange(total)]
    size = _sizes.get(kernel.__code__, 0)
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
        place = session.begin((group + 1).astype(np.int32))
        Programs.largest = 0
        builder.grid_idx = _places(order[group], grid)
        try:
            kernel(**arguments)
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
        session.end()
        if len(group) > 1:
            size = Programs.largest // len(group)
    _sizes[kernel.__code__] = size


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
    for name in ("np_erf_fp32", "np_erf_fp64", "np_umulhi_u64"):
        if hasattr(module, name):
            patches.set(module, name, elementwise(getattr(module, name)))
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
