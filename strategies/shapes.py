"""Shapes: named dimensions shared between tensors, within budget and declaration."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Final

from hypothesis import reject
from hypothesis import strategies as st

from kfuzz.core.budget import SizeBudget
from kfuzz.core.declaration import INT32_ELEMENTS, Declaration, ShapeClass
from kfuzz.core.dtypes import DTYPES
from kfuzz.core.errors import BindingError
from kfuzz.core.random_streams import Purpose, generator
from kfuzz.core.recipe import NOWHERE, Case, TensorSpec
from kfuzz.core.value_families import STRETCHED, TILES
from kfuzz.strategies import layouts
from kfuzz.strategies.parameters import IndexParameter, TensorParameter, placed, widest
from kfuzz.strategies.values import Weighted, weighted

# Sizes of one dimension at which kernels go wrong, within bounds.

_TINY: Final = (2, 1, 3, 4, 5, 6, 7, 8, 9)
_PRIMES: Final = (3, 7, 13, 31, 61, 127, 257, 509, 1009, 2053, 4099)
# Sizes up to here are cheap on every backend, and reach past a block of 1024.
_MEDIUM: Final = 1100
# Sizes around a smaller scalar are among the tiny ones; a larger one is a seed, mostly.
_SCALARS: Final = range(5, 4097)
# One size in so many is 0, where 0 is admitted.
_ZERO_SHARE: Final = 25


@dataclass(frozen=True)
class Range:
    """The sizes that one dimension may have.

    Attributes:
        least: the smallest one.
        greatest: the largest one, None without limit.
        modulus: sizes are `remainder` modulo this.
        remainder: see `modulus`.
    """

    least: int = 0
    greatest: int | None = None
    modulus: int = 1
    remainder: int = 0

    def __contains__(self, size: int) -> bool:
        """Whether a size is admitted."""
        within = self.greatest is None or size <= self.greatest
        return self.least <= size and within and size % self.modulus == self.remainder

    def smallest(self, floor: int) -> int | None:
        """Return the smallest admitted size from `floor` up, or None."""
        start = max(self.least, floor)
        size = start + (self.remainder - start) % self.modulus
        return size if size in self else None

    def __and__(self, other: "Range") -> "Range":
        """Return the range of the sizes in both; empty ones admit nothing."""
        least = max(self.least, other.least)
        limits = [g for g in (self.greatest, other.greatest) if g is not None]
        modulus = math.lcm(self.modulus, other.modulus)
        # Chinese remainders by trial: moduli are a few thousand at most.
        for remainder in range(self.remainder, modulus, self.modulus):
            if remainder % other.modulus == other.remainder:
                return Range(least, min(limits, default=None), modulus, remainder)
        return Range(1, 0)


def _landmarks(cap: int, *, large: bool) -> Iterator[int]:
    """Yield sizes worth trying, the simplest first; repeats weigh."""
    yield from _TINY
    if not large:
        # Axes outside the reduced one: many small ones reach more kernels than
        # few large ones, and leave room for the reduced axis.
        yield from _TINY * 2
    if large:  # not at the end: Hypothesis favours the last option of a list
        yield from (8193, 16383, *(1 << e for e in range(15, cap.bit_length())))
    for tile in TILES:
        if large or tile <= 64:
            yield from (tile, tile + 1, tile - 1, 2 * tile - 1)
    yield from _PRIMES
    yield from (GRID_BLOCKS, GRID_BLOCKS + 1, GRID_BLOCKS + 2)
    if large:
        # The range in which blocks and warps end, once more.
        yield from (p for t in TILES if t < _MEDIUM for p in (t, t + 1, t - 1))
        yield from (10, 11, 12, 20, 24, 40, 48, 77, 96, 100, 200, 300, 384, 768, 1000)


@lru_cache(maxsize=4096)
def candidates(
    cap: int, within: Range, *, large: bool, named: tuple[int, ...] = ()
) -> tuple[int, ...]:
    """Return the positive sizes worth trying, simplest first, weighted by repeats.

    Args:
        cap: the greatest size that the budget leaves.
        within: the sizes that the kernel declares.
        large: whether this is the axis that gets the large sizes.
        named: further sizes, which get a third of the draws.
    """
    if within.greatest is not None:
        cap = min(cap, within.greatest)
    least = within.smallest(1)
    if within.modulus == 1 and within.least <= 2:
        marks = list(_landmarks(cap, large=large))
    else:
        # Around each landmark the next sizes that the declaration admits.
        marks = [] if least is None else [least, least + within.modulus]
        for size in _landmarks(cap, large=large):
            below = size - (size - within.remainder) % within.modulus
            marks += [below, below + within.modulus]
        marks = list(dict.fromkeys(marks)) if within.modulus > 1 else marks
    if within.greatest is not None:
        top = cap - (cap - within.remainder) % within.modulus
        marks += [top, top - within.modulus]
    found = [size for size in marks if 1 <= size <= cap and size in within]
    further = [size for size in named if 1 <= size <= cap and size in within]
    if further:
        share = max(1, len(found) // (2 * len(further)))
        found = found[:1] + further * share + found[1:]
    if not found and least is not None and least <= cap:
        found = [least]
    return tuple(found)


@lru_cache(maxsize=4096)
def sizes(
    cap: int, within: Range, *, large: bool, zero: bool, named: tuple[int, ...] = ()
) -> Weighted[int]:
    """Return a strategy for one size; see `candidates`.

    Args:
        cap: the greatest size that the budget leaves; at least one positive
            size must fit.
        within: the sizes that the kernel declares.
        large: whether this is the axis that gets the large sizes.
        zero: whether a few per cent are 0 (if `within` admits it).
        named: see `candidates`.
    """
    positive = candidates(cap, within, large=large, named=named)
    if not zero or 0 not in within:
        return weighted(positive)
    zeros = max(1, round(len(positive) / _ZERO_SHARE))
    repeats = max(1, _ZERO_SHARE // len(positive))
    return weighted(
        positive[:1] + (0,) * zeros + positive[1:] + positive * (repeats - 1)
    )


# Side of the output tile that one program of a matrix product makes.
_TILE: Final = 16
# Attempts to meet what a shape class demands of several dimensions together, at some
# 100 us each, before they are taken at their least, and before a rank is given up.
_REPAIRS: Final = 16
_TRIALS: Final = 512
# A dimension that never reaches this size, a filter's say, takes little room.
_SMALL: Final = 16
# One case in so many has one dimension as large as there is room for while all others
# are tiny: it costs little, however large. Of many rows, each a program that is slow on
# some backends, one in so many of these again.
_STRETCHED_SHARE: Final = 3
_TALL_SHARE: Final = 2
_OTHERS: Final = (1, 1, 2)


@dataclass(frozen=True)
class Limit:
    """A bound on a product of sizes, some of them counted in tiles.

    Attributes:
        most: the greatest product.
        sides: per dimension the tile side by which its size is divided.
        times: how often dimensions count that do so more than once, as in "B T T".
    """

    most: int
    sides: Mapping[str, int]
    times: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, most: int, axes: Sequence[str]) -> "Limit":
        """Return the bound on the elements of a tensor."""
        repeated = {a: n for a, n in Counter(axes).items() if n > 1}
        return cls(most, dict.fromkeys(axes, 1), repeated)

    def room(self, axis: str, sizes: Mapping[str, int]) -> int:
        """Return the greatest size that the others leave to one dimension."""
        product = 1
        for name, side in self.sides.items():
            if name != axis:
                tiles = max(1, -(-sizes[name] // side))
                product *= tiles ** self.times.get(name, 1)
        left, degree = self.most // product, self.times.get(axis, 1)
        if degree > 1:
            root = int(left ** (1 / degree)) + 1
            left = next(n for n in range(root, -1, -1) if n**degree <= left)
        return left * self.sides[axis]


@dataclass(frozen=True)
class Plan:
    """How to draw the shapes of one rank with one axis to be the large one.

    Attributes:
        axes: dimension names per tensor parameter.
        lead: the parameter that rank and shape class speak of: the first that
            is not an index.
        large: the dimension that gets the large sizes; None for 0-d tensors.
        long: the dimension that a shape class may call "N": the reduced one,
            else the last of the leading tensor; None for 0-d tensors.
        ranges: sizes that the declaration admits, per dimension.
        limits: the budget.
        nonempty: dimensions that may not be 0.
        bounds: per index parameter the dimension that it selects along, if it does;
            it is not 0 where there are indices.
        shape_class: the restriction, if any, of operator and declaration.
        scalars: defaults of the integer scalars that it may name.
        named_sizes: sizes to draw besides those at which kernels mostly go wrong.
        rows: the limit of `limits` on rows.
        tall: tiny rows that some cases have, in spite of it; 0 for none.
    """

    axes: Mapping[str, tuple[str, ...]]
    lead: str
    large: str | None
    long: str | None
    ranges: Mapping[str, Range]
    limits: tuple[Limit, ...]
    nonempty: frozenset[str]
    bounds: Mapping[str, str]
    shape_class: ShapeClass | None
    scalars: Mapping[str, int] = field(default_factory=dict)
    named_sizes: tuple[int, ...] = ()
    rows: Limit | None = None
    tall: int = 0

    @cached_property
    def least(self) -> dict[str, int]:
        """The smallest positive size of every dimension; 0 where there is none."""
        return {name: r.smallest(1) or 0 for name, r in self.ranges.items()}

    @cached_property
    def possible(self) -> bool:
        """Whether sizes within budget and declaration are found at all."""
        least = self.least
        if 0 in least.values() or not self._fits(least):
            return False
        if self.shape_class is None:
            return True
        names = {**self.scalars, **self.named(least)}
        if self.shape_class.names - set(names):
            return False
        if not self.ranges or self.shape_class.accepts(names):
            return self.shape_class.accepts(names)
        found = self._repaired(least, self.shape_class, _TRIALS, self.scalars)
        return found is not None

    def named(self, dims: Mapping[str, int]) -> dict[str, int]:
        """Return the sizes that a shape class may name.

        The dimensions; "N", see `long`; "M", the product of the other axes of
        the leading tensor.
        """
        first = self.axes[self.lead]
        rest = math.prod(dims[name] for name in first if name != self.long)
        return {"N": dims[self.long] if self.long else 1, "M": rest, **dims}

    def _fits(self, dims: Mapping[str, int]) -> bool:
        return all(
            limit.room(name, dims) >= dims[name]
            for limit in self.limits
            for name in limit.sides
        )

    def draw(
        self,
        choose: Callable[[Weighted[int]], int],
        scalars: Mapping[str, int] | None = None,
    ) -> dict[str, int]:
        """Draw the size of every dimension; rejects the case if it must.

        Args:
            choose: draws one of several sizes.
            scalars: drawn scalars that the shape class may name, or that may be sizes.
        """
        known = {**self.scalars, **(scalars or {})}
        drawn = dict(self.least)
        computed = self.shape_class.computed if self.shape_class else frozenset()
        ranges = self._given(scalars or {})
        # Where a window or a group of so many begins, ends and repeats.
        whole = {n for n in known.values() if type(n) is int and n in _SCALARS}
        around = (size for n in sorted(whole) for size in (n - 1, n, n + 1, 2 * n))
        named = tuple(dict.fromkeys((*self.named_sizes, *around)))
        for name in self._order:
            if name in self.ranges and name not in computed:
                cap, within = self._cap(name, drawn), ranges[name]
                if (within.smallest(1) or cap + 1) > cap:
                    within = self.ranges[name]
                drawn[name] = choose(
                    sizes(
                        cap,
                        within,
                        large=name == self.large,
                        zero=name not in self.nonempty,
                        named=named,
                    )
                )
            if computed and self.shape_class:
                drawn = self.shape_class.settled(drawn, known)
        for name, bound in self.bounds.items():
            if all(drawn[axis] for axis in self.axes[name]):
                drawn[bound] = drawn[bound] or self.least[bound]
        if not self.shape_class or self._accepts(drawn, self.shape_class, known):
            return drawn
        repaired = self._repaired(drawn, self.shape_class, _REPAIRS, known)
        return reject() if repaired is None else repaired

    def stretched(
        self, drawn: dict[str, int], number: int, scalars: Mapping[str, int]
    ) -> dict[str, int]:
        """Return sizes of which one is large and all others tiny, in place of some.

        Args:
            drawn: what `draw` returned.
            number: what else is drawn, which settles it.
            scalars: drawn integer scalars that the shape class may name.
        """
        chance = generator(repr((number, drawn)), Purpose.STRETCHED)
        if chance.randrange(_STRETCHED_SHARE) or not all(drawn.values()):
            return drawn
        tall = bool(self.tall) and not chance.randrange(_TALL_SHARE)
        limits = (
            replace(each, most=self.tall) if tall and each is self.rows else each
            for each in self.limits
        )
        free = replace(self, limits=tuple(limits))
        ranges, known = self._given(scalars), {**self.scalars, **scalars}
        # Leading ones mostly cost a program each.
        last = sorted({n for names in self.axes.values() for n in names[-2:]})
        for axis in chance.sample(last, len(last)):
            trial = {n: r.smallest(chance.choice(_OTHERS)) for n, r in ranges.items()}
            tiny = {n: size or self.least[n] for n, size in trial.items()}
            # Sizes of all magnitudes in the upper third, powers of two and between.
            most = free._cap(axis, tiny)
            bits = most.bit_length()
            power = 1 << chance.randint(2 * bits // 3, bits - 1)
            between = power + chance.randrange(power)
            size = chance.choice((power - 1, power, power + 1, between))
            within = ranges[axis]
            size -= (size - within.remainder) % within.modulus
            made = {**tiny, axis: min(size, most, within.greatest or size)}
            if self.shape_class is not None:
                made = self.shape_class.settled(made, known)
            if free._accepts(made, self.shape_class, known):
                return made
        return drawn

    def _given(self, scalars: Mapping[str, int]) -> Mapping[str, Range]:
        """Return the ranges where scalars and sizes, which may be moduli, are known."""
        shape_class = self.shape_class
        if shape_class is None or not scalars:
            return self.ranges
        known = {n: v for n, v in scalars.items() if type(v) is int and v > 1}
        return {
            name: r & Range(*shape_class.bounds(name, known)) if known else r
            for name, r in self.ranges.items()
        }

    def _accepts(
        self,
        sizes: Mapping[str, int],
        shape_class: ShapeClass | None,
        scalars: Mapping[str, int],
    ) -> bool:
        """Whether sizes, some of them computed, satisfy everything."""
        inside = all(n in self.ranges[name] for name, n in sizes.items())
        inside = inside and all(sizes[name] for name in self.nonempty)
        for name, bound in self.bounds.items():
            some = all(sizes[axis] for axis in self.axes[name])
            inside = inside and (not some or sizes[bound] > 0)
        names = {**scalars, **self.named(sizes)}
        allowed = shape_class is None or shape_class.accepts(names)
        return inside and allowed and self._fits(sizes)

    @cached_property
    def _order(self) -> tuple[str, ...]:
        # Those that are always small first: what the others take leaves no room.
        small = [n for n, r in self.ranges.items() if (r.greatest or _SMALL) < _SMALL]
        first = () if self.large is None else (self.large,)
        return tuple(dict.fromkeys((*small, *first, *self.ranges)))

    def _cap(self, name: str, drawn: Mapping[str, int]) -> int:
        room = min(lim.room(name, drawn) for lim in self.limits if name in lim.sides)
        # Sizes that were computed may leave no room: then the case is repaired.
        room = max(room, self.least[name], 1)
        # Powers of two, so that few distinct strategies are built and kept.
        rounded = 1 << (room.bit_length() - 1)
        return rounded if rounded >= self.least[name] else room

    def _repaired(
        self,
        drawn: Mapping[str, int],
        shape_class: ShapeClass,
        attempts: int,
        scalars: Mapping[str, int],
    ) -> dict[str, int] | None:
        """Look near the drawn sizes for ones that satisfy the shape class."""
        chance = generator(repr(tuple(drawn.values())), Purpose.REPAIR)
        spoken = [n for n in drawn if n in shape_class.names]
        if shape_class.names - set(drawn) - set(scalars):
            # It speaks of the product of several, or of one by another name.
            spoken = list(drawn)
        ranges = self._given(scalars)
        for attempt in range(attempts):
            # Others stay as drawn: at their least, half of all cases would be tiny.
            trial = dict(self.least) if attempt % 3 == 2 else dict(drawn)
            same: int | None = None
            chosen: dict[str, int] = {}
            for name in chance.sample(spoken, len(spoken)):
                within = self._given({**scalars, **chosen})[name]
                choices = candidates(
                    self._cap(name, trial), within, large=name == self.large
                )
                if not choices:
                    break
                # One attempt in four tries equal sizes: "M == N". Not the first ones:
                # "H % G == 0" would mostly be met by them.
                if attempt % 4 < 3 or same not in choices:
                    same = chance.choice(choices)
                trial[name] = chosen[name] = same
            else:
                trial = shape_class.settled(trial, scalars)
                if self._accepts(trial, shape_class, scalars):
                    return trial
        # At last one dimension at its least size, then one more after the other.
        lowest = {n: r.smallest(1) or self.least[n] for n, r in ranges.items()}
        names = chance.sample(spoken, len(spoken))
        names += [name for name in drawn if name not in names]
        fewer = [{name: lowest[name]} for name in names]
        more = [{n: lowest[n] for n in names[: i + 2]} for i in range(len(names) - 1)]
        for lowered in fewer + more:
            trial = shape_class.settled({**drawn, **lowered}, scalars)
            if self._accepts(trial, shape_class, scalars):
                return trial
        return None


def plan(
    tensors: Mapping[str, TensorParameter],
    *,
    rank: int,
    reduced: str | int | None,
    large: int | str = -1,
    budget: SizeBudget,
    shape_class: ShapeClass | None = None,
    empty_reduction: bool = True,
    workspaces: Sequence[str] = (),
    scalars: Mapping[str, int] | None = None,
    named_sizes: tuple[int, ...] = (),
) -> Plan:
    """Return the plan for one rank and one reduced axis.

    Args:
        tensors: the tensor parameters that are passed, in order.
        rank: of the tensors with "*" (of the one with most named dimensions).
        reduced: a dimension name, an axis of the leading tensor, or None where
            the operator reduces nothing.
        large: where nothing is reduced, the dimension (or axis of the leading
            tensor) that gets the large sizes.
        budget: limits. Where two data tensors, of no dtype of their own, each
            have a dimension that the other lacks (a matrix product) and nothing is
            indexed, the budget's rows count tiles of 16 x 16 of the result; else
            they count the product of the sizes outside the large axis, without
            those that indices select from.
        shape_class: the restriction of operator and declaration.
        empty_reduction: whether the reduced dimension may be 0.
        workspaces: dimension names of further tensors within the budget.
        scalars: defaults of the integer scalars that the shape class may name.
        named_sizes: see `Plan`.
    """
    starred = unnamed(tensors, rank)
    axes = {name: parameter.axes(starred) for name, parameter in tensors.items()}
    lead = next(
        (n for n, p in tensors.items() if not isinstance(p, IndexParameter)),
        next(iter(tensors)),
    )
    first = axes[lead]
    named = {name for p in tensors.values() for name in p.names}
    bounds = {
        n: p.selects
        for n, p in tensors.items()
        if isinstance(p, IndexParameter) and p.selects in named
    }
    if isinstance(reduced, int):
        reduced = first[reduced]
    for name, parameter in tensors.items():
        if parameter.without:
            axes[name] = tuple(axis for axis in axes[name] if axis != reduced)
    if isinstance(large, int):
        large = first[large] if first else ""
    widest = reduced or large or None
    long = reduced or (first[-1] if first else None)
    every = tuple(dict.fromkeys(name for names in axes.values() for name in names))
    made = [*axes.values(), *(placed(dims, starred) for dims in workspaces)]
    limits = [Limit.of(budget.elements, names) for names in made]
    data = [
        set(axes[n]) for n, p in tensors.items() if p.role == "data" and not p.dtype
    ]
    outer = {n for d in data for n in d if not all(n in other for other in data)}
    if outer and not bounds:
        result = [name for name in every if name != reduced]
        limits.append(Limit(budget.elements, dict.fromkeys(result, 1)))
        sides = {name: _TILE if name in outer else 1 for name in result}
    else:
        result = [name for name in every if name not in bounds.values()]
        if bounds:
            limits.append(Limit(budget.elements, dict.fromkeys(result, 1)))
        sides = {name: 1 for name in result if name != widest}
    # What is computed from others is counted with these.
    computed = shape_class.computed if shape_class is not None else frozenset()
    counted = {name: side for name, side in sides.items() if name not in computed}
    rows = Limit(budget.rows, counted)
    limits.append(rows)
    ranges = {name: Range() for name in every}
    others = [name for name in first if name != long]
    if shape_class is not None:
        ranges = {name: Range(*shape_class.bounds(name)) for name in every}
        if "N" not in ranges and long is not None:
            ranges[long] &= Range(*shape_class.bounds("N"))
        product = Range(*shape_class.bounds("M"))
        if "M" not in ranges and others:
            # Enough for a product that is a multiple: one factor is.
            ranges[others[0]] &= product
            if product.greatest is not None:
                limits.append(Limit(product.greatest, dict.fromkeys(others, 1)))
        elif "M" not in ranges and "M" in shape_class.names and 1 not in product:
            ranges = {name: Range(1, 0) for name in every}
    return Plan(
        axes=axes,
        lead=lead,
        large=widest,
        long=long,
        ranges=ranges,
        limits=tuple(limit for limit in limits if limit.sides),
        nonempty=frozenset(() if empty_reduction or not reduced else (reduced,)),
        bounds=bounds,
        shape_class=shape_class,
        scalars=dict(scalars or {}),
        named_sizes=named_sizes,
        rows=rows,
        # A program that goes over keys or windows takes longer.
        tall=budget.tall // 2 if workspaces else budget.tall,
    )


def unnamed(tensors: Mapping[str, TensorParameter], rank: int) -> tuple[str, ...]:
    """Return the dimensions that "*" stands for at a rank of the widest tensors."""
    named = widest(tensors.values(), default=rank)
    return tuple(f"d{i}" for i in range(rank - named))


# Cases of the profile large: where 31 bits, a grid, or a stride run out.
#
# Each is an ordinary small case of which one thing is made huge: the elements of an
# argument, the number of rows, or the stride of a view of few elements.

GRID_BLOCKS: Final = 65_535
"""The greatest size of a CUDA grid in y and z (CUDA C++ programming guide, table of
technical specifications)."""

SPAN_BYTES: Final = 1 << 35
"""The most that one view may span, counted in elements of 8 bytes."""

# Just beyond a grid, where 16 bits wrap, and well beyond.
_LARGE_ROWS: Final = (GRID_BLOCKS + 1, GRID_BLOCKS + 2, 70_001, (1 << 17) + 1)
# Elements over all dimensions together, results and workspaces too, of a case whose
# rows are many.
_GRID_ELEMENTS: Final = 1 << 24
# Elements of the small cases: as few as the declaration allows.
_BASE: Final = tuple(
    SizeBudget(elements=1 << e, rows=1 << r, span=SPAN_BYTES)
    for e, r in ((6, 6), (11, 8), (16, 12))
)
_WIDER: Final = _BASE[1:]
# Indices along an axis of huge stride: the last lies beyond 2^31 elements.
_FAR_APART: Final = 3
# Multiples that declarations ask sizes to be of.
_LARGE_MULTIPLES: Final = (1, 8, 128, 4096)
_KINDS: Final = ("elements", "elements", "grid", "grid", "span")


def large_cases(
    within: Callable[[SizeBudget], st.SearchStrategy[Case]],
    declaration: Declaration,
    *,
    accepts: Callable[[Case], bool],
    sliceable: Callable[[Case], bool],
) -> st.SearchStrategy[Case]:
    """Return a strategy for the large cases of a kernel, as recipes.

    Args:
        within: the kernel's ordinary cases within a budget.
        declaration: the kernel's.
        accepts: whether a case lies in the kernel's domain.
        sliceable: whether a case of billions of elements can be judged.

    Raises:
        BindingError: if the declaration leaves no small shape.
    """
    narrow, wide = _least(within, _BASE), _least(within, _WIDER)

    @st.composite
    def draw_case(draw: st.DrawFn) -> Case:
        kind = draw(st.sampled_from(_KINDS))
        case = draw(wide if kind == "elements" else narrow)
        turn = draw(st.integers(0, (1 << 16) - 1))
        # Not every operator can be judged in slices, nor every view be huge.
        for each in dict.fromkeys((kind, "grid")):
            made = _made(each, case, turn, declaration, accepts, sliceable)
            if made is not None:
                return made
        return reject()

    return draw_case()


def _least(
    within: Callable[[SizeBudget], st.SearchStrategy[Case]],
    budgets: tuple[SizeBudget, ...],
) -> st.SearchStrategy[Case]:
    """Return the strategy of the first budget that leaves a shape."""
    for budget in budgets[:-1]:
        with suppress(BindingError):
            return within(budget)
    return within(budgets[-1])


def _made(
    kind: str,
    case: Case,
    turn: int,
    declaration: Declaration,
    accepts: Callable[[Case], bool],
    sliceable: Callable[[Case], bool],
) -> Case | None:
    """Return the case with one thing made huge; None if nothing can be."""
    if not all(case.dims.values()):
        return None
    if kind == "span":
        return _spread(case, turn, declaration, accepts)
    axes, sizes = list(case.dims), _sizes if kind == "elements" else _rows
    for step in range(len(axes)):
        axis = axes[(turn + step) % len(axes)]
        for size in sizes(case, axis, turn):
            made = extended(case, axis, size, tame=kind == "elements")
            if accepts(made) and (kind == "grid" or sliceable(made)):
                return made
    return None


def _sizes(case: Case, axis: str, turn: int) -> list[int]:
    """Return sizes of an axis that give some argument more than 2^31 elements."""
    rows = [s.numel // case.dims[axis] for s in case.tensors.values() if axis in s.axes]
    least = INT32_ELEMENTS // max(rows) + 1 + turn % 3
    return [-(-least // m) * m for m in _LARGE_MULTIPLES]


def _rows(case: Case, axis: str, turn: int) -> list[int]:
    """Return sizes of an axis beyond what a grid has in y and z."""
    rest = math.prod(n for name, n in case.dims.items() if name != axis)
    first = turn % len(_LARGE_ROWS)
    wanted = _LARGE_ROWS[first:] + _LARGE_ROWS[:first]
    sizes = [-(-n // m) * m for n in wanted for m in _LARGE_MULTIPLES]
    return [n for n in sizes if n * rest <= _GRID_ELEMENTS]


def extended(case: Case, axis: str, size: int, *, tame: bool = False) -> Case:
    """Return the contiguous case with another size of an axis.

    Args:
        case: a small case.
        axis: the name of the dimension.
        size: its size.
        tame: whether values are to be such that can be made in parts.
    """
    tensors = {}
    for name, spec in case.tensors.items():
        sizes = zip(spec.axes, spec.shape, strict=True)
        shape = tuple(size if a == axis else n for a, n in sizes)
        made = replace(spec, shape=shape, strides=None, offset=0, plants=())
        tensors[name] = _tamed(made) if tame else made
    return replace(case, tensors=tensors, edge=NOWHERE)


def _tamed(spec: TensorSpec) -> TensorSpec:
    fill = spec.fill
    if fill is None or DTYPES[spec.dtype].kind != "float":
        return spec
    family = fill.family if fill.family in STRETCHED else STRETCHED[0]
    return replace(spec, fill=replace(fill, family=family, axis=-1, source=None))


def _spread(
    case: Case, turn: int, declaration: Declaration, accepts: Callable[[Case], bool]
) -> Case | None:
    """Return the case with one argument's elements 2^31 apart."""
    if declaration.layouts == "contiguous" or declaration.offsets == "int32":
        return None
    span = SPAN_BYTES // max(d.itemsize for d in DTYPES.values())
    axes = [
        (name, axis)
        for name, spec in case.tensors.items()
        for axis in spec.axes
        if name not in declaration.inplace
    ]
    for step in range(len(axes)):
        name, axis = axes[(turn + step) % len(axes)]
        made = extended(case, axis, _FAR_APART, tame=False)
        spec = made.tensors[name]
        if accepts(made) and layouts.can_be_huge(spec.shape, declaration, span):
            strides, offset = layouts.build(
                "huge", spec.shape, turn, spec.dtype, declaration, span=span
            )
            return made.with_tensor(name, replace(spec, strides=strides, offset=offset))
    return None
