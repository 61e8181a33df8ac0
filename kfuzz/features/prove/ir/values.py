"""What symbolic evaluation knows: values, checks on them, accesses, and the graph."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from kfuzz.features.prove.ir.graph import Evaluator
    from kfuzz.features.prove.ir.ttir import Operation


# Integers and conditions as a kernel computes them: polynomials over atoms.
#
# All integers are unbounded here. That a result of 32 bits fits is proved apart, and
# nothing is proved of what depends on one for which that fails.
#
# An atom is a symbol, the number of a program, the place of an element in its block,
# the number of a loop's iteration, what a load gave, or an operation that is no
# polynomial: a quotient or remainder (truncated, as in Triton's IR), a minimum, a
# maximum, a choice.

Monomial = tuple["Atom", ...]

SYMBOL: Final = "symbol"
PROGRAM: Final = "program"
LANE: Final = "lane"
ITERATION: Final = "iteration"
DATA: Final = "data"
QUOTIENT: Final = "div"
REMAINDER: Final = "rem"
LEAST: Final = "min"
GREATEST: Final = "max"
CHOICE: Final = "ite"


class Atom:
    """What a polynomial is over; equal ones are one object.

    Attributes:
        kind: one of the kinds above.
        parts: what it consists of: names, numbers, polynomials, conditions.
        number: its place in the order of creation, by which monomials are sorted.
    """

    __slots__ = ("kind", "number", "parts")
    _known: Final[dict[tuple[Any, ...], "Atom"]] = {}

    kind: str
    parts: tuple[Any, ...]
    number: int

    def __new__(cls, kind: str, *parts: Any) -> "Atom":
        """Return the one atom of a kind and parts."""
        key = (kind, *parts)
        made = cls._known.get(key)
        if made is None:
            made = super().__new__(cls)
            made.kind, made.parts, made.number = kind, parts, len(cls._known)
            cls._known[key] = made
        return made

    def __reduce__(self) -> tuple[type["Atom"], tuple[Any, ...]]:
        """Have it made anew in another process."""
        return Atom, (self.kind, *self.parts)

    def __repr__(self) -> str:
        """Return it as a formula."""
        if self.kind in (SYMBOL, PROGRAM, LANE, ITERATION):
            return f"{self.parts[0]}" if self.kind == SYMBOL else _numbered(self)
        return f"{self.kind}({', '.join(map(str, self.parts))})"


def _numbered(atom: Atom) -> str:
    words = {PROGRAM: "program_", LANE: "lane_", ITERATION: "iteration_"}
    return words[atom.kind] + "_".join(map(str, atom.parts))


class Poly:
    """A polynomial over atoms with integer coefficients.

    Attributes:
        terms: coefficients by monomial, none of them 0.
    """

    __slots__ = ("__dict__", "terms")

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        self.terms: dict[Monomial, int] = {m: c for m, c in terms.items() if c}

    def __reduce__(self) -> tuple[type["Poly"], tuple[dict[Monomial, int]]]:
        """Have it made anew in another process."""
        return Poly, (self.terms,)

    @cached_property
    def key(self) -> frozenset[tuple[Monomial, int]]:
        """What equal polynomials have in common."""
        return frozenset(self.terms.items())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Poly) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(self.key)

    def __add__(self, other: "Poly | int") -> "Poly":
        made = dict(self.terms)
        for monomial, factor in as_poly(other).terms.items():
            made[monomial] = made.get(monomial, 0) + factor
        return Poly(made)

    def __neg__(self) -> "Poly":
        return Poly({m: -c for m, c in self.terms.items()})

    def __sub__(self, other: "Poly | int") -> "Poly":
        return self + -as_poly(other)

    def __mul__(self, other: "Poly | int") -> "Poly":
        made: dict[Monomial, int] = {}
        others = as_poly(other).terms.items()
        for left, a in self.terms.items():
            for right, b in others:
                both = tuple(sorted((*left, *right), key=lambda atom: atom.number))
                made[both] = made.get(both, 0) + a * b
        return Poly(made)

    @property
    def constant(self) -> int | None:
        """Its value where it depends on nothing, else None."""
        if not self.terms:
            return 0
        if len(self.terms) == 1 and () in self.terms:
            return self.terms[()]
        return None

    @property
    def single(self) -> Atom | None:
        """The atom that it is, None where it is more."""
        if len(self.terms) == 1:
            ((monomial, factor),) = self.terms.items()
            if factor == 1 and len(monomial) == 1:
                return monomial[0]
        return None

    def __repr__(self) -> str:
        """Return it as a formula."""
        if not self.terms:
            return "0"
        made = []
        for monomial, factor in self.terms.items():
            words = [str(a) for a in monomial]
            if factor != 1 or not words:
                words.insert(0, str(factor))
            made.append("*".join(words))
        return " + ".join(made).replace("+ -", "- ")


def as_poly(value: "Poly | Atom | int") -> Poly:
    """Return a number or an atom as a polynomial."""
    if isinstance(value, Poly):
        return value
    if isinstance(value, Atom):
        return Poly({(value,): 1})
    return Poly({(): int(value)})


class Cond:
    """A condition: a comparison with 0, or several conditions joined.

    Attributes:
        kind: "true", "false", "le" (at most 0), "eq" (equals 0), "and", "or", "not",
            or "data" (unknown).
        parts: what it consists of.
    """

    __slots__ = ("__dict__", "kind", "parts")

    def __init__(self, kind: str, *parts: Any) -> None:
        self.kind, self.parts = kind, parts

    def __reduce__(self) -> tuple[type["Cond"], tuple[Any, ...]]:
        """Have it made anew in another process."""
        return Cond, (self.kind, *self.parts)

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """What equal conditions have in common."""
        return (self.kind, *self.parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cond) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        """Return it as a formula."""
        if self.kind in ("le", "eq"):
            return f"{self.parts[0]} {'<=' if self.kind == 'le' else '=='} 0"
        return f"{self.kind}({', '.join(map(str, self.parts))})"


TRUE: Final = Cond("true")
FALSE: Final = Cond("false")


def at_most(left: Poly | Atom | int, right: Poly | Atom | int) -> Cond:
    """Return left <= right."""
    gap = as_poly(left) - as_poly(right)
    if (value := gap.constant) is not None:
        return TRUE if value <= 0 else FALSE
    return Cond("le", gap)


def below(left: Poly | Atom | int, right: Poly | Atom | int) -> Cond:
    """Return left < right."""
    return at_most(as_poly(left) + 1, right)


def equal(left: Poly | Atom | int, right: Poly | Atom | int) -> Cond:
    """Return left == right."""
    gap = as_poly(left) - as_poly(right)
    if (value := gap.constant) is not None:
        return TRUE if value == 0 else FALSE
    return Cond("eq", gap)


def negated(condition: Cond) -> Cond:
    """Return that a condition fails."""
    match condition.kind:
        case "true":
            return FALSE
        case "false":
            return TRUE
        case "not":
            made: Cond = condition.parts[0]
            return made
        case "le":
            return at_most(-condition.parts[0] + 1, 0)
        case "and":
            return any_of(map(negated, condition.parts))
        case "or":
            return all_of(map(negated, condition.parts))
    return Cond("not", condition)


def all_of(conditions: Iterable[Cond]) -> Cond:
    """Return that all conditions hold."""
    return _joined("and", conditions, TRUE, FALSE)


def any_of(conditions: Iterable[Cond]) -> Cond:
    """Return that some condition holds."""
    return _joined("or", conditions, FALSE, TRUE)


def _joined(kind: str, conditions: Iterable[Cond], empty: Cond, ends: Cond) -> Cond:
    found: dict[Cond, None] = {}
    for condition in conditions:
        for part in condition.parts if condition.kind == kind else (condition,):
            if part == ends:
                return ends
            if part != empty:
                found[part] = None
    if not found:
        return empty
    return next(iter(found)) if len(found) == 1 else Cond(kind, *found)


def choice(condition: Cond, then: Poly, other: Poly) -> Poly:
    """Return one of two numbers by a condition."""
    if condition == TRUE or then == other:
        return then
    if condition == FALSE:
        return other
    return as_poly(Atom(CHOICE, condition, then, other))


def quotient(left: Poly, right: Poly) -> Poly:
    """Return left / right, truncated."""
    a, b = left.constant, right.constant
    if b == 1:
        return left
    if a is not None and b:
        return as_poly(abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1))
    return as_poly(Atom(QUOTIENT, left, right))


def remainder(left: Poly, right: Poly) -> Poly:
    """Return what a truncated quotient leaves; it has the sign of `left`."""
    a, b = left.constant, right.constant
    if b == 1:
        return as_poly(0)
    if a is not None and b:
        return as_poly(abs(a) % abs(b) * (1 if a >= 0 else -1))
    return as_poly(Atom(REMAINDER, left, right))


def recomposed(poly: Poly) -> Poly:
    """Return a sum in which what was divided by a number is put together again.

    A number times a quotient, and the remainder that it leaves, are the dividend.
    """
    for monomial, factor in poly.terms.items():
        for place, atom in enumerate(monomial):
            if atom.kind != REMAINDER:
                continue
            left, right = atom.parts
            divisor = right.constant
            if divisor is None or divisor < 1:
                continue
            others = Poly({(*monomial[:place], *monomial[place + 1 :]): factor})
            whole = others * as_poly(Atom(QUOTIENT, left, right)) * divisor
            if whole.terms.items() <= poly.terms.items():
                rest = others * as_poly(atom)
                return recomposed(poly - whole - rest + others * left)
    return poly


def least(left: Poly, right: Poly) -> Poly:
    """Return the smaller of two numbers."""
    return _extreme(LEAST, min, left, right)


def greatest(left: Poly, right: Poly) -> Poly:
    """Return the greater of two numbers."""
    return _extreme(GREATEST, max, left, right)


def _extreme(kind: str, of: Callable[[int, int], int], left: Poly, right: Poly) -> Poly:
    a, b = left.constant, right.constant
    if a is not None and b is not None:
        return as_poly(of(a, b))
    if (gap := (left - right).constant) is not None:
        return left if of(gap, 0) == gap else right
    return as_poly(Atom(kind, left, right))


_MAKERS: Final[dict[str, Callable[..., Poly]]] = {
    QUOTIENT: quotient, REMAINDER: remainder, LEAST: least, GREATEST: greatest,
    CHOICE: choice,
}  # fmt: skip

Replaced = Callable[[Atom], Poly | None]


class Rewriter:
    """Replaces atoms, also inside others; what it has seen it does once.

    Args:
        replaced: returns what to put for an atom, None to leave it.
    """

    def __init__(self, replaced: Replaced) -> None:
        self._replaced = replaced
        self._atoms: dict[Atom, Poly] = {}
        self._conditions: dict[Cond, Cond] = {}

    def poly(self, poly: Poly) -> Poly:
        """Return a polynomial with its atoms replaced."""
        if all(self._same(a) for m in poly.terms for a in m):
            return poly
        made = as_poly(0)
        for monomial, factor in poly.terms.items():
            product = as_poly(factor)
            for atom in monomial:
                product = product * self.atom(atom)
            made = made + product
        return made

    def _same(self, atom: Atom) -> bool:
        made = self.atom(atom)
        return made.single is atom

    def atom(self, atom: Atom) -> Poly:
        """Return what stands for an atom."""
        known = self._atoms.get(atom)
        if known is not None:
            return known
        made = self._replaced(atom)
        if made is None:
            parts = tuple(self.any(part) for part in atom.parts)
            maker = _MAKERS.get(atom.kind)
            if all(a is b for a, b in zip(parts, atom.parts, strict=True)):
                made = as_poly(atom)
            elif maker is not None:
                made = maker(*parts)
            else:
                made = as_poly(Atom(atom.kind, *parts))
        self._atoms[atom] = made
        return made

    def cond(self, condition: Cond) -> Cond:
        """Return a condition with its atoms replaced."""
        known = self._conditions.get(condition)
        if known is not None:
            return known
        match condition.kind:
            case "le":
                made = at_most(self.poly(condition.parts[0]), 0)
            case "eq":
                made = equal(self.poly(condition.parts[0]), 0)
            case "and":
                made = all_of(map(self.cond, condition.parts))
            case "or":
                made = any_of(map(self.cond, condition.parts))
            case "not":
                made = negated(self.cond(condition.parts[0]))
            case "data":
                made = Cond("data", *map(self.any, condition.parts))
            case _:
                made = condition
        self._conditions[condition] = made
        return made

    def any(self, part: Any) -> Any:
        """Return a part of an atom with its atoms replaced."""
        if isinstance(part, Poly):
            return self.poly(part)
        if isinstance(part, Cond):
            return self.cond(part)
        if isinstance(part, tuple):
            return tuple(map(self.any, part))
        return part


def atoms_in(value: Any) -> Iterator[Atom]:
    """Yield the atoms of a polynomial, a condition or a part, those inside them too.

    Each as often as it occurs in another one.
    """
    seen: set[Atom] = set()
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, Poly):
            pending += [a for m in part.terms for a in m]
        elif isinstance(part, Cond | tuple):
            pending += part.parts if isinstance(part, Cond) else part
        elif isinstance(part, Atom) and part not in seen:
            seen.add(part)
            yield part
            pending += part.parts


def leaves_of(value: Any) -> Iterator[Atom]:
    """Yield the atoms of a value that are computed from no others; see `atoms_in`."""
    return (atom for atom in atoms_in(value) if atom.kind not in _MAKERS)


def doubts_in(value: Any) -> Iterator[Cond]:
    """Yield the unknown conditions of a polynomial or condition, those inside too."""
    parts = (part for atom in atoms_in(value) for part in atom.parts)
    pending = [value, *parts]
    while pending:
        part = pending.pop()
        if isinstance(part, Cond):
            if part.kind == "data":
                yield part
            else:
                pending += part.parts


class UnknownValueError(Exception):
    """A number that depends on data."""


class Valuation:
    """Computes numbers and conditions from the values of atoms.

    The values are Python's integers here. Those of a subclass are what adds, multiplies
    and compares as integers do.

    Args:
        values: by atom.
    """

    def __init__(self, values: Mapping[Atom, Any]) -> None:
        self._values = dict(values)

    def poly(self, poly: Poly) -> Any:
        """Return the value of a polynomial.

        Raises:
            UnknownValueError: if an atom has no value.
        """
        total: Any = 0
        for monomial, factor in poly.terms.items():
            product: Any = factor
            for atom in monomial:
                product = product * self.atom(atom)
            total = total + product
        return total

    def atom(self, atom: Atom) -> Any:
        """Return the value of an atom; see `poly`."""
        known = self._values.get(atom)
        if known is None:
            known = self._values[atom] = self._computed(atom)
        return known

    def _computed(self, atom: Atom) -> Any:
        if atom.kind == CHOICE:
            condition, then, other = atom.parts
            return self.poly(then if self.cond(condition) else other)
        if atom.kind not in _MAKERS:
            raise UnknownValueError(str(atom))
        left, right = (self.poly(part) for part in atom.parts)
        if atom.kind in (QUOTIENT, REMAINDER) and not right:
            raise UnknownValueError(f"a division by 0: {atom}")
        made = _MAKERS[atom.kind](as_poly(left), as_poly(right)).constant
        assert made is not None
        return made

    def cond(self, condition: Cond) -> Any:
        """Return whether a condition holds; see `poly`."""
        match condition.kind:
            case "le":
                return self.poly(condition.parts[0]) <= 0
            case "eq":
                return self.poly(condition.parts[0]) == 0
            case "and" | "or" | "not" as kind:
                return self._joined(kind, map(self.cond, condition.parts))
            case "data":
                return self._doubted(condition)
        return condition.kind == "true"

    def _joined(self, kind: str, held: Iterator[Any]) -> Any:
        """Return what comes of conditions, all of them in a row evaluated or not."""
        if kind == "not":
            return not next(held)
        return all(held) if kind == "and" else any(held)

    def _doubted(self, condition: Cond) -> Any:
        raise UnknownValueError(str(condition))


NARROW_BITS: Final = 32
Shape = tuple[int, ...]
Checks = frozenset[int]
NO_CHECKS: Final[Checks] = frozenset()

LOAD: Final = "load"
STORE: Final = "store"
ATOMIC: Final = "atomic"


def moved(checks: Checks) -> Checks:
    """Return checks whose lanes are not those of what depends on them any more.

    A block that is transposed, or gets a dimension in front, has its numbers in other
    lanes than they were computed in. Such checks are noted as negative numbers.
    """
    return frozenset(min(number, -1 - number) for number in checks)


def program(axis: int) -> Atom:
    """Return the number of the running program along an axis of the grid."""
    return Atom(PROGRAM, axis)


def lane(dim: int) -> Atom:
    """Return an element's place in its block along a dimension."""
    return Atom(LANE, dim)


