"""z3 behind one question: does a condition follow from others, over integers?

z3 because it alone of the three solvers on PyPI answers these queries, see
tests/benchmarks/README.md; it is imported on first use.
"""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from functools import reduce
from operator import mul
from typing import Any, Final

from kfuzz.core.errors import BackendError
from kfuzz.features.prove.fitting import NEAR
from kfuzz.features.prove.ir.values import (
    CHOICE,
    DATA,
    GREATEST,
    ITERATION,
    LANE,
    LEAST,
    PROGRAM,
    QUOTIENT,
    REMAINDER,
    Atom,
    Cond,
    Data,
    Poly,
    Shape,
    Valuation,
    as_poly,
    grid,
    negated,
)

STEPS: Final = 6_000_000
"""The solver's steps in one query, about a second: counted, so that a busy machine
changes no answer."""
_TIMEOUT_MS: Final = 30_000
MEMORY_MB: Final = 1500
_NARROW: Final = 32


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
        elif known.bits == _NARROW and known.low is None:
            wider = [as_poly(atom) for atom in sorted(known.wide, key=str)]
            made = z3.Or(made, *(self.poly(p) >= 1 << 31 for p in wider))
            mentioned += wider
        return [made], mentioned
