"""Which of the structures drawn runs next: what may show most per second.

What is quick runs as it is drawn. What is not waits, and shares the time with it: half
of what such structures get goes to those that promise most per second, half to those
that have waited longest, so that none is left out for being slow. One that would take
too much of the kernel's time waits until it would not.
"""

import math
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Generic, TypeVar

from kfuzz.core.budget import Burst, Spending
from kfuzz.core.recipe import Case
from kfuzz.core.value_families import COPIES
from kfuzz.core.value_families.tiles import TILES
from kfuzz.core.verdict import CaseReport, Verdict
from kfuzz.engine.search.record import Ledger, Stratum, stratum_of

# What the structures of one kernel are expected to cost, measured as they run.
#
# A case costs a compilation, where its kernel is compiled for something that it is the
# first to have, and a run. Nothing is taken for granted but that compilers take longer
# for longer rows and calls for more work: how much longer, and whether sizes are
# compile-time constants at all, is what children report.

QUICK_SECONDS: Final = 0.05
"""What takes no longer is not worth a plan."""

# Before a compilation has been seen, it is held to take this long for rows of at most
# 2^14 elements: rows that are one block of more than 2^16 are suspect.
_FIRST_SECONDS: Final = 1.0
_FIRST_ROW: Final = 14
# Rows up to here take compilers no longer than shorter ones: what they do besides is
# more. Beyond, each doubling takes about four times as long: a softmax of one block
# 0.3 s for 2^13 elements, 0.6 s for 2^14, 3 s for 2^15, 13 s for 2^16 (Triton 3.9).
_FLAT_ROW: Final = 12
_ROW_FACTOR: Final = 4.0
_WORK_FACTOR: Final = 2.0
# Reports by which odds and means are reckoned: earlier ones are forgotten.
_KEPT: Final = 16
# Doublings beyond the longest row that has run, up to which a dimension is believed to
# be no compile-time constant.
_FURTHER: Final = 2
# Below these odds a dimension counts as no compile-time constant: after two structures
# that showed it.
_COUNTING: Final = 0.4
# Structures that are remembered.
_REMEMBERED: Final = 1 << 14
# Reports after which what was expected is worked out anew.
_REVIEWED: Final = 16
# A compilation that takes no more times as long as the shortest is an ordinary one.
_ORDINARY: Final = 2.0
# What takes so many times as long as the quicker quarter is no longer quick.
_USUAL: Final = 4.0

# The first run of a size that takes so many times as long as was expected of it is a
# stall of the machine's until another one confirms it: sizes that are tried late for it
# would never be seen again.
_STALL: Final = 30.0

# What a dimension is called that its operator gives no name.
_ANONYMOUS: Final = re.compile(r"d[0-9]+")

Key = tuple[object, ...]


@dataclass(frozen=True)
class Traits:
    """What of a structure its costs are taken to depend on.

    Attributes:
        common: what kernels are specialised for besides sizes: types, layouts, flags,
            and which sizes are 1 or divisible by 16.
        sizes: the next power of two of each dimension, as a logarithm. Of dimensions
            without names of their own, those of "row", the structured one, and of
            "rows", the product of all others.
        config: which configuration runs.
        axis: which of these is the structured one; "" for none.
        row: logarithm of its length, rounded up.
        work: logarithm of the product of all dimensions and members, rounded up.
        small: whether no dimension is above the least tile.
        dtype: of the data.
        members: how many calls of it make a batch; 1 for a case.
    """

    common: Key
    sizes: Mapping[str, int]
    config: int | None
    axis: str
    row: int
    work: int
    small: bool
    dtype: str
    members: int

    @property
    def kind(self) -> tuple[bool, str]:
        """Whether it is a batch, and of which type."""
        return self.members > 1, self.dtype


