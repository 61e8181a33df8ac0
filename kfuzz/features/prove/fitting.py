"""Fitting: expressions for what a wrapper computes, found on some of its launches."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import (
    combinations,
    combinations_with_replacement,
    islice,
    permutations,
    product,
    starmap,
)
from math import gcd, prod
from operator import mul
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kfuzz.execution.launches.capture import (
    UNKNOWN,
    Argument,
    ConstArgument,
    IntArgument,
    Launch,
    TensorArgument,
)
from kfuzz.features.prove.ir.values import (
    SYMBOL,
    TRUE,
    Atom,
    Cond,
    Poly,
    UnknownValueError,
    Valuation,
    all_of,
    any_of,
    as_poly,
    at_most,
    atoms_in,
    below,
    equal,
    grid,
    least,
    negated,
    quotient,
    remainder,
    symbol,
)

# What the launches of a kernel have in common: the premises of a proof.
#
# A wrapper turns the operator's dimensions and strides into integers, constants and a
# grid. How it does so is not read but fitted: on some launches, and held against
# others. An expression that holds on all is a premise; it is printed, and a launch that
# breaks it withdraws the proof. What nothing fits is free, which asks more of a proof,
# not less.

MOST_ELEMENTS: Final = 1 << 40
"""Elements from the first to the last one of a tensor at most."""
NEAR: Final = 1 << 20
"""No integer argument lies so near below 2^31: a 32-bit counter that steps over it
wraps, in every loop of Triton's."""

_AXES: Final = frozenset(grid(axis) for axis in range(3))
SMALL: Final = (1 << 31) - NEAR
"""What 32-bit offsets reach in any case."""


@dataclass(frozen=True)
class Premise:
    """What has to hold of a launch."""

    holds: Cond
    text: str


@dataclass(frozen=True)
class Layout:
    """How an argument's elements lie, over the symbols of a launch.

    Attributes:
        sizes: per dimension, outermost first.
        strides: in elements.
        span: elements from the pointer to the end of the last one.
        distinct: whether no two elements share memory.
        dense: whether no memory lies between elements, so that any offset in
            [0, span) is one.
    """

    sizes: tuple[Poly, ...]
    strides: tuple[Poly, ...]
    span: Poly
    dense: bool
    distinct: bool = True


@dataclass(frozen=True)
class Relations:
    """The premises of one kernel's launches with the same constants.

    Attributes:
        premises: about the launch.
        layouts: of each tensor argument, the first one preferred.
        known: what is a function of other symbols.
        shared: arguments that may lie in the same storage, in pairs.
        same: those of them that begin at the same element.
    """

    premises: tuple[Premise, ...]
    layouts: Mapping[str, tuple[Layout, ...]]
    known: Mapping[Atom, Poly]
    shared: frozenset[tuple[str, str]]
    same: frozenset[tuple[str, str]] = frozenset()

    def below(self, limit: int) -> "Relations":
        """Return the relations of launches whose integers and tensors are all small.

        Args:
            limit: that no integer argument, size, stride and span exceeds.
        """
        atoms = [a for p in self.premises for a in atoms_in(p.holds)]
        integers = [
            a for a in dict.fromkeys(atoms) if a.kind == SYMBOL and a not in _AXES
        ]
        small = all_of(
            part for a in integers for part in (at_most(-limit, a), at_most(a, limit))
        )
        spans = all_of(
            at_most(layouts[0].span, limit) for layouts in self.layouts.values()
        )
        text = f"no argument, size, stride or tensor's extent exceeds {limit:,}"
        made = Premise(all_of([small, spans]), text)
        if made in self.premises:
            return self
        return replace(self, premises=(*self.premises, made))

    def broken_by(self, launch: Launch, *, partly: bool = False) -> Premise | None:
        """Return the first premise that a launch breaks, if any.

        Args:
            launch: the launch.
            partly: whether not all is known of it: what is not known holds.
        """
        values = Valuation(quantities(launch))
        for premise in self.premises:
            try:
                if not values.cond(premise.holds):
                    return premise
            except UnknownValueError:
                if not partly:
                    return premise
        return None