def iteration(loop: int) -> Atom:
    """Return the number of a loop's iteration, from 0."""
    return Atom(ITERATION, loop)


def symbol(name: str) -> Atom:
    """Return what a launch fixes: an integer argument, a size, a grid's extent."""
    return Atom(SYMBOL, name)


def grid(axis: int) -> Atom:
    """Return the number of programs along an axis."""
    return symbol(f"grid.{axis}")


@dataclass(frozen=True)
class Number:
    """An integer, or one for each element of a block.

    Attributes:
        poly: its value, over lanes where it is a block.
        bits: width of its type.
        shape: of the block.
        checks: what has to hold for it to have that value: operations before it that
            have to stay in range.
        wide: arguments of which one with 64 bits makes it 64 bits wide.
    """

    poly: Poly
    bits: int
    shape: Shape = ()
    checks: Checks = NO_CHECKS
    wide: frozenset[Atom] = frozenset()


@dataclass(frozen=True)
class Truth:
    """A condition, or one for each element of a block; fields as of `Number`."""

    cond: Cond
    shape: Shape = ()
    checks: Checks = NO_CHECKS


@dataclass(frozen=True)
class Pointer:
    """A pointer, or one for each element of a block.

    Attributes:
        base: the argument that it is computed from; "" where that is unknown.
        poly: its distance in elements from there.
        itemsize: bytes of what it points to.
        shape: of the block.
        checks: as of `Number`.
        why: why its base is unknown.
    """

    base: str
    poly: Poly
    itemsize: int
    shape: Shape = ()
    checks: Checks = NO_CHECKS
    why: str = ""


