"""Races in one launch: accesses of two programs to one element that nothing orders.

What is logged are arrays: of accesses to one memory, each of a program. Their order in
time is that of the calls; in it a program's own accesses have the order of the program,
while those of different programs may come in any. So programs may be run one after the
other, or all at once.

What orders programs on a GPU too are atomics: one whose result is used comes after
those that were done at its address before, and after all that their programs had done
by then. So does a load of what an atomic wrote, and a volatile load after the store
that it reads. Whatever the semantics asked for, atomics are taken to order: rather miss
a race than report a lock. A store of the value that is there already changes nothing
that others could see, and races only with a later store of another value.
"""

from collections import deque
from collections.abc import Collection, Iterator
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kfuzz.execution.interpreter.programs import shaped

Indices = NDArray[np.int64]
Flags = NDArray[np.bool_]
Words = NDArray[Any]

LOAD: Final = "load"
STORE: Final = "store"
ATOMIC: Final = "atomic"

_NARROW: Final = 32
"""Atomics on more addresses at once are taken for atomics on the whole memory."""

_MOST_UNITS: Final = 1 << 26
"""Memory of more units is not followed: its stamps would take a GiB."""

_MOST_PENDING: Final = 1 << 22
"""So many loads are held as they came until something is stored there."""

_MOST_KNOWN: Final = 1 << 23
"""Numbers of calls that are kept to know what comes before what: 64 MiB."""

# A stamp says when and by whom: the number of a call, then that of a program.
_BITS: Final = 24
_PROGRAM: Final = (1 << _BITS) - 1


class Memory(Protocol):
    """A stretch of memory."""

    @property
    def low(self) -> int:
        """The address of its first byte."""

    @property
    def high(self) -> int:
        """The address past its last byte."""


class Race(NamedTuple):
    """Accesses of one call that race with others of one line.

    Attributes:
        offsets: in bytes.
        program: that makes the first of them.
        other: the program that made the earlier access there.
        access: what that was, a load, a store or an atomic.
        line: where in the source.
    """

    offsets: Indices
    program: int
    other: int
    access: str
    line: str


class _Last:
    """Per unit the stamp of its last access, and of the last by another program."""

    def __init__(self, units: int) -> None:
        self.last = np.zeros(units, np.int64)
        self.before = np.zeros(units, np.int64)

    def add(self, units: Indices, stamps: Indices) -> None:
        """Note accesses, of one program or of ascending ones."""
        last = self.last[units]
        others = ((last ^ stamps) & _PROGRAM != 0) & (last != 0)
        if others.any():
            self.before[units[others]] = last[others]
        self.last[units] = stamps
        if (beaten := self.last[units] != stamps).any():
            self.before[units[beaten]] = stamps[beaten]

    def by_others(self, units: Indices, stamps: Indices) -> Indices:
        """Return the stamps of the last accesses by other programs, 0 where none."""
        last = self.last[units]
        if not last.any():
            return last
        own = (last ^ stamps) & _PROGRAM == 0
        return np.where(own, self.before[units], last) if own.any() else last


class _Spot:
    """What is known of one memory.

    Attributes:
        unit: bytes of which all accesses are multiples.
        tables: by kind; stores of what was there before all others are with the loads.
        pending: loads that were not entered yet, while nothing was stored.
        held: how many these are.
        met: whether there were atomics.
        before: per unit what it held before the last store.
    """

    def __init__(self, unit: int) -> None:
        self.unit = unit
        self.tables: dict[str, _Last] = {}
        self.pending: list[tuple[Indices, Words, Any, int]] = []
        self.held = 0
        self.met = False
        self.before: Words | None = None


# Where, what access, in units of so many bytes, of which, and what stood there.
_Entry = tuple[_Spot, str, int, Indices, Indices, Indices]