def traits_of(case: Case, members: int = 1) -> Traits:
    """Return the traits of a structure, one call or a batch of it."""
    tensors, data, dims = case.tensors.values(), case.data, case.dims
    axis = data.fill.axis if data.fill is not None else -1
    inside = -len(data.shape) <= axis < len(data.shape)
    row = data.axes[axis] if inside else ""
    known_as = "row" if _ANONYMOUS.fullmatch(row) else row
    lengths: dict[str, int] = {}
    for name, n in dims.items():
        if not _ANONYMOUS.fullmatch(name):
            lengths[name] = n
        elif name == row:
            lengths["row"] = n
        else:
            lengths["rows"] = lengths.get("rows", 1) * n
    flags = ((k, v) for k, v in case.scalars.items() if isinstance(v, bool | str))
    return Traits(
        common=(
            tuple((s.dtype, s.strides is None, s.offset % TILES[0]) for s in tensors),
            tuple((k, _divides(n)) for k, n in lengths.items()),
            tuple(flags),
        ),
        sizes={name: _log2(n) for name, n in lengths.items()},
        config=case.config,
        axis=known_as,
        row=_log2(dims.get(row, 0)),
        work=_log2(math.prod(dims.values()) * members),
        small=max(dims.values(), default=0) <= TILES[0],
        dtype=data.dtype,
        members=members,
    )


def _log2(n: int) -> int:
    """Return the logarithm of the next power of two."""
    return max(n - 1, 0).bit_length()


def _divides(n: int) -> int:
    return 1 if n == 1 else 16 if n % 16 == 0 else 0


@dataclass(frozen=True)
class Expected:
    """What a structure is expected to cost, in seconds.

    Attributes:
        compiling: for its compilation, times the odds that it needs one.
        running: for all else.
    """

    compiling: float
    running: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.compiling + self.running


class Curve:
    """Seconds by a size's logarithm, from what was seen of some sizes.

    Args:
        flat: sizes up to here are expected to take as long as one another.
        factor: how many times as long each doubling is expected to take.
    """

    def __init__(self, flat: int = 0, factor: float = _WORK_FACTOR) -> None:
        self._flat = flat
        self._factor = factor
        self._seen: dict[int, deque[float]] = {}
        self._means: dict[int, float] = {}

    def take(self, size: int, seconds: float) -> None:
        """Take what one took."""
        seen = self._seen.setdefault(size, deque(maxlen=_KEPT))
        seen.append(seconds)
        self._means[size] = sum(seen) / len(seen)

    def __contains__(self, size: int) -> bool:
        """Whether something was seen of a size."""
        return size in self._means

    def at(self, size: int) -> float | None:
        """Return what one is expected to take, None where nothing was seen.

        The mean of its size's last ones. Else that of the next smaller size, more by
        the factor for each doubling, but no more than that of the next larger one.
        """
        if size in self._means:
            return self._means[size]
        below = max((s for s in self._means if s < size), default=None)
        above = min((s for s in self._means if s > size), default=None)
        most = math.inf if above is None else self._means[above]
        if below is None:
            return None if above is None else most
        doublings = max(size, self._flat) - max(below, self._flat)
        return min(self._means[below] * self._factor**doublings, most)

    def typical(self) -> float | None:
        """Return the mean over all sizes, None where nothing was seen."""
        means = self._means.values()
        return sum(means) / len(means) if means else None

    def least(self) -> float | None:
        """Return the least mean of a size, None where nothing was seen."""
        return min(self._means.values(), default=None)


@dataclass(eq=False)
class _Odds:
    """How often a compilation was needed, lately; `first` before anything is known."""

    first: float
    seen: deque[bool] = field(default_factory=lambda: deque(maxlen=_KEPT))

    @property
    def rate(self) -> float:
        return (sum(self.seen) + self.first) / (len(self.seen) + 1)


