"""What is proved of a kernel: goals for the solver, from its access graph.

In a layout that a goal holds in, an access is to elements of the tensor, strides
included. All goals are about numbers without a limit; `safe` proves the checks on which
they depend, without which nothing else is proved.
"""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import reduce
from itertools import combinations_with_replacement as pairs
from itertools import product
from operator import mul
from typing import Any, Final

from kfuzz.core.errors import BackendError
from kfuzz.features.prove.fitting import MOST_ELEMENTS, NEAR, Layout, Relations
from kfuzz.features.prove.ir.values import (
    ATOMIC,
    CHOICE,
    DATA,
    GREATEST,
    ITERATION,
    LANE,
    LEAST,
    LOAD,
    NARROW_BITS,
    PROGRAM,
    QUOTIENT,
    REMAINDER,
    STORE,
    TRUE,
    Access,
    Atom,
    Check,
    Checks,
    Cond,
    Data,
    Graph,
    Monomial,
    Poly,
    Rewriter,
    Shape,
    Valuation,
    all_of,
    any_of,
    as_poly,
    at_most,
    atoms_in,
    below,
    equal,
    grid,
    moved,
    negated,
    program,
    quotient,
    recomposed,
    remainder,
    symbol,
)

# z3 behind one question: does a condition follow from others, over integers?
#
# z3 because it alone of the three solvers on PyPI answers these queries, see
# tests/benchmarks/README.md; it is imported on first use.

STEPS: Final = 6_000_000
"""The solver's steps in one query, about a second: counted, so that a busy machine
changes no answer."""
_TIMEOUT_MS: Final = 30_000
MEMORY_MB: Final = 1500


class Reply(StrEnum):
    """What the solver says to a goal."""

    PROVED = "proved"
    REFUTED = "refuted"
    UNKNOWN = "unknown"


def required() -> Any:
    """Return the solver's module.

    Raises:
        BackendError: if it is not installed.
    """
    try:
        import z3  # type: ignore[import-untyped]
    except ImportError:
        raise BackendError(
            "kfuzz prove needs the solver z3, which is not installed",
            fix="pip install 'kfuzz[prove]'",
        ) from None
    return z3


def installed() -> bool:
    """Whether there is a solver."""
    from importlib.util import find_spec

    return find_spec("z3") is not None


class Solver:
    """Answers queries about one kernel.

    Args:
        data: what is known of its unknown integers.
        steps: of each query.
        spent: counts "queries", and "seconds" of the processor.
    """

    def __init__(
        self, data: Mapping[int, Data], *, steps: int = STEPS,
        spent: Counter[str] | None = None,
    ) -> None:  # fmt: skip
        self._z3 = required()
        self._terms = _Terms(self._z3, data)
        self._limit = steps
        self._spent: Any = Counter() if spent is None else spent

    def prove(
        self, goal: Cond, given: Iterable[Cond], *, shapes: tuple[Shape, ...] = ((),)
    ) -> Reply:
        """Return whether a goal follows.

        Args:
            goal: what is to follow.
            given: what is known.
            shapes: of the blocks whose lanes occur, of each program; 0 where there is
                no limit.
        """
        if goal.kind == "true":
            return Reply.PROVED
        z3, terms = self._z3, self._terms
        began = time.process_time()
        solver = z3.SimpleSolver()
        solver.set("rlimit", self._limit)
        solver.set("timeout", _TIMEOUT_MS)
        solver.set("max_memory", MEMORY_MB)
        conditions = [*given, negated(goal)]
        for condition in conditions:
            solver.add(terms.cond(condition))
        used = terms.used(conditions)
        for atom in used:
            solver.add(*terms.axioms(atom))
            if atom.kind == LANE:
                which = atom.parts[1] if len(atom.parts) > 1 else 0
                shape = shapes[which] if which < len(shapes) else ()
                if atom.parts[0] < len(shape) and shape[atom.parts[0]]:
                    solver.add(terms.atom(atom) < shape[atom.parts[0]])
        try:
            result = solver.check()
        except z3.Z3Exception:
            result = z3.unknown
        self._spent["queries"] += 1
        self._spent["seconds"] += time.process_time() - began
        if result == z3.unsat:
            return Reply.PROVED
        if result == z3.sat:
            return Reply.REFUTED
        return Reply.UNKNOWN