def within_grid(axis: int) -> Cond:
    """Return that a grid has as many programs along an axis as one may have."""
    most = 2**31 - 1 if axis == 0 else 65535
    return all_of([at_most(1, grid(axis)), at_most(grid(axis), most)])


def quantities(launch: Launch) -> dict[Atom, int]:
    """Return the integers of a launch by their symbols."""
    made: dict[str, int] = {f"grid.{a}": n for a, n in enumerate(launch.grid)}
    for name, argument in launch.arguments.items():
        match argument:
            case IntArgument():
                made[name] = argument.value
            case ConstArgument() if argument.number is not None:
                made[name] = argument.number
            case TensorArgument():
                made[f"{name}.numel"] = argument.numel
                made[f"{name}.distinct"] = int(argument.distinct)
                if argument.before != UNKNOWN:
                    made[f"{name}.before"] = argument.before
                    made[f"{name}.after"] = argument.after
                if argument.below is not None:
                    made[f"{name}.below"] = argument.below
                if argument.ignored is not None:
                    made[f"{name}.ignored"] = argument.ignored
                for d, (n, s) in enumerate(
                    zip(argument.shape, argument.strides, strict=True)
                ):
                    made[f"{name}.size({d})"] = n
                    made[f"{name}.stride({d})"] = s
    places = {
        name: (a.storage, a.before, a.itemsize)
        for name, a in launch.arguments.items()
        if isinstance(a, TensorArgument)
    }
    for one, other in combinations(places, 2):
        made[f"{one}.is.{other}"] = int(places[one] == places[other])
    return {symbol(name): value for name, value in made.items()}


def cdiv(left: Poly, right: Poly) -> Poly:
    """Return left / right, rounded up, for positive numbers."""
    return quotient(left + right - 1, right)


# Values of an expression on all launches, in 64 bits that wrap, and the expression.
Candidate = tuple[NDArray[Any], Callable[[], Poly]]

ENOUGH: Final = 3
"""Different values that a quantity has at least where an expression is fitted."""
_MIXED: Final = 8
_CAPS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 65535)