class Compilations:
    """Which structures need a compilation, and how long it takes.

    A dimension counts as a compile-time constant until structures that are new in its
    size have needed no compilation.

    Args:
        expected: whether kernels are compiled in their calls here, so that unseen ones
            are expected to be.
    """

    def __init__(self, *, expected: bool) -> None:
        self._first = float(expected)
        # Of whatever was needed, and of what a compiler ran for: the rest came from a
        # cache, and says nothing of sizes that may not be there.
        self._needed = Curve(_FLAT_ROW, _ROW_FACTOR)
        self._compiled = Curve(_FLAT_ROW, _ROW_FACTOR)
        # The odds where a size is new, types or layouts, the configuration, nothing.
        self._by_size: dict[str, _Odds] = {}
        self._otherwise = _Odds(self._first)
        self._configured = _Odds(self._first / 2)
        self._again = _Odds(0.0)
        # What was compiled for, and the dimensions that count.
        self._longest = 0
        self._whole: dict[Key, Traits] = {}
        self._counting: tuple[str, ...] = ()
        self._index: set[Key] = set()

    def expected(self, traits: Traits) -> float:
        """Return the seconds a compilation takes, times the odds that one is needed."""
        rate, is_known = self._rate(traits)
        if is_known and rate < 1 / 2:
            return 0.0  # what else kernels are specialised for is rare
        return rate * self.seconds(traits)

    def seconds(self, traits: Traits) -> float:
        """Return what a compilation takes, if a structure needs one."""
        row = traits.row
        known = row <= self._longest + _FURTHER
        if known and not self.is_constant(traits.axis):
            return self._needed.typical() or 0.0
        curve = self._needed if row in self._needed else self._compiled
        seen = curve.at(row)
        if seen is not None:
            return seen
        return _FIRST_SECONDS * _ROW_FACTOR ** max(row - _FIRST_ROW, 0) * self._first

    def is_constant(self, name: str) -> bool:
        """Whether a dimension seems to be a compile-time constant."""
        return name in self._counting or name not in self._by_size

    @property
    def measured(self) -> bool:
        """Whether a compiler has run."""
        return self._compiled.typical() is not None

    @property
    def ordinary(self) -> float:
        """Seconds that no compilation of the kernel is much below."""
        least = self._compiled.least()
        return _ORDINARY * (_FIRST_SECONDS * self._first if least is None else least)

    def is_new(self, traits: Traits) -> bool:
        """Whether a structure seems to have a compiled kernel of its own."""
        rate, is_known = self._rate(traits)
        return not is_known and rate >= 1 / 2

    def is_known(self, traits: Traits) -> bool:
        """Whether a structure was compiled for that shares all that seems to count."""
        return self._rate(traits)[1]

    def take(self, traits: Traits, spent: Spending) -> None:
        """Take what was compiled for a structure, which was enough.

        Args:
            traits: of the structure.
            spent: what it took.
        """
        compiled = spent.compiling > 0
        for odds in self._witnessed(traits, compiled=compiled):
            loaded = odds is self._again or odds is self._configured
            odds.seen.append(spent.compiling > QUICK_SECONDS * loaded)
        if compiled:
            self._needed.take(traits.row, spent.compiling)
        if spent.compiled:
            self._compiled.take(traits.row, spent.compiling)
        for name in traits.sizes:
            self._by_size.setdefault(name, _Odds(self._first))
        self._longest = max(self._longest, traits.row)
        if len(self._whole) >= _REMEMBERED:  # hours of a search: measured anew
            self._whole.clear()
            self._index.clear()
        whole = (traits.common, *traits.sizes.items(), self._config(traits))
        self._whole[whole] = traits
        every = self._by_size.items()
        counting = tuple(sorted(n for n, odds in every if odds.rate > _COUNTING))
        if counting == self._counting:
            self._note(traits)
            return
        self._index, self._counting = set(), counting
        for made in self._whole.values():
            self._note(made)

    def take_given_up(self, traits: Traits, seconds: float) -> None:
        """Take it that a structure needs one, which was given up after some seconds."""
        self._needed.take(traits.row, seconds)
        self._compiled.take(traits.row, seconds)
        for odds in self._witnessed(traits, compiled=True):
            odds.seen.append(True)

    def _config(self, traits: Traits) -> int | None:
        """Return the configuration, None once it has made no difference for long."""
        seen = self._configured.seen
        return traits.config if any(seen) or len(seen) < _KEPT else None

    def _rate(self, traits: Traits) -> tuple[float, bool]:
        """Return the odds of a compilation, and whether all that counts is known."""
        common, sizes, index = traits.common, self._sizes(traits), self._index
        if (common, sizes) in index:
            known = (common, sizes, self._config(traits)) in index
            return (self._again if known else self._configured).rate, True
        if (common,) not in index:
            return self._otherwise.rate, False
        near = self._near(common, traits)
        if near:  # were one of them no constant, that kernel would do
            return min(odds.rate for odds in near), False
        rates = (self._by_size[n].rate for n in self._counting if n in traits.sizes)
        return max(rates, default=self._first), False

    def _witnessed(self, traits: Traits, *, compiled: bool) -> list[_Odds]:
        """Return the odds that what a structure needed bears on, beyond doubt."""
        common, sizes, index = traits.common, self._sizes(traits), self._index
        if (common, sizes) in index:
            known = (common, sizes, self._config(traits)) in index
            again = [self._again if known else self._configured]
            return again + (self._doubted(traits) if compiled else [])
        if (common,) not in index:
            return [self._otherwise] if not compiled or (None, sizes) in index else []
        if compiled:  # whatever differs alone from what was there
            return self._near(common, traits)
        if (None, sizes) in index:  # what serves other types may serve here
            return []
        near = sorted(self._near(None, traits), key=lambda odds: sum(odds.seen))
        # One of them is no constant: the one that has not shown it often before.
        plain = len(near) == 1 or (near and sum(near[0].seen) + 1 < sum(near[1].seen))
        return near[:1] if plain else []

    def _doubted(self, traits: Traits) -> list[_Odds]:
        """Return the odds of the dimensions that do not count, and are of new sizes."""
        known = (each.sizes for each in self._whole.values())
        pairs = {pair for sizes in known for pair in sizes.items()}
        new = [size for size in traits.sizes.items() if size not in pairs]
        return [self._by_size[name] for name, _ in new if name in self._by_size]

    def _near(self, common: Key | None, traits: Traits) -> list[_Odds]:
        """Return the odds of each dimension in which alone something differs."""
        return [
            self._by_size[name]
            for name in self._counting
            if (common, name, self._sizes(traits, but=name)) in self._index
        ]

    def _note(self, traits: Traits) -> None:
        """Keep in the index what a structure is compiled for."""
        common, sizes = traits.common, self._sizes(traits)
        self._index |= {(common,), (common, sizes)}
        self._index.add((common, sizes, self._config(traits)))
        self._index.add((None, sizes))
        for name in self._counting:
            rest = self._sizes(traits, but=name)
            self._index |= {(common, name, rest), (None, name, rest)}

    def _sizes(self, traits: Traits, but: str = "") -> Key:
        """Return the sizes that count, but for one."""
        sizes = traits.sizes.items()
        return tuple(s for s in sizes if s[0] in self._counting and s[0] != but)