class _Terms(Valuation):
    """Conditions as the solver's, with what is true of their atoms; each made once."""

    def __init__(self, z3: Any, data: Mapping[int, Data]) -> None:
        super().__init__({})
        self._z3, self._data = z3, data
        self._made: dict[Poly | Cond, Any] = {}
        self._axioms: dict[Atom, list[Any]] = {}
        self._needs: dict[Atom, frozenset[Atom]] = {}
        self._direct: dict[Any, frozenset[Atom]] = {}

    def poly(self, poly: Poly) -> Any:
        """Return a polynomial as a term."""
        made = self._made.get(poly)
        if made is None:
            z3, parts = self._z3, []
            for monomial, factor in poly.terms.items():
                terms = [reduce(mul, map(self.atom, monomial))] if monomial else []
                if factor != 1 or not terms:
                    terms.insert(0, z3.IntVal(factor))
                parts.append(reduce(mul, terms))
            made = z3.Sum(parts) if len(parts) > 1 else (*parts, z3.IntVal(0))[0]
            self._made[poly] = made
        return made

    def cond(self, condition: Cond) -> Any:
        """Return a condition as a term."""
        made = self._made.get(condition)
        if made is None:
            made = super().cond(condition)
            made = self._z3.BoolVal(made) if isinstance(made, bool) else made
            self._made[condition] = made
        return made

    def _joined(self, kind: str, held: Iterator[Any]) -> Any:
        join = {"and": self._z3.And, "or": self._z3.Or, "not": self._z3.Not}[kind]
        return join(*held)

    def _doubted(self, condition: Cond) -> Any:
        return self._z3.Bool(f"b{len(self._made)}")

    def _computed(self, atom: Atom) -> Any:
        return self._z3.Int(f"{atom.kind[0]}{atom.number}")

    def used(self, conditions: Iterable[Cond]) -> list[Atom]:
        """Return the atoms of conditions, and those that their axioms mention."""
        found: dict[Atom, None] = {}
        pending = [a for c in conditions for a in self._in(c)]
        while pending:
            atom = pending.pop()
            if atom not in found:
                found[atom] = None
                self.axioms(atom)
                pending += self._needs[atom]
        return list(found)

    def _in(self, part: Any) -> frozenset[Atom]:
        """Return the atoms of a condition or polynomial, not those inside others."""
        made = self._direct.get(part)
        if made is None:
            if isinstance(part, Poly):
                made = frozenset(a for m in part.terms for a in m)
            elif part.kind == "data":
                made = frozenset()
            else:
                made = frozenset().union(*map(self._in, part.parts))
            self._direct[part] = made
        return made

    def axioms(self, atom: Atom) -> list[Any]:
        """Return what is true of an atom."""
        made = self._axioms.get(atom)
        if made is None:
            made, parts = self._true_of(atom)
            self._axioms[atom] = made
            self._needs[atom] = frozenset().union(*map(self._in, parts))
        return made

    def _true_of(self, atom: Atom) -> tuple[list[Any], list[Any]]:
        """Return axioms of an atom, and what these mention."""
        z3, me = self._z3, self.atom(atom)
        match atom.kind:
            case kind if kind == PROGRAM:
                count = as_poly(grid(atom.parts[0]))
                return [me >= 0, me < self.poly(count)], [count]
            case kind if kind in (LANE, ITERATION):
                return [me >= 0], []
            case kind if kind == DATA:
                return self._ranges(me, self._data[atom.parts[0]])
            case kind if kind == CHOICE:
                condition, then, other = atom.parts
                chosen = z3.If(self.cond(condition), self.poly(then), self.poly(other))
                return [me == chosen], [condition, then, other]
            case kind if kind in (LEAST, GREATEST):
                a, b = (self.poly(part) for part in atom.parts)
                first = a <= b if kind == LEAST else a >= b
                return [me == z3.If(first, a, b)], list(atom.parts)
            case kind if kind == QUOTIENT:
                return self._division(atom, me)
            case kind if kind == REMAINDER:
                left, right = atom.parts
                rest = left - as_poly(Atom(QUOTIENT, left, right)) * right
                return [me == self.poly(rest)], [rest]
        return [], []

    def _division(self, atom: Atom, me: Any) -> tuple[list[Any], list[Any]]:
        z3 = self._z3
        left, right = atom.parts
        a, b, product = self.poly(left), self.poly(right), as_poly(atom) * right
        times = self.poly(product)
        whole = z3.And(times <= a, a < times + b, me >= 0, me <= a)
        negative = z3.And(times >= a, a > times - b, me <= 0)
        if (right.constant or 0) > 0:
            made = [z3.If(a >= 0, whole, negative)]
        else:
            made = [z3.Implies(b > 0, z3.If(a >= 0, whole, negative))]
        return made, [left, right, product]

    def _ranges(self, me: Any, known: Data) -> tuple[list[Any], list[Any]]:
        z3 = self._z3
        low, high = -(1 << known.bits - 1), (1 << known.bits - 1) - 1
        made = z3.And(
            me >= (low if known.low is None else self.poly(known.low)),
            me <= (high if known.high is None else self.poly(known.high)),
        )
        mentioned = [p for p in (known.low, known.high, known.other) if p is not None]
        if known.low is not None:  # see `NEAR`
            made = z3.And(made, z3.Or(me <= (1 << 31) - NEAR, me >= 1 << 31))
        if known.other is not None:
            made = z3.Or(made, me == self.poly(known.other))
            made = z3.And(made, me >= low, me <= high)
        elif known.bits == NARROW_BITS and known.low is None:
            wider = [as_poly(atom) for atom in sorted(known.wide, key=str)]
            made = z3.Or(made, *(self.poly(p) >= 1 << 31 for p in wider))
            mentioned += wider
        return [made], mentioned