@dataclass(frozen=True)
class Other:
    """A value on which no address can depend: a float, or several.

    Attributes:
        shape: of the block.
    """

    shape: Shape = ()


Value = Number | Truth | Pointer | Other


@dataclass(frozen=True)
class Check:
    """What has to hold for a result to be what the formula says.

    Attributes:
        poly: the result.
        bits: width that it has to fit; 0 where it only has to be at least 0.
        wide: as of `Number`: with one of them beyond 32 bits the result has 64.
        path: when it is computed.
        shape: of the block.
        needs: other checks on which its operands depend.
        line: in the source.
        what: the operation: "product", "sum", "difference", "loop counter", ….
        folded: whether Python computes it, of the kernel's constants alone.
    """

    poly: Poly
    bits: int
    wide: frozenset[Atom]
    path: Cond
    shape: Shape
    needs: Checks
    line: int
    what: str
    folded: bool = False

    @property
    def goal(self) -> Cond:
        """That the result is in the range that it has to be in."""
        if not self.bits:
            return at_most(0, self.poly)
        low, high = -(1 << self.bits - 1), (1 << self.bits - 1) - 1
        goal = all_of([at_most(low, self.poly), at_most(self.poly, high)])
        if self.bits == NARROW_BITS:
            # With a wider argument the compiler makes it of 64 bits.
            wider = (at_most(1 << 31, atom) for atom in sorted(self.wide, key=str))
            return any_of([goal, *wider])
        return goal


