"""All programs of a launch at once in Triton's interpreter, where that changes nothing.

Each value of a kernel's is an array with one value per program (`Programs`). Where
Python's control flow depends on such a value, what the programs stored is taken back,
and those that agree run again together. A launch in which programs meet in memory, or
one of them does what is to be reported, is undone, and its programs run one after the
other: so all that is recorded, and the order in which programs see each other, is as
ever. The grid is cut so that values stay small.
"""

from collections.abc import Callable, Iterable, Mapping
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

_MOST_LOGGED: Final = 64 << 20
"""Bytes of pointers of loads that are kept until it is known who stores there."""

_MOST_UNITS: Final = 1 << 26
_LEAST_TOGETHER: Final = 4
_MOST_SKIPPED: Final = 64
_MANY: Final = -1

Indices = NDArray[np.int64]
Numbers = NDArray[np.int32] | int


class _Marks:
    """Who wrote and who read each unit of a region in a launch.

    Attributes:
        unit: bytes of a unit.
        writers: the number of the program, from 1; 0 for none, `_MANY` for several
            that an atomic operation orders.
        readers: alike; `_MANY` for several.
        atomics: the number of the last atomic operation, from 1.
    """

    def __init__(self, region: Region, unit: int) -> None:
        count = -(-(region.high - region.low) // unit)
        if count > _MOST_UNITS:
            raise NotVectorised("memory of that size is not followed")
        self.unit = unit
        self.writers = np.zeros(count, np.int32)
        self.readers = np.zeros(count, np.int32)
        self.atomics = np.zeros(count, np.int32)


class Session:
    """The memory operations of all programs of a launch: they stand for those of one.

    Args:
        regions: what the launch may touch.

    Attributes:
        atomic: whether what is carried out now is part of an atomic operation.
        origin: as of `AddressCheck`; not used.
        casts: likewise.
    """

    def __init__(self, regions: Regions) -> None:
        self.atomic, self.origin, self.casts = False, None, False
        self._regions = regions
        each = regions.all
        if any(a.high > b.low for a, b in pairwise(each)):
            raise NotVectorised("arguments overlap")
        self._numbers = np.zeros(1, np.int32)
        self._marks: dict[Region, _Marks] = {}
        # Of regions that nothing has stored to: pointers, lanes, size, and programs.
        self._loads: dict[Region, list[tuple[Array, Any, int, Any, bool]]] = {}
        self._logged = 0
        # In order: what undoes a store or the mark of an atomic operation.
        self._undo: list[Callable[[], Any]] = []
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
        self._numbers = numbers
        self._begun = self._atomics
        self._ordered = int(numbers[0]) > self._latest
        return len(self._undo)

    def end(self) -> None:
        """End these programs."""
        self._latest = max(self._latest, int(self._numbers[-1]))

    def roll_back(self, place: int) -> None:
        """Undo what was done since."""
        while len(self._undo) > place:
            self._undo.pop()()
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
        many, (ptrs, mask, other) = self._lanes(ptrs, mask, other)
        size = np.dtype(dtype).itemsize
        pieces = self._pieces(ptrs, mask, size)
        for region, lanes in pieces:
            self._log(region, ptrs, lanes, size, many)
        result = native.load(ptrs, mask, other, dtype)
        for region, lanes in pieces:
            if region.writes is not None and not region.writes.complete:
                offsets = _offsets(region, ptrs, lanes)
                flat = np.ascontiguousarray(result[lanes]).reshape(-1)
                found = flat.view(np.uint8).reshape(-1, size)
                if region.writes.missing(offsets, size, found).any():
                    raise NotVectorised("a load of what nothing wrote")
        return Programs(result) if many else result

    def store(self, native: Any, ptrs: Any, values: Any, mask: Any) -> Any:
        """Carry out a store."""
        self._polled = None
        many, (ptrs, values, mask) = self._lanes(ptrs, values, mask)
        size = values.dtype.itemsize
        for region, lanes, offsets in self._stored(ptrs, mask, size):
            marks, units = self._units(region, offsets, size)
            who = self._who(lanes, many)
            if not many and len(self._numbers) > 1:
                raise NotVectorised("programs store to the same elements")
            for seen in (marks.writers[units], marks.readers[units]):
                if ((seen != 0) & (seen != who)).any():
                    raise NotVectorised("a program stores where another one does")
            marks.writers[units] = who
            if (marks.writers[units] != who).any():
                raise NotVectorised("programs store to the same elements")
        self._keep(native, ptrs, mask, size)
        return native.store(ptrs, values, mask)

    def atomic_rmw(
        self, native: Any, op: Any, ptrs: Any, value: Any, mask: Any, sem: Any
    ) -> Any:
        """Carry out an atomic of each program, in their order."""
        many, (ptrs, value, mask) = self._lanes(ptrs, value, mask)
        if not many and len(self._numbers) > 1:
            count = len(self._numbers)
            many, ptrs, value, mask = (
                True,
                *(spread(x, count) for x in (ptrs, value, mask)),
            )
        size = value.dtype.itemsize
        self._atomics += 1
        for region, lanes, offsets in self._stored(ptrs, mask, size):
            marks, units = self._units(region, offsets, size)
            who = self._who(lanes, many)
            seen, last = marks.writers[units], marks.atomics[units]
            others = (seen != 0) & (seen != who)
            # All of those came before all of these, here as one after the other.
            before = (last != 0) & (last <= self._begun) & self._ordered
            if ((others & ~before) | (marks.readers[units] != 0)).any():
                raise NotVectorised("atomics of programs meet other accesses")
            self._undo.append(_putting(marks.writers, units, seen))
            self._undo.append(_putting(marks.atomics, units, last))
            marks.atomics[units] = self._atomics
            marks.writers[units] = who
            marks.writers[units[others | (marks.writers[units] != who)]] = _MANY
        self._keep(native, ptrs, mask, size)
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

    def _pieces(self, ptrs: Array, mask: Array, size: int) -> list[tuple[Region, Any]]:
        """Return the regions that live lanes touch, and which; `...` for all lanes."""
        lanes: Any = ... if mask.all() else mask
        touched = ptrs[lanes]
        if not touched.size:
            return []
        region = self._regions.covering(int(touched.min()), int(touched.max()) + size)
        if region is not None:
            return [(region, lanes)]
        numbers = np.full(ptrs.shape, -2, np.int64)
        numbers[lanes] = self._regions.numbers(touched, size)
        if (numbers == -1).any():
            raise NotVectorised("an access outside of the arguments")
        return [
            (self._regions.all[n], numbers == n) for n in np.unique(numbers) if n >= 0
        ]

    def _stored(
        self, ptrs: Array, mask: Array, size: int
    ) -> Iterable[tuple[Region, Any, Indices]]:
        """Yield what is stored to, as `_pieces`, and the offsets in bytes."""
        for region, lanes in self._pieces(ptrs, mask, size):
            offsets = _offsets(region, ptrs, lanes)
            if (
                region.spec is not None
                and not region.holds_elements(offsets, size).all()
            ):
                raise NotVectorised("a store between elements")
            if region.writes is not None:
                if region not in self._written:
                    self._written[region] = region.writes.state()
                region.writes.mark(offsets, size)
            yield (
                region,
                lanes if lanes is not ... else np.ones(ptrs.shape, np.bool_),
                offsets,
            )

    def _who(self, lanes: Array, many: bool) -> Numbers:
        """Return the number of each lane's program, `_MANY` for all of several."""
        if not many:
            return int(self._numbers[0]) if len(self._numbers) == 1 else _MANY
        numbers = self._numbers.reshape(-1, *(1,) * (lanes.ndim - 1))
        found: NDArray[np.int32] = np.broadcast_to(numbers, lanes.shape)[lanes]
        return found

    def _units(
        self, region: Region, offsets: Indices, size: int
    ) -> tuple[_Marks, Indices]:
        """Return the marks of a region that is stored to, and the units touched."""
        marks = self._marks.get(region)
        if marks is None:
            marks = self._marks[region] = _Marks(region, size)
            for ptrs, lanes, wide, numbers, many in self._loads.pop(region, ()):
                self._numbers, now = numbers, self._numbers
                self._read(region, ptrs, lanes, wide, many)
                self._numbers = now
        units, rest = np.divmod(offsets, size)
        if size != marks.unit or rest.any():
            raise NotVectorised("accesses of several sizes")
        return marks, units

    def _log(
        self, region: Region, ptrs: Array, lanes: Any, size: int, many: bool
    ) -> None:
        """Note a load: at once where something is stored to the region, else later."""
        if region in self._marks:
            self._read(region, ptrs, lanes, size, many)
            return
        self._loads.setdefault(region, []).append(
            (ptrs, lanes, size, self._numbers, many)
        )
        self._logged += ptrs.nbytes
        if self._logged > _MOST_LOGGED:
            self._logged = 0
            for known in list(self._loads):
                ((_, _, first, _, _), *_) = self._loads[known]
                self._units(known, np.zeros(0, np.int64), first)

    def _read(
        self, region: Region, ptrs: Array, lanes: Any, size: int, many: bool
    ) -> None:
        marks, units = self._units(region, _offsets(region, ptrs, lanes), size)
        shown = np.ones(ptrs.shape, np.bool_) if lanes is ... else lanes
        who = self._who(shown, many)
        writers, readers = marks.writers[units], marks.readers[units]
        if ((writers != 0) & (writers != who)).any():
            raise NotVectorised("a program reads what another one writes")
        made = np.where((readers == 0) | (readers == who), who, _MANY)
        marks.readers[units] = made
        marks.readers[units[marks.readers[units] != made]] = _MANY

    def _keep(self, native: Any, ptrs: Array, mask: Array, size: int) -> None:
        """Keep what memory holds, to undo a store."""
        word = np.dtype(f"u{size}")
        held = native.load(ptrs, mask, np.zeros(ptrs.shape, word), word)
        self._undo.append(lambda: native.store(ptrs, held, mask))


def _putting(marks: Array, units: Indices, values: Array) -> Callable[[], None]:
    def put() -> None:
        marks[units] = values

    return put


def _offsets(region: Region, ptrs: Array, lanes: Any) -> Indices:
    touched = ptrs[lanes].reshape(-1)
    offsets: Indices = (touched - np.uint64(region.low)).view(np.int64)
    return offsets


# How many bytes the largest value of a program takes, by a kernel's code.
_sizes: dict[CodeType, int] = {}
# Kernels whose programs had to run one after the other: for how many launches they do
# so unasked, and for how many the next time.
_skipped: dict[CodeType, tuple[int, int]] = {}


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
    skip, next_time = _skipped.get(code, (0, 1))
    if skip:
        _skipped[code] = skip - 1, next_time
        return "as before"
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
    _skipped[code] = next_time, min(2 * next_time, _MOST_SKIPPED)
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