class Fit:
    """Finds what launches of one kernel have in common.

    Args:
        launches: of one kernel whose tensors have the same ranks, with constants of
            any value.
        varied: whether all that a call may be given differs between them, so that a
            number that does not is none by chance.
    """

    def __init__(self, launches: Sequence[Launch], *, varied: bool = False) -> None:
        self._launches, self._varied = launches, varied
        self._values = [quantities(launch) for launch in launches]
        self._known: dict[Atom, Poly] = {}  # what is a function of others
        self._bases: list[Atom] = []
        self._constants = [
            symbol(name)
            for name, argument in launches[0].arguments.items()
            if isinstance(argument, ConstArgument) and argument.number is not None
        ]
        self._columns: dict[Poly, tuple[int, ...] | None] = {}
        self._sizes: set[tuple[int, ...] | None] | None = None
        self._strides: set[tuple[int, ...] | None] = set()

    def fitted(self) -> Relations:
        """Return the relations."""
        premises: list[Premise] = []
        first = self._launches[0].arguments
        integers = [n for n, a in first.items() if isinstance(a, IntArgument)]
        tensors = [n for n, a in first.items() if isinstance(a, TensorArgument)]
        for name in sorted(integers, key=self._spread, reverse=True):
            premises += self._related(symbol(name), offer=True)
        layouts = {}
        for name in tensors:
            found, more = self._layouts(name)
            layouts[name] = found
            premises += more
        for axis in range(3):
            premises += self._related(grid(axis), offer=False, of_grid=True)
            premises.append(Premise(within_grid(axis), ""))
        for name in tensors:
            below = symbol(f"{name}.below")
            if all(below in values for values in self._values):
                premises += self._related(below, offer=True)
                premises += self._bounds(below)
                bound = shown(self._known.get(below, as_poly(below)))
                text = f"{name} holds integers in [0, {bound})"
                ignored = symbol(f"{name}.ignored")
                if all(ignored in values for values in self._values):
                    premises += self._related(ignored, offer=True)
                    own = shown(self._known.get(ignored, as_poly(ignored)))
                    text += f", or {own}"
                text += f", none within {NEAR:,} below 2^31"
                premises.append(Premise(TRUE, text))
        for name in integers:
            premises += self._bounds(symbol(name))
            premises.append(_far(symbol(name), first[name]))
        premises += self._multiples()
        premises += self._constant_relations()
        grids = {grid(axis) for axis in range(3)}
        known = {a: p for a, p in self._known.items() if a not in grids}
        shared, same = self._shared(tensors), set()
        for one, other in combinations(tensors, 2):
            each = symbol(f"{one}.is.{other}")
            if (one, other) in shared and all(values[each] for values in self._values):
                text = f"{one} and {other} begin at the same element"
                premises.append(Premise(equal(each, 1), text))
                same |= {(one, other), (other, one)}
        return Relations(
            tuple(dict.fromkeys(premises)), layouts, known, shared, frozenset(same)
        )

    # Single quantities.

    def _column(self, poly: Poly) -> tuple[int, ...] | None:
        """Return the values of an expression on all launches, None where undefined."""
        if poly not in self._columns:
            try:
                made = tuple(Valuation(values).poly(poly) for values in self._values)
            except UnknownValueError:
                self._columns[poly] = None
            else:
                self._columns[poly] = made
        return self._columns[poly]

    def _spread(self, name: str) -> tuple[bool, int]:
        """Return what is preferred as a base: sizes of tensors, and what varies."""
        column = self._column(as_poly(symbol(name))) or ()
        return "stride" not in name.lower(), len(set(column))

    def _related(
        self, target: Atom, *, offer: bool, of_grid: bool = False
    ) -> list[Premise]:
        """Fit a quantity to those before it.

        Args:
            target: the quantity.
            offer: whether others may be fitted to it.
            of_grid: whether it counts programs.
        """
        wanted = self._column(as_poly(target))
        if wanted is None:
            return []
        if len(set(wanted)) == 1:
            if len(self._launches) < ENOUGH or (
                offer and wanted[0] not in (0, 1) and not self._varied
            ):
                self._bases.append(target)
                return []
            return self._take(target, as_poly(wanted[0]))
        column = np.array([n % (1 << 64) for n in wanted], np.uint64).view(np.int64)
        for values, expression in self._candidates(column, of_grid=of_grid):
            if np.array_equal(values, column):
                made = expression()
                if self._column(made) == wanted:
                    return self._take(target, made)
        if offer:
            self._bases.append(target)
        return []

    def _take(self, target: Atom, expression: Poly) -> list[Premise]:
        self._known[target] = expression
        text = f"{target} = {shown(expression)}"
        return [Premise(equal(target, expression), text)]

    def _candidates(
        self, wanted: NDArray[Any], *, of_grid: bool
    ) -> Iterator[Candidate]:
        """Yield expressions over the bases, the simplest first, with their values.

        Those of the most frequent kinds only where they may have the values wanted.
        """
        every = [self._candidate(b) for b in self._bases]
        yield from every
        bases = [self._candidate(b) for b in self._bases if not self._steps(b)]
        constants = [self._candidate(c) for c in self._constants]
        numbers = [self._number(n) for n in _CAPS]
        several = list(products(bases))
        yield from several
        few = [*bases, *several[: len(bases) ** 2]]
        divisors = [c for c in [*constants, *numbers[1:]] if (c[0] > 0).all()]
        own = [cdiv_of(n, c) for n in bases for c in constants if (c[0] > 0).all()]
        halves = [(c, self._number(2)) for c in constants]
        fixed = [
            cdiv_of(n, c)
            for n, c in (*permutations(constants, 2), *halves)
            if (c[0] > 0).all()
        ]
        parts = [cdiv_of(n, c) for n in few for c in divisors]
        yield from constants
        yield from parts
        yield from fixed
        factors = [*few, *constants, *starmap(times, combinations(constants, 2))]
        for part in (*own, *fixed):
            for factor in factors if of_grid else bases:
                yield times(part, factor)
        counts = {c[0].tobytes(): c for c in (*reversed(several), *bases, numbers[0])}
        for left, right in combinations_with_replacement(own if of_grid else (), 2):
            both = times(left, right)
            if both[0].all() and not (wanted % both[0]).any():
                rest = counts.get((wanted // both[0]).tobytes())
                if rest is not None:
                    yield times(both, rest)
        for i, left in enumerate(bases):
            for right in bases[:i] + bases[i + 1 :]:
                yield least_of(left, right)
                if not of_grid:
                    yield from pairs(left, right)
        caps = [
            cap
            for cap in (numbers if of_grid else [*constants, *numbers])
            if (cap[0] >= wanted).all() and (cap[0] == wanted).any()
        ]
        for part, cap in product([*few, *parts] if caps else (), caps):
            yield least_of(part, cap)
        for base in bases:
            for step in (1, -1, 2, -2):
                yield plus(base, step)
            for factor in [*constants, self._number(2)]:
                yield times(base, factor)

    def _steps(self, atom: Atom) -> bool:
        """Whether a quantity is a stride of some tensor and no size of any."""
        column = self._column(as_poly(atom))
        if self._sizes is None:
            names = {a for values in self._values for a in values}
            self._sizes, self._strides = (
                {self._column(as_poly(a)) for a in names if word in a.parts[0]}
                for word in (".size(", ".stride(")
            )
        return column in self._strides and column not in self._sizes

    def _candidate(self, atom: Atom) -> Candidate:
        column = self._column(as_poly(atom))
        assert column is not None
        wrapped = [n % (1 << 64) for n in column]
        return np.array(wrapped, np.uint64).view(np.int64), lambda: as_poly(atom)

    def _number(self, value: int) -> Candidate:
        return np.full(len(self._values), value, np.int64), lambda: as_poly(value)

    def _bounds(self, target: Atom) -> list[Premise]:
        column = self._column(as_poly(target))
        if column is None or target in self._known:
            return []
        least = min(min(column), 1)
        if least < 0:
            return []
        return [Premise(at_most(least, target), f"{target} >= {least}")]

    def _multiples(self) -> Iterator[Premise]:
        """Yield what sizes are multiples of, also others: of 0 there is 0 alone."""
        atoms = [b for b in self._bases if not self._steps(b)]
        for atom in atoms:
            column = self._column(as_poly(atom)) or ()
            if len(set(column)) >= ENOUGH and (common := gcd(*column)) > 1:
                multiple = equal(remainder(as_poly(atom), as_poly(common)), 0)
                yield Premise(multiple, f"{atom} is a multiple of {common}")
        whole = {a for a in atoms if str(a).endswith(".numel")}  # of all of its sizes
        for left, right in permutations(atoms, 2):
            a, b = self._column(as_poly(left)), self._column(as_poly(right))
            if left in whole or a is None or b is None or len(set(a)) < ENOUGH:
                continue
            pairs = list(zip(a, b, strict=True))
            if max(b) < 2 or min(b) < 0:
                continue
            if all(m % n == 0 if n else m == 0 for m, n in pairs):
                multiple = equal(remainder(as_poly(left), as_poly(right)), 0)
                if min(b) == 0:
                    none = all_of([equal(left, 0), equal(right, 0)])
                    multiple = any_of([none, multiple])
                yield Premise(multiple, f"{left} is a multiple of {right}")

    # Tensors.

    def _layouts(self, name: str) -> tuple[tuple[Layout, ...], list[Premise]]:
        """Return how an argument's elements lie, and what that takes for granted."""
        given = [launch.arguments[name] for launch in self._launches]
        tensors = [a for a in given if isinstance(a, TensorArgument)]
        rank = len(tensors[0].shape)
        dense = all(t.contiguous for t in tensors)
        premises: list[Premise] = []
        whole = symbol(f"{name}.numel")
        found: list[Layout] = []
        if dense:
            premises.append(Premise(TRUE, f"{name} is contiguous"))
        if all(len(t.shape) == rank for t in tensors) and rank:
            sizes, strides = [], []
            for dim in range(rank):
                atom = symbol(f"{name}.size({dim})")
                premises += [*self._related(atom, offer=True), *self._bounds(atom)]
                sizes.append(self._known.get(atom, as_poly(atom)))
            own = []
            for dim in range(rank):
                atom = symbol(f"{name}.stride({dim})")
                premises += [*self._related(atom, offer=True), *self._bounds(atom)]
                own.append(self._known.get(atom, as_poly(atom)))
                inner = _product(sizes[dim + 1 :])
                strides.append(inner if dense else own[dim])
            numel = _product(sizes)
            premises.append(Premise(equal(as_poly(whole), numel), ""))
            premises += self._counting(numel)
            span = numel
            if dense:
                found.append(Layout(tuple(sizes), tuple(strides), span, dense))
                # A dimension's stride is that of the sizes after it, or its size is 1
                # and it may be any: the elements are the same by either.
                mixed = product(*zip(strides, own, strict=True))
                found += [
                    Layout(tuple(sizes), each, span, dense=False)
                    for each in islice(dict.fromkeys(mixed), _MIXED)
                    if each != tuple(strides)
                ]
            else:
                steps = zip(sizes, strides, strict=True)
                span = sum(((n - 1) * s for n, s in steps), as_poly(1))
                premises += self._unit_steps(name, tensors, sizes, strides)
                distinct = all(t.distinct for t in tensors)
                found.append(
                    Layout(tuple(sizes), tuple(strides), span, dense, distinct)
                )
                if distinct:
                    each = equal(symbol(f"{name}.distinct"), 1)
                    text = f"no two elements of {name} share memory"
                    premises.append(Premise(each, text))
            for rows, step, premise in self._row_steps(name, tensors, sizes, own):
                counts = _product(sizes[:rows]), *sizes[rows:]
                apart = found[0].distinct
                for within in (strides, own):
                    both = counts, (step, *within[rows:])
                    found.append(Layout(*both, span, dense=False, distinct=apart))
                premises.append(premise)
            premises.append(Premise(at_most(span, MOST_ELEMENTS), ""))
            premises.append(Premise(at_most(numel, MOST_ELEMENTS), ""))
            premises += [
                Premise(at_most(n, MOST_ELEMENTS), "") for n in (*sizes, *strides, *own)
            ]
            for n, s in zip([*sizes, *sizes], [*strides, *own], strict=True):
                # Each step of one dimension alone stays within the span.
                premises.append(Premise(at_most((n - 1) * s, MOST_ELEMENTS), ""))
        if dense:
            more = self._related(whole, offer=True)
            premises += [*more, *self._bounds(whole)]
            flat = self._known.get(whole, as_poly(whole))
            premises.append(Premise(at_most(flat, MOST_ELEMENTS), ""))
            found.append(Layout((flat,), (as_poly(1),), flat, dense=True))
            for factors in _orders(flat):
                chain = [_product(factors[i + 1 :]) for i in range(len(factors))]
                found.append(Layout(tuple(factors), tuple(chain), flat, dense=True))
        after = symbol(f"{name}.after")
        if any(t.before or t.after > t.span for t in tensors):
            premises += self._related(after, offer=False)
            reach = self._known.get(after, as_poly(after))
            found.append(Layout((reach,), (as_poly(1),), reach, dense=False))
        return tuple(dict.fromkeys(found)), premises

    def _counting(self, numel: Poly) -> Iterator[Premise]:
        """Yield which integers are the number of a tensor's elements."""
        wanted, own = self._column(numel), set(atoms_in(numel))
        for base in self._bases if wanted and len(set(wanted)) >= ENOUGH else ():
            if base not in own and self._column(as_poly(base)) == wanted:
                text = f"{base} = {shown(numel)}"
                yield Premise(equal(as_poly(base), numel), text)

    def _unit_steps(
        self, name: str, tensors: Sequence[TensorArgument], sizes: Sequence[Poly],
        strides: list[Poly],
    ) -> Iterator[Premise]:  # fmt: skip
        """Put 1 for the last stride if it is 1 wherever it is stepped over."""
        dim, stride = len(strides) - 1, strides[-1]
        if stride.constant is None and all(
            t.shape[dim] <= 1 or t.strides[dim] == 1 for t in tensors if t.numel
        ):
            either = any_of([_none(sizes), at_most(sizes[dim], 1), equal(stride, 1)])
            text = f"{name}.stride({dim}) is 1 or {name}.size({dim}) <= 1"
            strides[dim] = as_poly(1)
            yield Premise(either, text)

    def _row_steps(
        self, name: str, tensors: Sequence[TensorArgument], sizes: Sequence[Poly],
        strides: Sequence[Poly],
    ) -> Iterator[tuple[int, Poly, Premise]]:  # fmt: skip
        """Yield the integers by which all rows of a tensor are apart.

        A row has an index in each of several outer dimensions. One of a single element
        may have any stride: so such an integer need not be that of any one dimension.

        Yields:
            How many dimensions count rows, the integer, and what that takes for
            granted.
        """
        first = self._launches[0].arguments
        integers = [n for n, a in first.items() if isinstance(a, IntArgument)]
        steps = dict.fromkeys(
            self._known.get(symbol(n), as_poly(symbol(n))) for n in integers
        )
        for step, rows in product(steps, range(1, len(sizes))):
            column = self._column(step)
            given = zip(tensors, column or (), strict=column is not None)
            seen = [
                (n, t.strides[d] == n * prod(t.shape[d + 1 : rows]))
                for t, n in given
                for d in (range(rows) if t.numel else ())
                if t.shape[d] > 1
            ]
            if len({n for n, _ in seen}) < ENOUGH or not all(ok for _, ok in seen):
                continue
            each = (
                any_of([at_most(sizes[d], 1), equal(strides[d], step * inner)])
                for d in range(rows)
                for inner in (_product(sizes[d + 1 : rows]),)
            )
            holds = any_of([_none(sizes), all_of(each)])
            text = f"rows of {name} are {shown(step)} apart where there are several"
            yield rows, step, Premise(holds, text)

    def _shared(self, tensors: Iterable[str]) -> frozenset[tuple[str, str]]:
        found = set()
        for launch in self._launches:
            storages: dict[int, list[str]] = {}
            for name in tensors:
                argument = launch.arguments[name]
                if isinstance(argument, TensorArgument):
                    storages.setdefault(argument.storage, []).append(name)
            for names in storages.values():
                found |= {(a, b) for a in names for b in names if a != b}
        return frozenset(found)

    # Constants.

    def _constant_relations(self) -> list[Premise]:
        """Return what the integers have to do with the constants of each launch."""
        made: list[Premise] = []

        def claim(holds: Cond, text: str) -> None:
            made.append(Premise(holds, text))

        numbers = [b for b in self._bases if not self._steps(b)]
        for constant in self._constants:
            values = self._column(as_poly(constant))
            assert values is not None
            most, fewest = max(values), min(values)
            flag = set(values) <= {0, 1}
            for number in numbers:
                column = self._column(as_poly(number))
                if column is None or len(set(column)) < ENOUGH:
                    continue
                c, n = as_poly(constant), as_poly(number)
                if flag:
                    made += self._flags(constant, n) if most > fewest else ()
                    continue
                pairs = list(zip(column, values, strict=True))
                if all(a <= b for a, b in pairs):
                    claim(at_most(n, c), f"{number} <= {constant}")
                elif most > fewest and all(a <= b for a, b in pairs if b < most):
                    capped = any_of([at_most(n, c), equal(c, most)])
                    claim(capped, f"{number} <= {constant} where that is below {most}")
                if most > fewest and all(2 * a > b for a, b in pairs if b > fewest):
                    tight = any_of([at_most(c + 1, n * 2), equal(c, fewest)])
                    text = f"{constant} < 2 * {number} where it is above {fewest}"
                    claim(tight, text)
                if all(b and a % b == 0 for a, b in pairs) and most > 1:
                    multiple = equal(remainder(n, c), 0)
                    claim(multiple, f"{number} is a multiple of {constant}")
        return made

    def _flags(self, flag: Atom, n: Poly) -> list[Premise]:
        """Return what a constant that is 0 or 1 says of an integer."""
        made, held = [], equal(as_poly(flag), 1)
        for c in map(as_poly, self._constants):
            if set(self._column(c) or ()) <= {0, 1}:
                continue
            for holds, words in (
                (equal(remainder(n, c), 0), "a multiple of"),
                (below(c, n), "above"),
                (at_most(n, c), "at most"),
            ):
                neither = all_of([negated(held), negated(holds)])
                both = any_of([all_of([held, holds]), neither])
                made.append(Premise(both, f"{flag}: {n} is {words} {c}"))
        return held_by(self._launches, made)


def held_by(launches: Sequence[Launch], premises: Iterable[Premise]) -> list[Premise]:
    """Return the premises that no launch breaks."""
    each = [(p, Relations((p,), {}, {}, frozenset())) for p in premises]
    return [p for p, alone in each if not any(map(alone.broken_by, launches))]


def _far(number: Atom, argument: Argument) -> Premise:
    small = at_most(number, SMALL)
    if isinstance(argument, IntArgument) and argument.constant:
        return Premise(small, f"{number} <= {SMALL:,}")
    return Premise(
        any_of([small, at_most(1 << 31, number)]),
        f"{number} is not within {NEAR:,} below 2^31",
    )


def _none(sizes: Iterable[Poly]) -> Cond:
    """Return that a tensor has no elements."""
    return any_of(at_most(size, 0) for size in sizes)


def _product(factors: Iterable[Poly]) -> Poly:
    return reduce(mul, factors, as_poly(1))


def _orders(flat: Poly) -> Iterator[list[Poly]]:
    """Yield the factors of a product in each order."""
    if len(flat.terms) != 1:
        return
    ((monomial, factor),) = flat.terms.items()
    if not 2 <= len(monomial) <= 4 or factor != 1:
        return
    for order in dict.fromkeys(permutations(monomial)):
        yield [as_poly(atom) for atom in order]


def shown(poly: Poly) -> str:
    """Return an expression as people write it."""
    atom = poly.single
    if atom is not None and atom.kind == "div":
        left, right = atom.parts
        upper = left - right + 1
        if len(upper.terms) <= 1 or upper.single is not None:
            return f"cdiv({shown(upper)}, {shown(right)})"
    if atom is not None and atom.kind in ("min", "max"):
        return f"{atom.kind}({', '.join(map(shown, atom.parts))})"
    return str(poly)


def products(bases: Sequence[Candidate]) -> Iterator[Candidate]:
    """Yield products of two to four; of many bases the first ones alone."""
    for count, most in ((2, 12), (3, 12), (4, 8)):
        for some in combinations_with_replacement(bases[:most], count):
            yield reduce(times, some)


def times(left: Candidate, right: Candidate) -> Candidate:
    """Return the product of two."""
    return left[0] * right[0], lambda: left[1]() * right[1]()


def cdiv_of(left: Candidate, right: Candidate) -> Candidate:
    """Return one divided by another, rounded up."""
    made = (left[0] + right[0] - 1) // right[0]
    return made, lambda: cdiv(left[1](), right[1]())


def least_of(left: Candidate, right: Candidate) -> Candidate:
    """Return the smaller of two."""
    return np.minimum(left[0], right[0]), lambda: least(left[1](), right[1]())


def plus(left: Candidate, step: int) -> Candidate:
    """Return one with a number added."""
    return left[0] + step, lambda: left[1]() + step


def pairs(left: Candidate, right: Candidate) -> Iterator[Candidate]:
    """Yield differences, sums and quotients of two."""
    a, b = left[0], right[0]
    yield a - b, lambda: left[1]() - right[1]()
    yield a + b, lambda: left[1]() + right[1]()
    yield a - b + 1, lambda: left[1]() - right[1]() + 1
    if (b > 0).all():
        yield a // b, lambda: quotient(left[1](), right[1]())