@dataclass(frozen=True)
class Access:
    """A load, a store or an atomic, of all elements of a block at once.

    Attributes:
        kind: "load", "store" or "atomic".
        base: the argument that its pointers are computed from; "" where unknown.
        offset: in elements of the argument.
        mask: which lanes access.
        path: when it is reached.
        shape: of the block.
        checks: what its addresses depend on; only where they are accessed.
        guards: what its mask and the way to it depend on.
        line: in the source.
        why: why its base is unknown.
    """

    kind: str
    base: str
    offset: Poly
    mask: Cond
    path: Cond
    shape: Shape
    checks: Checks
    guards: Checks
    line: int
    why: str = ""


@dataclass(frozen=True)
class Data:
    """What is known of an unknown integer.

    Attributes:
        low: least value, as a polynomial; None where only the type limits it.
        high: greatest value.
        bits: width.
        other: what it may be besides, whatever the range.
        wide: as of `Number`: with one of them beyond 32 bits it has 64.
    """

    low: Poly | None
    high: Poly | None
    bits: int
    other: Poly | None = None
    wide: frozenset[Atom] = frozenset()


@dataclass
class Graph:
    """What a kernel accesses, for all of its programs.

    Attributes:
        accesses: in the order of the source's execution.
        checks: on results, by number.
        data: what is known of loaded and other unknown integers, by number.
        open: what is not understood, "" where all is.
    """

    accesses: list[Access] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    data: dict[int, Data] = field(default_factory=dict)
    open: str = ""

    def signature(self) -> tuple[object, ...]:
        """Return what graphs have in common of which the same holds."""
        data = tuple(self.data.items())
        return tuple(self.accesses), tuple(self.checks), data