# Which program, iteration and lane stores a given element: a witness for each one.
#
# An index is a sum of places, each with its step: a program's number times the block,
# an iteration's times another, a lane. So the place with the largest step is the index
# divided by it, and the others share what is left, as digits of a number do. That this
# finds a program that exists, with its mask set, is then a goal without quantifiers.


def element_of(layout: Layout) -> tuple[Poly, ...]:
    """Return the indices of any one element in a layout, as symbols."""
    return tuple(as_poly(symbol(f"element.{d}")) for d in range(len(layout.sizes)))


def witness(
    access: Access, layout: Layout, indices: tuple[Poly, ...], fix: Rewriter
) -> Cond | None:
    """Return what has to hold where an element is stored: by the program chosen for it.

    Returns:
        None where no witness is found by this method.
    """
    indices = tuple(recomposed(fix.poly(index)) for index in indices)
    elements = element_of(layout)
    chosen: dict[Atom, Poly] = {}
    for index, element in zip(indices, elements, strict=True):
        if not _digits(index, element, chosen):
            return None
    # The program whose quotient and remainder were chosen.
    divided: dict[tuple[Poly, Poly], Poly] = {}
    while True:
        pending = [
            a
            for a in chosen
            if a.kind in (QUOTIENT, REMAINDER) and a.parts not in divided
        ]
        if not pending:
            break
        # What is made of others was made after them.
        last = max(pending, key=lambda a: a.number)
        made = _composed(last, chosen)
        if made is None:
            return None
        divided[last.parts] = made
    free = {
        atom
        for part in (*indices, access.path, access.mask)
        for atom in atoms_in(fix.any(part))
        if atom.kind in (PROGRAM, LANE, ITERATION) and atom not in chosen
    }
    for atom in free:
        chosen[atom] = as_poly(0)
    put = Rewriter(lambda atom: chosen.get(atom))
    goals = [
        equal(put.poly(index), element)
        for index, element in zip(indices, elements, strict=True)
    ]
    for (left, right), dividend in divided.items():
        goals.append(at_most(1, fix.poly(right)))
        goals.append(equal(put.poly(fix.poly(left)), dividend))
    for atom, place in chosen.items():
        goals.append(at_most(0, place))
        if atom.kind == REMAINDER:
            goals.append(below(place, fix.poly(atom.parts[1])))
        if atom.kind == PROGRAM:
            goals.append(below(place, fix.poly(as_poly(grid(atom.parts[0])))))
        elif atom.kind == LANE:
            goals.append(below(place, access.shape[atom.parts[0]]))
    goals += [put.cond(fix.cond(access.path)), put.cond(fix.cond(access.mask))]
    return all_of(goals)