class Costs:
    """What one kernel's structures cost so far, and are expected to.

    Args:
        compiles: whether kernels are compiled in their calls here.

    Attributes:
        version: another one once expectations may have changed.
        compilations: what is known of them.
    """

    def __init__(self, *, compiles: bool) -> None:
        self.version = 0
        self.compilations = Compilations(expected=compiles)
        self._reports = 0
        # By whether it was a batch, and by element type.
        self._running: dict[tuple[bool, str], Curve] = {}
        self._lately: dict[bool, deque[float]] = {}
        self._stalled: set[tuple[tuple[bool, str], int]] = set()

    def expected(self, traits: Traits) -> Expected:
        """Return what a structure is expected to cost."""
        kind = traits.kind
        if kind not in self._running:  # another type's, if any
            kind = next((k for k in self._running if k[0] == kind[0]), kind)
        curve = self._running.get(kind)
        running = None if curve is None else curve.at(traits.work)
        return Expected(self.compilations.expected(traits), running or 0.0)

    def is_quick(self, traits: Traits, expected: Expected) -> bool:
        """Whether something is run as it is drawn."""
        if expected.total <= QUICK_SECONDS:
            return True
        lately = sorted(self._lately.get(traits.members > 1, ()))
        usual = _USUAL * lately[len(lately) // 4] if lately else 0.0
        slow = expected.running > max(QUICK_SECONDS, usual)
        return expected.compiling <= QUICK_SECONDS and not slow

    def take(
        self,
        case: Case,
        spending: Spending | None,
        seconds: float,
        members: int = 1,
        *,
        ran: bool = True,
    ) -> None:
        """Take what a structure cost.

        Args:
            case: the structure.
            spending: what its child reported; None where it did not answer.
            seconds: how long it was waited for.
            members: how many calls of it made a batch.
            ran: whether the kernel went its way to the end: one that refused a case
                has compiled nothing for it, nor has one without elements.
        """
        traits = traits_of(case, members)
        spent = spending or Spending(rest=seconds)
        if spent.compiling or (spending is not None and ran and case.elements):
            self.compilations.take(traits, spent)
        self._reports += 1
        if self._reports > 1:  # the first one warms up
            curve = self._running.setdefault(traits.kind, Curve())
            if not self._is_stall(curve, traits, spent.running):
                curve.take(traits.work, spent.running)
                lately = self._lately.setdefault(members > 1, deque(maxlen=2 * _KEPT))
                lately.append(spent.running)
        if self._reports <= _REVIEWED or self._reports % _REVIEWED == 0:
            self.version += 1

    def _is_stall(self, curve: Curve, traits: Traits, seconds: float) -> bool:
        """Whether a run says nothing of its size: the first that is so slow."""
        expected = curve.at(traits.work)
        if traits.work in curve or not expected or seconds <= _STALL * expected:
            return False
        which = traits.kind, traits.work
        known = which in self._stalled
        self._stalled.add(which)
        return not known

    def take_given_up(self, traits: Traits, seconds: float) -> None:
        """Take it that compiling for a structure was given up after some seconds."""
        self.compilations.take_given_up(traits, seconds)
        self.version += 1


T = TypeVar("T", Case, Burst)

SHARE: Final = 0.05
"""The most of a kernel's time that one case may take, unless its sizes are small."""

# Structures that wait at most.
_MOST: Final = 64
# What a draw takes, and the part of what a structure costs that is spent on looking for
# quick ones before it runs out of turn.
_DRAWING_SECONDS: Final = 0.003
_LOOKING: Final = 0.1
# Draws in a row while nothing may run, after which the cheapest does all the same.
_STUCK: Final = 64
# A compilation is given up after so many times what it was expected or allowed to take.
_PATIENCE: Final = 2.0
_QUICK, _BEST, _OLDEST = "quick", "best", "oldest"


@dataclass(eq=False)
class Waiting(Generic[T]):
    """A structure that waits.

    Attributes:
        item: a case or a batch.
        case: its structure.
        traits: what its costs depend on.
        expected: what it is expected to cost.
        version: of the costs from which that follows.
        given_up: seconds after which compiling for it was given up; 0 if it was not.
    """

    item: T
    case: Case
    traits: Traits
    expected: Expected
    version: int
    given_up: float = 0.0

    @cached_property
    def stratum(self) -> Stratum:
        """What kind of case it is."""
        return stratum_of(self.case)

    def within(self, seconds: float) -> bool:
        """Whether it may run where a structure may take so long, or is small."""
        return self.traits.small or self.expected.total <= seconds

    def review(self, costs: Costs) -> None:
        """Work out anew what it is expected to cost."""
        self.expected, self.version = costs.expected(self.traits), costs.version
        if self.given_up and not costs.compilations.is_known(self.traits):
            longer = max(self.expected.compiling, _PATIENCE * self.given_up)
            self.expected = Expected(longer, self.expected.running)


class Plan(Generic[T]):
    """The cases of one kernel that are not run as they are drawn, or its batches.

    Args:
        costs: of the kernel.
        ledger: of what its search has visited.
        limit: returns the seconds that one case may take.

    Attributes:
        waiting: in the order in which they were drawn.
    """

    def __init__(
        self, costs: Costs, ledger: Ledger, limit: Callable[[], float]
    ) -> None:
        self.waiting: list[Waiting[T]] = []
        self._costs = costs
        self._ledger = ledger
        self._limit = limit
        self._seconds = dict.fromkeys((_QUICK, _BEST, _OLDEST), 0.0)
        # What runs, and what it was counted for.
        self._running: dict[int, tuple[str, float]] = {}
        self._reviewed = -1
        # Draws since anything ran.
        self._in_vain = 0

    def is_quick(self, item: T) -> bool:
        """Whether to run what was drawn at once; else it waits from now on."""
        case, members = _structure(item)
        traits = traits_of(case, members)
        expected = self._costs.expected(traits)
        if self._costs.is_quick(traits, expected):
            self._begin(item, _QUICK, expected)
            return True
        made = Waiting(item, case, traits, expected, self._costs.version)
        self.waiting.append(made)
        self._in_vain += 1
        if len(self.waiting) > _MOST:
            self._drop()
        return False

    def due(self) -> T | None:
        """Return what has waited and is to run now, None if nothing is."""
        if not self.waiting:
            return None
        if self._reviewed != self._costs.version:
            self._review()
            for each in self.waiting:
                if self._costs.is_quick(each.traits, each.expected):
                    return self._chosen(each, _QUICK)
            self._reviewed = self._costs.version
        slow = self._seconds[_BEST] + self._seconds[_OLDEST]
        is_turn = slow <= self._seconds[_QUICK]
        if not (is_turn or self._in_vain):
            return None
        most = self._most()
        admitted = [w for w in self.waiting if w.within(most)]
        if not admitted:
            return self._cheapest() if self._in_vain >= _STUCK else None
        kind, chosen = _OLDEST, admitted[0]
        if self._seconds[_OLDEST] > self._seconds[_BEST]:
            kind, chosen = _BEST, max(admitted, key=self._worth)
        looked = self._in_vain * _DRAWING_SECONDS
        if not is_turn and looked < _LOOKING * chosen.expected.total:
            return None
        return self._chosen(chosen, kind)

    def put_off(self, item: T, seconds: float) -> None:
        """Have something wait that was given up, for it took too long to compile.

        Args:
            item: what was to run.
            seconds: after which it was given up.
        """
        self.ran(item, seconds)
        case, members = _structure(item)
        traits = traits_of(case, members)
        self._costs.take_given_up(traits, seconds)
        made = Waiting(item, case, traits, Expected(seconds, 0.0), -1, seconds)
        made.review(self._costs)
        self.waiting.append(made)

    def patience(self, item: T) -> float:
        """Return the seconds after which compiling for something is given up.

        What a case may cost is known before it runs as a guess alone: one that compiles
        for half a minute would take the time of thousands.
        """
        traits, compilations = traits_of(*_structure(item)), self._costs.compilations
        if traits.small or not compilations.measured:
            return math.inf
        expected = compilations.expected(traits)
        return _PATIENCE * max(self._limit(), compilations.ordinary, expected)

    def ran(self, item: T, seconds: float) -> None:
        """Count what something that was to run took."""
        kind, counted = self._running.pop(id(item), (_QUICK, 0.0))
        self._seconds[kind] += seconds - counted

    def _most(self) -> float:
        """Return the seconds that a structure may take, unless its sizes are small.

        Where there is little time for a kernel, ordinary compilations are not left out.
        """
        return max(self._limit(), self._costs.compilations.ordinary)

    def _drop(self) -> None:
        """Forget the newest of those that may run, or of those that may not.

        Of whichever there are more, so that neither keeps the other out.
        """
        most = self._most()
        parts: dict[bool, list[Waiting[T]]] = {True: [], False: []}
        for each in self.waiting:
            parts[each.within(most)].append(each)
        self.waiting.remove(max(parts.values(), key=len)[-1])

    def _worth(self, one: Waiting[T]) -> float:
        """Return what a structure may show per second."""
        shows = (
            self._ledger.novelty(one.stratum)
            + self._costs.compilations.is_new(one.traits) / 2
        )
        return shows / max(one.expected.total, QUICK_SECONDS / 10)

    def _cheapest(self) -> T:
        """Return what costs least, where all that is drawn costs too much."""
        least = min(self.waiting, key=lambda w: w.expected.total)
        return self._chosen(least, _OLDEST)

    def _chosen(self, one: Waiting[T], kind: str) -> T:
        self.waiting.remove(one)
        self._begin(one.item, kind, one.expected)
        return one.item

    def _begin(self, item: T, kind: str, expected: Expected) -> None:
        self._in_vain = 0
        self._running[id(item)] = kind, expected.total
        self._seconds[kind] += expected.total

    def _review(self) -> None:
        """Work out anew what the structures that wait are expected to cost."""
        for each in self.waiting:
            if each.version != self._costs.version:
                each.review(self._costs)

    def told(self) -> str:
        """Return what is tried late, in words; "" if nothing is."""
        self._review()
        most = self._most()
        late = [w for w in self.waiting if not w.within(most)]
        if not late:
            return ""
        least = min(late, key=lambda w: w.expected.total)
        if least.expected.compiling <= least.expected.running:
            return (
                f"cases of about {least.case.elements:,} elements and more are tried "
                f"late: one takes about {least.expected.running:.1f} s"
            )
        row, compilations = least.traits.row, self._costs.compilations
        if not compilations.measured:
            return ""
        return (
            f"rows above {1 << max(row - 1, 0):,} elements are tried late: compiling "
            f"for one takes about {compilations.seconds(least.traits):.1f} s"
        )


class Pace:
    """What the search of one kernel knows of its costs, and plans by them.

    Args:
        ledger: of what it has visited.
        compiles: as for `Costs`.

    Attributes:
        limit: seconds that one case may take.
        costs: what was measured of them.
        cases: those that wait.
        batches: those that wait.
    """

    def __init__(self, ledger: Ledger, *, compiles: bool) -> None:
        self.limit = math.inf
        self.costs = Costs(compiles=compiles)
        self.cases: Plan[Case] = Plan(self.costs, ledger, lambda: self.limit)
        self.batches: Plan[Burst] = Plan(self.costs, ledger, lambda: self.limit)
        # What the compiler ran for, in cases that conform.
        self._compiled: deque[Case] = deque(maxlen=_MOST)

    def take(self, case: Case, report: CaseReport, spending: Spending | None) -> None:
        """Take it that a case has run; what was compiled for it may serve more.

        Args:
            case: the case.
            report: what it showed.
            spending: what it took; None where that is unknown.
        """
        conforms = report.verdicts.get("K-VAL-01") is Verdict.CONFORMS
        if conforms and spending is not None and spending.compiling > QUICK_SECONDS:
            self._compiled.append(case)

    def compiled(self) -> Iterator[Case]:
        """Yield each structure once for which a case has waited for a compilation.

        Many more inputs of it can run for a fraction of what that took.
        """
        while self._compiled:
            yield self._compiled.popleft()

    def told(self) -> str:
        """Return what is tried late, in words; "" if nothing is."""
        return self.cases.told() or self.batches.told()


def _structure(item: Case | Burst) -> tuple[Case, int]:
    """Return the structure of a case or a batch, and how many calls it makes."""
    if isinstance(item, Burst):
        return item.case, max(item.members, 2)
    return item, 1


# Guidance: which errors a search climbs, and which families of values it lacks.
#
# A score for novelty in Hypothesis's `target()` is no part of it: climbing towards what
# is new no longer, a search reached a tenth fewer strata in as many cases (measured).

WANTED: Final = 2
"""Families least visited of which a burst has members, besides those drawn."""

# Most outputs whose errors are climbed each on its own, instead of the largest one:
# Hypothesis divides its attempts among the labels.
_LABELS: Final = 3
# The logarithm of error / tolerance is climbed; below this it is noise.
_LEAST_RATIO: Final = 2.0**-40
_GREATEST_RATIO: Final = 2.0**60


def scores(report: CaseReport) -> dict[str, float]:
    """Return what the search climbs: log2(error / tolerance) of each output, by label.

    The tolerance is that of K-VAL-01. The other classes that judge values in one call
    (C-PRC-01, C-CMP-03, …) tell why it is missed and have none of their own; those with
    a tolerance of their own are asked on too few cases to be climbed.
    """
    several = 1 < len(report.ratios) <= _LABELS
    ratios: Mapping[str, float] = report.ratios if several else {"": report.ratio}
    return {
        f"error / tolerance {name}".rstrip(): math.log2(min(ratio, _GREATEST_RATIO))
        for name, ratio in ratios.items()
        if ratio > _LEAST_RATIO
    }


def is_climbed(number: int) -> bool:
    """Whether a round, counted from 0, climbs; every second one explores instead.

    In 400 cases of six operators, climbing in every round cost 16 to 35 % of the strata
    that a search without reached, climbing in every second 7 to 21 %; the largest
    errors were nearly the same, and smaller without.
    """
    return number % 2 == 1


def wanted(ledger: Ledger, case: Case, among: Sequence[str]) -> tuple[str, ...]:
    """Return the value families that some items of a batch are to have.

    Args:
        ledger: of what the kernel's search has visited.
        case: what the items have in common.
        among: the families that the kernel's declaration accepts.
    """
    fill = case.data.fill
    known = COPIES if fill is None else COPIES | {fill.family}
    others = [f for f in among if f not in known]
    return ledger.wanting("family", others, like=case, count=WANTED)