class RaceLog:
    """Follows the accesses of one launch.

    Args:
        programs: how many programs it runs.
        history: whether to keep what elements held before their last stores.
        journal: whether to keep what it takes to forget stores and atomics.

    Attributes:
        journal: where these are.
        possible: whether programs can race, and it is known what orders them.
        incomplete: whether there were accesses to memory that is too large to follow.
    """

    def __init__(
        self, programs: int, *, history: bool = False, journal: bool = False
    ) -> None:
        self._history = history
        self.journal: deque[_Entry] = deque(maxlen=None if journal else 0)
        self.possible = 1 < programs <= _PROGRAM
        self.incomplete = False
        self._programs = programs
        # By number of the call: what it was, and where in the source.
        self._calls: list[tuple[str, str]] = [("", "")]
        self._places: dict[tuple[str, str], tuple[str, str]] = {}
        self._spots: dict[Memory, _Spot] = {}
        # Per address or memory that atomics met at, and per program: up to which call
        # each program's accesses come before.
        self._released: dict[int | Memory, Indices] = {}
        self._known: dict[int, Indices] = {}

    def load(
        self, memory: Memory, programs: Any, addresses: Words, mask: Any, size: int,
        line: str, *, ordering: bool = False,
    ) -> list[Race]:  # fmt: skip
        """Log loads.

        Args:
            memory: where they all are.
            programs: whose they are: a number, or one per address, ascending.
            addresses: of the first bytes; not to be changed afterwards.
            mask: which of them are carried out, None or True where all are.
            size: bytes of each.
            line: where in the source.
            ordering: whether they are volatile or atomic: they order, and never race.

        Returns:
            The races with what was stored before.
        """
        spot = self._spots.get(memory)
        if spot is None:
            spot = self._spots[memory] = _Spot(size)
        waits = not (spot.tables or spot.met or ordering)
        stamps = self._stamps(LOAD, line, programs)
        if waits and spot.held < _MOST_PENDING:
            spot.pending.append((stamps, addresses, mask, size))
            spot.held += addresses.size
            return []
        offsets, stamps = _carried_out(memory, stamps, addresses, mask)
        if spot.met and self._released:
            for program in _numbers(stamps):
                mine = offsets[stamps & _PROGRAM == program] if stamps.ndim else offsets
                self._acquire(memory, program, np.unique(mine))
        if not self._follow(memory, spot, offsets, size):
            return []
        units, stamps = _units(offsets, size, spot.unit, stamps)
        found: list[Race] = []
        if ordering:
            self._observe(spot, units, stamps)
            return []
        # Whoever stored there after all others loads its own.
        table = spot.tables.get(STORE)
        if table is not None:
            others = (table.last[units] ^ stamps) & _PROGRAM != 0
            found = self._races(spot, units[others], _of(stamps, others), (STORE,))
        found += self._races(spot, units, stamps, (ATOMIC,))
        self._enter(memory, spot, LOAD, units, stamps)
        return found

    def store(
        self, memory: Memory, programs: Any, offsets: Indices, stored: Words,
        held: Words, line: str,
    ) -> list[Race]:  # fmt: skip
        """Log plain stores, before they are carried out.

        Args:
            memory: where they all are.
            programs: whose they are: a number, or one per store, ascending.
            offsets: of the first bytes in the memory.
            stored: what is stored, as unsigned integers.
            held: what these places hold before, likewise.
            line: where in the source.

        Returns:
            The races with what came before.
        """
        stamps = self._stamps(STORE, line, programs)
        size = stored.itemsize
        spot = self._spots.setdefault(memory, _Spot(size))
        if not self._follow(memory, spot, offsets, size):
            return []
        units, stamps = _units(offsets, size, spot.unit, stamps)
        word = np.dtype(f"u{spot.unit}")
        stored, held = (np.ascontiguousarray(x).view(word) for x in (stored, held))
        found: list[Race] = []
        table = self._table(memory, spot, STORE)
        if self._history and spot.before is None:
            spot.before = np.zeros(table.last.size, word)
        key, met = consecutive(units), False
        replaced = chosen(table.last, key)
        if stamps.ndim and not isinstance(key, slice):
            table.last[key] = stamps
            met = bool((table.last[key] != stamps).any())
            table.last[key] = replaced
        first = len(spot.tables) == 1 and spot.before is None and not replaced.any()
        if first and not met and (stored != held).all():
            table.last[key] = stamps
            self.journal.append((spot, STORE, spot.unit, units, replaced, replaced))
            return found
        for lanes, before in _in_turn(units, stamps, stored, held, met):
            where, whose = units[lanes], _of(stamps, lanes)
            changed = stored[lanes] != before
            last = table.last[where]
            if stamps.ndim:  # what is there may be from a program yet to come
                changed |= (last & _PROGRAM) > whose & _PROGRAM
            if changed.any():
                found += self._races(
                    spot, where[changed], _of(whose, changed), (STORE, LOAD, ATOMIC)
                )
            # Who stores what another one stored has it of its own.
            entered = changed | (last != 0)
            if spot.before is not None:
                spot.before[where[entered]] = before[entered]
            self._enter(memory, spot, STORE, where[entered], _of(whose, entered))
            if not entered.all():
                unseen = ~entered
                self._enter(memory, spot, LOAD, where[unseen], _of(whose, unseen))
        return found

    def before(
        self, memory: Memory, program: int, offsets: Indices, loaded: Words
    ) -> Words:
        """Return what one program's loads give that come before what they race with.

        Args:
            memory: where they all are.
            program: whose they are.
            offsets: of the first bytes in the memory.
            loaded: what these places hold, the bytes of each.
        """
        spot = self._spots.get(memory)
        table = None if spot is None else spot.tables.get(STORE)
        if spot is None or table is None or spot.before is None:
            return loaded
        size = loaded.shape[1]
        units, _ = _units(offsets, size, spot.unit, np.zeros((), np.int64))
        last = table.last[units]
        racing = (last != 0) & (last & _PROGRAM != program)
        racing &= self._unordered(np.full(last.shape, program), last)
        words = np.ascontiguousarray(loaded).reshape(-1).view(spot.before.dtype)
        made = np.where(racing, spot.before[units], words)
        return made.view(np.uint8).reshape(-1, size)

    def atomic(
        self, memory: Memory, programs: Any, offsets: Indices, size: int, line: str, *,
        acquires: bool = True,
    ) -> list[Race]:  # fmt: skip
        """Log atomics; those of one program order programs.

        Args:
            memory: where they all are.
            programs: whose they are: a number, or one per atomic, ascending.
            offsets: of the first bytes in the memory.
            size: bytes of each.
            line: where in the source.
            acquires: whether the program uses what they return.

        Returns:
            The races with plain accesses before; of many programs also what comes after
            an atomic of a later one, which in their order it does not.
        """
        stamps = self._stamps(ATOMIC, line, programs)
        spot = self._spots.setdefault(memory, _Spot(size))
        spot.met, many = True, stamps.ndim > 0
        touched = offsets if many else np.unique(offsets)
        if acquires and not many:
            self._acquire(memory, programs, touched)
        found = []
        if self._follow(memory, spot, offsets, size):
            units, stamps = _units(offsets, size, spot.unit, stamps)
            if acquires and not many:  # a flag or lock that a store released
                self._observe(spot, units, stamps)
            found = self._races(spot, units, stamps, (STORE, LOAD))
            last = self._table(memory, spot, ATOMIC).last[units]
            if (ahead := many & (last & _PROGRAM > stamps & _PROGRAM)).any():
                found += self._races(spot, units[ahead], stamps[ahead], (ATOMIC,))
            self._enter(memory, spot, ATOMIC, units, stamps)
        if many:
            return found
        clock = self._clock(programs).copy()
        clock[programs] = len(self._calls) - 1
        for key in _keys(memory, touched):
            before = self._released.get(key)
            self._released[key] = clock if before is None else np.maximum(before, clock)
        return found

    def ended(self) -> None:
        """Give up a launch that takes too much memory to know what comes before what.

        What came before a program that has ended comes before those that read its flag.
        """
        if len(self._known) * self._programs > _MOST_KNOWN:
            self.possible = False
            self._known.clear()

    def _stamps(self, access: str, line: str, programs: Any) -> Indices:
        place = access, line
        self._calls.append(self._places.setdefault(place, place))
        made: Indices = np.asarray(
            (len(self._calls) - 1 << _BITS) | np.asarray(programs, np.int64)
        )
        return made

    def _races(
        self, spot: _Spot, units: Indices, stamps: Indices, kinds: Collection[str]
    ) -> list[Race]:
        """Return what races with earlier accesses of these kinds."""
        found: dict[tuple[str, str], list[Race]] = {}
        for kind in kinds:
            if (table := spot.tables.get(kind)) is None:
                continue
            others = table.by_others(units, stamps)
            places = np.flatnonzero(others)
            if not places.size:
                continue
            who = _of(stamps, places) & _PROGRAM
            others = others[places]
            open_ = self._unordered(np.broadcast_to(who, others.shape), others)
            for call in np.unique(others[open_] >> _BITS):
                at = np.flatnonzero(open_ & (others >> _BITS == call))
                access, line = self._calls[call]
                race = Race(
                    units[places[at]] * spot.unit,
                    int(np.broadcast_to(who, others.shape)[at[0]]),
                    int(others[at[0]] & _PROGRAM), access, line,
                )  # fmt: skip
                found.setdefault((access, line), []).append(race)
        return [
            races[0]._replace(offsets=np.concatenate([r.offsets for r in races]))
            for races in found.values()
        ]

    def _unordered(self, who: Indices, others: Indices) -> Flags:
        """Return which of others' accesses do not come before those of programs."""
        made = np.ones(others.shape, np.bool_)
        for program in self._known.keys() & set(_numbers(who)):
            mine = who == program
            earlier = self._known[program][others[mine] & _PROGRAM]
            made[mine] = others[mine] >> _BITS > earlier
        return made

    def _clock(self, program: int) -> Indices:
        """Return up to which call each program's accesses come before this program."""
        found = self._known.get(program)
        return np.zeros(self._programs, np.int64) if found is None else found

    def _acquire(self, memory: Memory, program: int, offsets: Indices) -> None:
        """Let a program come after the atomics that were done at these places."""
        keys: Collection[int | Memory] = [memory, *_keys(memory, offsets)]
        if offsets.size > _NARROW:
            keys = [
                k for k in self._released
                if k is memory or (isinstance(k, int) and memory.low <= k < memory.high)
            ]  # fmt: skip
        for key in keys:
            if (clock := self._released.get(key)) is not None:
                self._known[program] = np.maximum(self._clock(program), clock)

    def _observe(self, spot: _Spot, units: Indices, stamps: Indices) -> None:
        """Let volatile loads come after the stores that they read."""
        table = spot.tables.get(STORE)
        if table is None:
            return
        others = table.by_others(units, stamps)
        whose = np.broadcast_to(stamps & _PROGRAM, others.shape)
        for program in _numbers(whose[others != 0]):
            clock = self._clock(program).copy()
            read = others[(whose == program) & (others != 0)]
            np.maximum.at(clock, read & _PROGRAM, read >> _BITS)
            for other in self._known.keys() & set(_numbers(read)):
                clock = np.maximum(clock, self._known[other])
            self._known[program] = clock

    def _follow(self, memory: Memory, spot: _Spot, offsets: Indices, size: int) -> bool:
        """Enter the loads before; return whether the memory is small enough for it."""
        self._refine(spot, offsets, size)
        if (memory.high - memory.low) // spot.unit > _MOST_UNITS:
            spot.pending, spot.held, self.incomplete = [], 0, True
            return False
        pending, spot.pending, spot.held = spot.pending, [], 0
        for stamps, addresses, mask, each in pending:
            places, stamps = _carried_out(memory, stamps, addresses, mask)
            self._refine(spot, places, each)
            units, stamps = _units(places, each, spot.unit, stamps)
            self._enter(memory, spot, LOAD, units, stamps)
        return True

    def _refine(self, spot: _Spot, offsets: Indices, size: int) -> None:
        """Take units that divide accesses."""
        unit = min(size, spot.unit)
        if int(np.bitwise_or.reduce(offsets, axis=None)) & (unit - 1):
            unit = 1
        if unit < spot.unit:
            if spot.before is not None:
                spot.before = spot.before.view(f"u{unit}")
            for table in spot.tables.values():
                table.last = np.repeat(table.last, spot.unit // unit)
                table.before = np.repeat(table.before, spot.unit // unit)
            spot.unit = unit

    def roll_back(self, place: int) -> None:
        """Forget the stores and atomics that were entered in the journal since then."""
        while len(self.journal) > place:
            spot, access, size, units, last, before = self.journal.pop()
            units, last = _units(units * size, size, spot.unit, last)
            spot.tables[access].last[units] = last
            spot.tables[access].before[units] = np.repeat(before, size // spot.unit)

    def _enter(
        self, memory: Memory, spot: _Spot, access: str, units: Indices, stamps: Indices
    ) -> None:
        table = self._table(memory, spot, access)
        if self.journal.maxlen is None and access != LOAD:
            replaced = table.last[units], table.before[units]
            self.journal.append((spot, access, spot.unit, units, *replaced))
        table.add(units, stamps)

    def _table(self, memory: Memory, spot: _Spot, access: str) -> _Last:
        table = spot.tables.get(access)
        if table is None:
            units = -(-(memory.high - memory.low) // spot.unit)
            table = spot.tables[access] = _Last(units)
        return table


def consecutive(places: Indices) -> Any:
    """Return a slice of consecutive places, which takes less time to choose by."""
    count = places.size
    if count < 2 or places[-1] - places[0] != count - 1:
        return places
    if not (places[1:] > places[:-1]).all():
        return places
    return slice(int(places[0]), int(places[-1]) + 1)


def chosen(values: Words, key: Any) -> Words:
    """Return a copy of elements by their places."""
    found: Words = values[key]
    return found.copy() if isinstance(key, slice) else found


def _carried_out(
    memory: Memory, stamps: Indices, addresses: Words, mask: Any
) -> tuple[Indices, Indices]:
    """Return the offsets of the accesses whose mask is set, and their stamps."""
    live = shaped(True if mask is None else mask, addresses.shape).astype(np.bool_)
    if stamps.ndim:
        stamps = np.broadcast_to(stamps, addresses.shape)[live]
    return (addresses[live] - np.uint64(memory.low)).view(np.int64), stamps


def _units(
    offsets: Indices, size: int, unit: int, stamps: Indices
) -> tuple[Indices, Indices]:
    """Return the units that accesses cover, and their stamps."""
    units, count = offsets // unit, size // unit
    if count > 1:
        units = (units[:, None] + np.arange(count)).reshape(-1)
        stamps = np.repeat(stamps, count) if stamps.ndim else stamps
    return units, stamps


def _of(stamps: Indices, lanes: Any) -> Indices:
    """Return the stamps of some accesses; all have the same where there is but one."""
    return stamps[lanes] if stamps.ndim else stamps


def _numbers(stamps: Indices) -> list[int]:
    """Return the programs of stamps."""
    numbers: list[int] = np.unique(stamps & _PROGRAM).tolist()
    return numbers


def _keys(memory: Memory, offsets: Indices) -> list[int | Memory]:
    """Return what atomics at these places meet at."""
    if offsets.size > _NARROW:
        return [memory]
    return [memory.low + int(offset) for offset in offsets]


def _in_turn(
    units: Indices, stamps: Indices, stored: Words, held: Words, met: bool
) -> Iterator[tuple[Any, Words]]:
    """Yield the stores of a call so that no two programs of a part meet.

    With what their places hold before each part.
    """
    if not met:
        yield slice(None), held
        return
    order, inverse = np.unique(units, return_inverse=True)
    current = np.zeros(order.size, held.dtype)
    current[inverse] = held
    for program in np.unique(stamps):
        lanes = np.flatnonzero(stamps == program)
        yield lanes, current[inverse[lanes]]
        current[inverse[lanes]] = stored[lanes]