def _digits(index: Poly, element: Poly, chosen: dict[Atom, Poly]) -> bool:
    """Choose the places of one index; return whether that could be done."""
    rest = element
    places: list[tuple[Poly, Atom]] = []
    for monomial, factor in index.terms.items():
        moving = [atom for atom in monomial if _moves(atom)]
        steps = [atom for atom in monomial if not _moves(atom)]
        step = as_poly(factor)
        for atom in steps:
            step = step * as_poly(atom)
        if not moving:
            rest = rest - step
        elif len(moving) == 1:
            places.append((step, moving[0]))
        else:
            return False
    if len({atom for _, atom in places}) != len(places):
        return False
    places.sort(key=_size, reverse=True)
    for step, atom in places:
        if atom in chosen:
            rest = rest - step * chosen[atom]
            continue
        if step.constant is not None and step.constant <= 0:
            return False
        chosen[atom] = quotient(rest, step)
        rest = remainder(rest, step)
    return True


def _size(place: tuple[Poly, Atom]) -> tuple[int, int, bool]:
    step, atom = place
    return *_rank(step), atom.kind != LANE


def _moves(atom: Atom) -> bool:
    """Whether an atom differs between programs, iterations or lanes."""
    return any(a.kind in (PROGRAM, LANE, ITERATION) for a in atoms_in(atom))


def _composed(atom: Atom, chosen: dict[Atom, Poly]) -> Poly | None:
    """Choose what a quotient and a remainder that were chosen divide, and return it.

    That the dividend has them follows where the remainder is below the divisor; that
    its places make it up is for the caller to show. None where they cannot be chosen.
    """
    left, right = atom.parts
    whole, rest = Atom(QUOTIENT, left, right), Atom(REMAINDER, left, right)
    upper = chosen.setdefault(whole, as_poly(0))
    lower = chosen.setdefault(rest, as_poly(0))
    dividend = upper * right + lower
    return dividend if _digits(left, dividend, chosen) else None


# Offsets as indices: the lemma of row-major chains.
#
# An offset q * stride + r with 0 <= q < size, for each dimension, is an element of a
# tensor of these sizes and strides, and two such offsets are equal only where all
# indices are, if no two elements share memory. So what the solver is asked of is single
# indices, which are sums, and not offsets, which are products.

_STEPS = 64


def indices_of(offset: Poly, layout: Layout) -> tuple[Poly, ...] | None:
    """Return the index along each dimension whose element an offset is.

    The indices times the strides give the offset, whatever they are; whether they are
    within the sizes is another question. None where no such are found.
    """
    rest, made = offset, [as_poly(0)] * len(layout.strides)
    order = sorted(
        range(len(layout.strides)), key=lambda d: _rank(layout.strides[d]), reverse=True
    )
    last = order[-1] if order else None
    for dim in order:
        stride = layout.strides[dim]
        if stride == as_poly(1) and dim == last:
            made[dim], rest = made[dim] + rest, as_poly(0)
            continue
        if not stride.terms:
            continue
        lead = max(stride.terms, key=lambda m: (len(m), stride.terms[m]))
        factor = stride.terms[lead]
        for _ in range(_STEPS):
            part = _divisible(rest, lead, factor)
            if part is None:
                break
            made[dim] = made[dim] + part
            rest = rest - part * stride
    return None if rest.terms else tuple(made)