class Unsupported(Exception):
    """What an operation does is not understood."""


def number_of(value: Value) -> Number:
    """Return a value as an integer: a condition is 0 or 1.

    Raises:
        Unsupported: if it is neither.
    """
    if isinstance(value, Number):
        return value
    if isinstance(value, Truth):
        one, none = as_poly(1), as_poly(0)
        poly = choice(value.cond, one, none)
        return Number(poly, 1, value.shape, value.checks)
    raise Unsupported("an integer that is none")


def itemsize_of(element: str) -> int:
    """Return the bytes of an element by the IR's name of its type."""
    if element.startswith("!tt.ptr"):
        return 8
    digits = "".join(c for c in element.partition("E")[0] if c.isdigit())
    return max(int(digits or 8) // 8, 1)


@dataclass(frozen=True)
class Where:
    """When what is evaluated runs.

    Attributes:
        path: the conditions on the way.
        checks: what these depend on.
        loops: the loops around it.
    """

    path: Cond = TRUE
    checks: Checks = NO_CHECKS
    loops: tuple[int, ...] = ()

    def under(self, truth: Truth) -> "Where":
        """Return the place where a condition holds as well."""
        path = all_of([self.path, truth.cond])
        return replace(self, path=path, checks=self.checks | truth.checks)


class Step(NamedTuple):
    """An operation that is evaluated: by what, with which operands, and where."""

    graph: "Evaluator"
    operation: "Operation"
    given: Sequence[Value]
    where: Where

    def check(
        self, poly: Poly, bits: int, what: str, shape: Shape, needs: Iterable[int],
        wide: frozenset[Atom] = frozenset(),
    ) -> Checks:  # fmt: skip
        """Note what has to hold for a result; see `Evaluator.check`."""
        return self.graph.check(
            poly, bits, wide, self.where, shape, needs, self.operation, what
        )

    def fresh(self, why: str) -> list[Value]:
        """Return results of which nothing is known but their types."""
        fresh, made = self.graph.fresh, self.operation.made
        return [fresh(kind, self.where, why, self.given) for kind in made]
