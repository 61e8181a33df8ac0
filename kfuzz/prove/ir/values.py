"""What symbolic evaluation knows: values, checks on them, accesses, and the graph."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from kfuzz.prove.ir.terms import (
    ITERATION,
    LANE,
    PROGRAM,
    SYMBOL,
    TRUE,
    Atom,
    Cond,
    Poly,
    all_of,
    as_poly,
    choice,
)

if TYPE_CHECKING:
    from kfuzz.prove.ir.graph import Evaluator
    from kfuzz.prove.ir.ttir import Operation

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
        offset: in elements from there.
        itemsize: bytes of what it points to.
        shape: of the block.
        checks: as of `Number`.
        why: why its base is unknown.
    """

    base: str
    offset: Poly
    itemsize: int
    shape: Shape = ()
    checks: Checks = NO_CHECKS
    why: str = ""


@dataclass(frozen=True)
class Descriptor:
    """A tensor descriptor.

    Attributes:
        base: where its first element lies.
        sizes: of the tensor.
        strides: in elements.
        block: shape of what is accessed at once.
    """

    base: Pointer
    sizes: tuple[Number, ...]
    strides: tuple[Number, ...]
    block: Shape


@dataclass(frozen=True)
class Other:
    """A value on which no address can depend: a float, or several.

    Attributes:
        shape: of the block.
    """

    shape: Shape = ()


Value = Number | Truth | Pointer | Descriptor | Other


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
    """

    poly: Poly
    bits: int
    wide: frozenset[Atom]
    path: Cond
    shape: Shape
    needs: Checks
    line: int
    what: str


@dataclass(frozen=True)
class Hint:
    """What the source promises the compiler.

    Attributes:
        goal: what has to hold.
        path: when it is promised.
        shape: of the block.
        needs: checks on which the values depend.
        line: in the source.
        text: the promise.
    """

    goal: Cond
    path: Cond
    shape: Shape
    needs: Checks
    line: int
    text: str


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
        hints: promises to the compiler.
        data: what is known of loaded and other unknown integers, by number.
        open: what is not understood, "" where all is.
    """

    accesses: list[Access] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    hints: list[Hint] = field(default_factory=list)
    data: dict[int, Data] = field(default_factory=dict)
    open: str = ""

    def signature(self) -> tuple[object, ...]:
        """Return what graphs have in common of which the same holds."""
        data = tuple(self.data.items())
        return tuple(self.accesses), tuple(self.checks), tuple(self.hints), data


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