def _rank(stride: Poly) -> tuple[int, int]:
    degree = max((len(m) for m in stride.terms), default=0)
    return degree, max(stride.terms.values(), default=0)


def _divisible(rest: Poly, lead: Monomial, factor: int) -> Poly | None:
    """Return the terms that a monomial divides, divided by it."""
    found: dict[Monomial, int] = {}
    for monomial, amount in rest.terms.items():
        left = list(monomial)
        try:
            for atom in lead:
                left.remove(atom)
        except ValueError:
            continue
        whole = amount // factor if amount % factor == 0 else 0
        if not whole and not lead and abs(amount) > factor:
            whole = amount // factor
        if whole:
            found[tuple(left)] = whole
    return Poly(found) if found else None


def inside(indices: tuple[Poly, ...], layout: Layout) -> Cond:
    """Return that all indices are within the sizes."""
    return all_of(
        part
        for index, size in zip(indices, layout.sizes, strict=True)
        for part in (at_most(0, index), below(index, size))
    )


def products(indices: tuple[Poly, ...], layout: Layout) -> Iterator[Cond]:
    """Yield what follows of the products of indices that are within the sizes.

    An index times its stride lies within the span, and so do sums of these. In a dense
    tensor so does an index times the sizes of some of the dimensions after its own,
    which are parts of that.
    """
    offset = as_poly(0)
    for dim, index in enumerate(indices):
        steps = [layout.strides[dim]]
        if layout.dense:
            step = as_poly(1)
            for size in layout.sizes[dim + 1 :]:
                steps.append(step)
                step = step * size
        for step in dict.fromkeys(steps):
            yield at_most(0, index * step)
            yield below(index * step, layout.span)
            yield at_most(index * step, MOST_ELEMENTS)
        offset = offset + index * layout.strides[dim]
    yield below(offset, layout.span)


class Property(StrEnum):
    """What is proved, by the name that reports give it."""

    LOADS = "loads in bounds"
    STORES = "stores in bounds"
    APART = "stores of programs apart"
    UNSEEN = "loads apart from other programs' stores"
    COVERED = "results stored whole"
    INT32 = "no 32-bit overflow"


@dataclass(frozen=True)
class Verdict:
    """What became of one property.

    Attributes:
        reply: proved, refuted or unknown.
        line: at which it is not proved.
        why: why not, "" where it is.
    """

    reply: Reply
    line: int = 0
    why: str = ""


PROVED: Final = Verdict(Reply.PROVED)
Numbered = tuple[int, Access]


class Prover:
    """Proves the properties of one kernel with the same constants.

    Args:
        graph: its accesses.
        relations: the premises.
        solver: answers.
        fixed: values of symbols, where sizes are concrete.
    """

    def __init__(
        self, graph: Graph, relations: Relations, solver: Solver, *,
        fixed: Mapping[Atom, int],
    ) -> None:  # fmt: skip
        self._graph, self._relations, self._solver = graph, relations, solver

        def put(atom: Atom) -> Poly | None:
            if atom in fixed:
                return as_poly(fixed[atom])
            known = relations.known.get(atom)
            return None if known is None else fix.poly(known)

        fix = Rewriter(put)
        given = [c for p in relations.premises if (c := fix.cond(p.holds)) != TRUE]
        alone = {
            axis for axis in range(3)
            if fixed.get(grid(axis)) == 1 or equal(grid(axis), 1) in given
        }  # fmt: skip

        def placed(atom: Atom) -> Poly | None:
            if atom.kind == PROGRAM and atom.parts[0] in alone:
                return as_poly(0)
            return put(atom)

        self._fix = Rewriter(placed)
        # What is known of programs and of loaded numbers names these.
        named = [grid(axis) for axis in range(3)]
        named += [
            atom
            for known in graph.data.values()
            for atom in atoms_in((known.low, known.high))
        ]
        for atom in dict.fromkeys(named):
            made = put(atom)
            if made is not None:
                given.append(equal(as_poly(atom), made))
        self._given = frozenset(given)
        linear = [c for c in given if _is_linear(c)]
        single = [c for c in linear if len(set(atoms_in(c))) == 1]
        stages = (single, linear, given)
        self._stages = [s for i, s in enumerate(stages) if s not in stages[:i]]
        self._facts: dict[int, list[Cond]] = {}
        self._checked: dict[int, Verdict] = {}
        self._insides: dict[int, Verdict] = {}
        self._fitting: dict[int, tuple[Layout, tuple[Poly, ...]] | None] = {}

    def verdict(self, wanted: Property) -> Verdict | None:
        """Return what becomes of a property; None where it says nothing.

        For results that are stored whole see `covered`.
        """
        match wanted:
            case Property.LOADS:
                return self._bounds(LOAD)
            case Property.STORES:
                return self._bounds(STORE, ATOMIC)
            case Property.APART:
                stores = list(self._accesses(STORE, ATOMIC))
                if all(access.kind == ATOMIC for _, access in stores):
                    return None
                why = "stores of two programs may be to one element"
                return self._apart(stores, pairs(stores, 2), why)
            case Property.UNSEEN:
                stores = list(self._accesses(STORE, ATOMIC))
                loads = list(self._accesses(LOAD))
                if not loads:
                    return None
                why = "a program may load what another one stores"
                return self._apart(stores, product(stores, loads), why)
        return self._overflow()

    # Checks.

    def _safe(self, needs: Checks, guard: Cond | None = None) -> Verdict:
        """Return whether numbers are what their formulas say.

        Args:
            needs: the checks that they depend on.
            guard: what holds where they matter; their own way there by default.
        """
        for number in sorted(self._closure(needs)):
            if guard is None or max(number, -1 - number) in self._checked:
                made = self._check(number)
                if guard is None or made.reply is Reply.PROVED:
                    if made.reply is not Reply.PROVED:
                        return made
                    continue
            made = self._check_under(number, guard)
            if made.reply is not Reply.PROVED:
                return made
        return PROVED

    def _closure(self, needs: Iterable[int]) -> set[int]:
        found: set[int] = set()
        pending = list(needs)
        while pending:
            number = pending.pop()
            if number not in found:
                found.add(number)
                needs = self._numbered(number).needs
                pending += needs if number >= 0 else moved(needs)
        return found

    def _numbered(self, number: int) -> Check:
        """Return a check; of those in other lanes see `moved`."""
        return self._graph.checks[max(number, -1 - number)]

    def _check(self, number: int) -> Verdict:
        number = max(number, -1 - number)
        if number not in self._checked:
            self._checked[number] = self._check_under(number, TRUE)
        return self._checked[number]

    def _check_under(self, number: int, guard: Cond) -> Verdict:
        check = self._numbered(number)
        if number < 0:
            guard = _elsewhere.cond(guard)
        # A guard has lanes where what is checked has but one.
        shape = tuple(size if size > 1 else 0 for size in check.shape)
        reply = self._ask(check.goal, [check.path, guard], shape)
        if reply is Reply.PROVED:
            return PROVED
        why = (
            f"a {check.what} may be negative"
            if not check.bits
            else f"a {check.what} may leave the range of {check.bits} bits"
        )
        return Verdict(reply, check.line, why)

    def _ask(
        self, goal: Cond, given: Iterable[Cond], *shapes: tuple[int, ...]
    ) -> Reply:
        own, wanted = [self._fix.cond(c) for c in given], self._fix.cond(goal)
        if wanted in self._given:
            return Reply.PROVED
        # What is not needed costs time, products most of all.
        for premises in self._stages:
            reply = self._solver.prove(wanted, [*premises, *own], shapes=shapes)
            if reply is Reply.PROVED:
                break
        return reply

    # Properties.

    def _accesses(self, *kinds: str) -> Iterator[tuple[int, Access]]:
        return (
            (number, access)
            for number, access in enumerate(self._graph.accesses)
            if access.kind in kinds
        )

    def _bounds(self, *kinds: str) -> Verdict | None:
        found = list(self._accesses(*kinds))
        for number, access in found:
            made = self._access(number, access)
            if made.reply is not Reply.PROVED:
                return made
        return PROVED if found else None

    def _access(self, number: int, access: Access) -> Verdict:
        """Return whether an access stays within its tensor."""
        layouts = self._relations.layouts.get(access.base, ())
        if not layouts:
            why = access.why or f"the address of a {access.kind} is not understood"
            return Verdict(Reply.UNKNOWN, access.line, why)
        if number not in self._insides:
            self._insides[number] = self._inside(number, access, layouts)
        made = self._insides[number]
        if made.reply is not Reply.PROVED:
            return made
        given = [access.path, access.mask]
        safe = self._safe(access.guards)
        if safe.reply is Reply.PROVED:
            known = all_of([*given, *self._facts.get(number, ())])
            safe = self._safe(access.checks - access.guards, known)
        return safe

    def _inside(
        self, number: int, access: Access, layouts: Sequence[Layout]
    ) -> Verdict:
        """Return whether an access's formula stays within its tensor."""
        given = [access.path, access.mask]
        offset = self._fix.poly(access.offset)
        for layout in map(self._fixed, layouts):
            indices = indices_of(offset, layout)
            if indices is None:
                continue
            reply = self._ask(inside(indices, layout), given, access.shape)
            if reply is Reply.PROVED:
                self._fitting[number] = layout, indices
                self._facts[number] = list(products(indices, layout))
                return PROVED
        # A load may touch what lies between elements too; what leaves the span of them
        # is no element, whatever the indices are taken to be.
        span = self._fixed(layouts[0]).span
        whole = all_of([at_most(0, offset), below(offset, span)])
        reply = self._ask(whole, given, access.shape)
        if reply is Reply.PROVED:
            if access.kind == LOAD:
                self._facts[number] = [
                    at_most(0, offset),
                    at_most(offset, MOST_ELEMENTS),
                ]
                return PROVED
            reply = Reply.UNKNOWN
        why = f"a {access.kind} may leave {access.base}"
        return Verdict(reply, access.line, why)

    def _fixed(self, layout: Layout) -> Layout:
        poly = self._fix.poly
        return replace(
            layout,
            sizes=tuple(map(poly, layout.sizes)),
            strides=tuple(map(poly, layout.strides)),
            span=poly(layout.span),
        )

    def _apart(
        self, stores: Sequence[Numbered], both: Iterable[tuple[Numbered, Numbered]],
        why: str,
    ) -> Verdict:  # fmt: skip
        """Return whether no two accesses of different programs meet.

        Args:
            stores: all of them: where they may be elsewhere nothing is known.
            both: the pairs.
            why: what is to be said where they may meet.
        """
        for number, access in stores:
            safe = self._access(number, access)
            if safe.reply is not Reply.PROVED:
                return replace(safe, reply=Reply.UNKNOWN)
        layouts, shared = self._relations.layouts, self._relations.shared
        for (number, access), (other, second) in both:
            if access.kind == second.kind == ATOMIC:
                continue
            known = access.base != second.base and layouts.get(second.base)
            if known and (access.base, second.base) not in shared:
                continue
            safe = self._access(other, second)
            if safe.reply is not Reply.PROVED:
                return replace(safe, reply=Reply.UNKNOWN)
            reply = self._pair(number, access, other, second)
            if reply is not Reply.PROVED:
                return Verdict(reply, second.line, why)
        return PROVED

    def _pair(self, number: int, one: Access, other: int, two: Access) -> Reply:
        """Return whether accesses of different programs are to different elements."""
        first, second = self._fitting.get(number), self._fitting.get(other)
        same = equal(one.offset, _second.poly(two.offset))
        at_one = one.base == two.base or (one.base, two.base) in self._relations.same
        alike = first and second and at_one and first[0] == second[0]
        if first and second and alike and first[0].distinct:
            same = all_of(
                equal(a, _second.poly(b))
                for a, b in zip(first[1], second[1], strict=True)
            )
        elif not at_one:
            return Reply.UNKNOWN  # how they lie in one storage is not known
        apart = all_of(
            equal(as_poly(program(axis)), _second.poly(as_poly(program(axis))))
            for axis in range(3)
        )
        given = [
            one.path, one.mask, _second.cond(two.path), _second.cond(two.mask), same,
        ]  # fmt: skip
        return self._ask(apart, given, one.shape, two.shape)

    def covered(self, name: str) -> Verdict:
        """Return whether every element of an argument is stored."""
        stores = [(n, a) for n, a in self._accesses(STORE) if a.base == name]
        line = stores[-1][1].line if stores else 0
        why = f"{name} may have elements that no program stores"
        worst = Verdict(Reply.UNKNOWN, line, why)
        # By all stores together: each element by one of them.
        ways: dict[Layout, list[Cond]] = {}
        for number, access in stores:
            if self._access(number, access).reply is not Reply.PROVED:
                continue
            for layout, indices in self._enumerations(number, access):
                stored = witness(access, layout, indices, self._fix)
                if stored is not None:
                    ways.setdefault(layout, []).append(stored)
        for layout, stored_by in ways.items():
            given = [inside(element_of(layout), layout)]
            if self._ask(any_of(stored_by), given, ()) is Reply.PROVED:
                return PROVED
        return worst

    def _enumerations(
        self, number: int, access: Access
    ) -> Iterator[tuple[Layout, tuple[Poly, ...]]]:
        """Yield layouts with an access's indices in them: each counts all elements."""
        first = self._fitting.get(number)
        if first is not None:
            yield first
        offset = recomposed(self._fix.poly(access.offset))
        for layout in map(self._fixed, self._relations.layouts.get(access.base, ())):
            indices = indices_of(offset, layout)
            if indices is None or (layout, indices) == first:
                continue
            # An index that is one number is that of all elements of a single one alone.
            pairs = zip(indices, layout.sizes, strict=True)
            if all(i.constant is None or n.constant == 1 for i, n in pairs):
                yield layout, indices

    def _overflow(self) -> Verdict | None:
        for access in self._graph.accesses:
            given = all_of([access.path, access.mask])
            guards = self._closure(access.guards)
            for number in sorted(guards | self._closure(access.checks)):
                if self._numbered(number).bits != NARROW_BITS:
                    continue
                if number in guards:
                    made = self._check(number)
                else:
                    made = self._check_under(number, given)
                if made.reply is not Reply.PROVED:
                    return made
        return PROVED if self._graph.accesses else None


def _is_linear(condition: Cond) -> bool:
    """Whether no product of two atoms occurs outside quotients and choices."""
    if condition.kind in ("le", "eq"):
        return all(len(monomial) < 2 for monomial in condition.parts[0].terms)
    return all(_is_linear(part) for part in condition.parts if isinstance(part, Cond))


def _other(atom: Atom) -> Poly | None:
    if atom.kind in (PROGRAM, LANE, ITERATION) and len(atom.parts) == 1:
        return as_poly(Atom(atom.kind, atom.parts[0], 1))
    return None


def _other_lane(atom: Atom) -> Poly | None:
    return _other(atom) if atom.kind == LANE else None


_second: Final = Rewriter(_other)
_elsewhere: Final = Rewriter(_other_lane)
