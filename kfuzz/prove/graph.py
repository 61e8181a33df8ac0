"""Symbolic evaluation of Triton's IR: from a kernel to its access graph.

Every program runs the same text, so one evaluation with the program's number as an atom
stands for all of them, and one with the places in a block as atoms for all lanes. A loop
is evaluated once with the number of its iteration as an atom; what it carries from one
iteration to the next is in closed form where each adds the same, and unknown otherwise.
An unknown number may be anything that its type holds. What is not understood at all is
noted in `Graph.open`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from kfuzz.prove import operations
from kfuzz.prove.launches import ConstArgument, IntArgument, Launch, TensorArgument
from kfuzz.prove.terms import (
    DATA,
    SYMBOL,
    TRUE,
    Atom,
    Cond,
    Poly,
    all_of,
    any_of,
    as_poly,
    at_most,
    atoms_in,
    below,
    choice,
    greatest,
    negated,
    quotient,
)
from kfuzz.prove.ttir import Block, Function, Operation, Type
from kfuzz.prove.values import (
    NO_CHECKS,
    Access,
    Check,
    Checks,
    Data,
    Descriptor,
    Graph,
    Number,
    Other,
    Pointer,
    Shape,
    Truth,
    Value,
    iteration,
    lane,
    program,
    symbol,
)

_CALLS: Final = 24
"""Calls inside one another at most."""


class Unsupported(Exception):
    """What an operation does is not understood."""


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


class Evaluator:
    """Evaluates the functions of a module.

    Args:
        functions: by name, the kernel first.
        launch: what the kernel is given.

    Attributes:
        graph: what has been found.
    """

    def __init__(self, functions: Mapping[str, Function], launch: Launch) -> None:
        self.graph = Graph()
        self._functions = functions
        self._launch = launch
        self._calls: list[tuple[str, int]] = []
        self._loops = 0
        self._data = 0
        self._symbols: dict[str, TensorArgument] = {}

    def run(self) -> Graph:
        """Return the graph of the kernel."""
        kernel = next(iter(self._functions.values()))
        given: list[Value] = []
        arguments = [
            (name, argument)
            for name, argument in self._launch.arguments.items()
            if not isinstance(argument, ConstArgument)
        ]
        for (name, argument), (_, kind) in zip(
            arguments, kernel.arguments, strict=True
        ):
            given.append(self._argument(name, argument, kind))
        self._function(kernel, given, Where())
        return self.graph

    def _argument(self, name: str, argument: Any, kind: Type) -> Value:
        if isinstance(argument, TensorArgument):
            self._symbols[name] = argument
            return Pointer(name, as_poly(0), argument.itemsize)
        if isinstance(argument, IntArgument):
            atom = symbol(name)
            if kind.bits == 1:
                return Truth(at_most(as_poly(1), atom))
            wide = frozenset() if argument.declared else frozenset({atom})
            return Number(as_poly(atom), kind.bits, (), NO_CHECKS, wide)
        return Other()

    # Control flow.

    def _function(
        self, function: Function, given: Sequence[Value], where: Where
    ) -> list[Value]:
        """Evaluate a function's blocks in order; return its results."""
        names = {
            name: value
            for (name, _), value in zip(function.arguments, given, strict=True)
        }
        reached: dict[str, list[tuple[Where, list[Value]]]] = {}
        returns: list[tuple[Where, list[Value]]] = []
        for number, block in enumerate(function.blocks):
            if number == 0:
                inside = where
            else:
                ways = reached.pop(block.label, [])
                if not ways:
                    continue
                inside = _merged_ways([way for way, _ in ways])
                given = self._merged([(w.path, v) for w, v in ways])
                for (name, _), value in zip(block.arguments, given, strict=True):
                    names[name] = value
            for operation in block.operations:
                if operation.name == "cf.br":
                    _jump(reached, operation.words, inside, names)
                elif operation.name == "cf.cond_br":
                    truth = self._truth(names[operation.operands[0]])
                    then, other = _targets(operation.words)
                    _jump(reached, then, inside.under(truth), names)
                    opposite = replace(truth, cond=negated(truth.cond))
                    _jump(reached, other, inside.under(opposite), names)
                elif operation.name == "tt.return":
                    returns.append((inside, [names[n] for n in operation.operands]))
                else:
                    self._operation(operation, names, inside)
            if any(
                label not in _labels_after(function.blocks, number) for label in reached
            ):
                raise Unsupported("a jump backwards")
        if not returns:
            return []
        return self._merged([(way.path, values) for way, values in returns])

    def _merged(self, ways: Sequence[tuple[Cond, Sequence[Value]]]) -> list[Value]:
        """Return the values that come from one of several ways."""
        *others, (_, last) = ways
        made = list(last)
        for path, values in reversed(others):
            made = [
                self.chosen(Truth(path), value, old)
                for value, old in zip(values, made, strict=True)
            ]
        return made

    def chosen(self, truth: Truth, then: Value, other: Value) -> Value:
        """Return one of two values by a condition."""
        if then == other:
            return then
        match then, other:
            case Number(), Number():
                return replace(
                    then,
                    poly=choice(truth.cond, then.poly, other.poly),
                    checks=truth.checks | then.checks | other.checks,
                    wide=then.wide | other.wide,
                )
            case Truth(), Truth():
                made = any_of(
                    [
                        all_of([truth.cond, then.cond]),
                        all_of([negated(truth.cond), other.cond]),
                    ]
                )
                checks = truth.checks | then.checks | other.checks
                return Truth(made, then.shape, checks)
            case Pointer(), Pointer():
                if then.base != other.base or then.itemsize != other.itemsize:
                    why = "a pointer into one of several tensors"
                    return replace(then, base="", why=then.why or other.why or why)
                return replace(
                    then,
                    offset=choice(truth.cond, then.offset, other.offset),
                    checks=truth.checks | then.checks | other.checks,
                )
            case Descriptor(), _:
                raise Unsupported("one of several tensor descriptors")
        return Other(getattr(then, "shape", ()))

    def _region(
        self, blocks: list[Block], given: Sequence[Value], names: dict[str, Value],
        where: Where,
    ) -> Operation | None:  # fmt: skip
        """Evaluate a region of one block; return the operation that ends it."""
        if len(blocks) != 1:
            raise Unsupported("a region of several blocks")
        for (name, _), value in zip(blocks[0].arguments, given, strict=False):
            names[name] = value
        last = None
        for last in blocks[0].operations:
            if last.name not in ("scf.yield", "scf.condition"):
                self._operation(last, names, where)
        return last

    def _operation(
        self, operation: Operation, names: dict[str, Value], where: Where
    ) -> None:
        handler = _CONTROL.get(operation.name)
        try:
            if handler is not None:
                results = handler(self, operation, names, where)
            else:
                given = [names[name] for name in operation.operands]
                results = operations.evaluate(self, operation, given, where)
        except Unsupported as error:
            if operation.regions:
                raise Unsupported(str(error)) from error
            raise
        names.update(zip(operation.results, results, strict=True))

    def _if(
        self, operation: Operation, names: dict[str, Value], where: Where
    ) -> list[Value]:
        truth = self._truth(names[operation.operands[0]])
        opposite = replace(truth, cond=negated(truth.cond))
        ends = []
        for region, held in zip(operation.regions, (truth, opposite), strict=False):
            inner = dict(names)
            end = self._region(region, (), inner, where.under(held))
            ends.append([inner[n] for n in end.operands] if end else [])
        if not operation.results:
            return []
        return [self.chosen(truth, a, b) for a, b in zip(*ends, strict=True)]

    def _for(
        self, operation: Operation, names: dict[str, Value], where: Where
    ) -> list[Value]:
        counter, *rest = operation.operands
        count = len(operation.results)
        carried = rest[3::2] if count else []
        # "%i = %lb to %ub step %s iter_args(%a = %x, …)"
        low, high, step = (self._number(names[n]) for n in rest[:3])
        inits = [names[n] for n in rest[4::2]] if count else []
        self._loops += 1
        loop, place = self._loops, iteration(self._loops)
        wide = low.wide | high.wide | step.wide
        checks = low.checks | high.checks | step.checks
        index = low.poly + as_poly(place) * step.poly
        running = Truth(
            all_of([at_most(0, place), below(index, high.poly)]), (), checks
        )
        self.check(
            high.poly + step.poly - 1, low.bits, wide, where, (), checks, operation,
            "loop counter",
        )  # fmt: skip
        inside = replace(where.under(running), loops=(*where.loops, loop))
        value = Number(index, low.bits, (), checks, wide)
        # Once to see what each iteration adds, then with that.
        kept = len(self.graph.accesses), len(self.graph.checks), len(self.graph.hints)
        opened, known = len(self.graph.open), self._data
        guesses = [self._carried(init, loop, j) for j, init in enumerate(inits)]
        ends = self._body(operation, counter, carried, value, guesses, names, inside)
        for entries, length in zip(
            (self.graph.accesses, self.graph.checks, self.graph.hints),
            kept,
            strict=True,
        ):
            del entries[length:]
        del self.graph.open[opened:]
        variant = _Variant(known, loop)
        forms = [
            self._closed(init, guess, end, variant, place, inside)
            for init, guess, end in zip(inits, guesses, ends, strict=True)
        ]
        self._body(
            operation, counter, carried, value, [form for form, _ in forms], names,
            inside,
        )  # fmt: skip
        trips = quotient(
            greatest(high.poly - low.poly, as_poly(0)) + step.poly - 1, step.poly
        )
        return [
            self._after(init, delta, trips, checks, where)
            for init, (_, delta) in zip(inits, forms, strict=True)
        ]

    def _body(
        self, operation: Operation, counter: str, carried: Sequence[str],
        index: Number, given: Sequence[Value], names: dict[str, Value], where: Where,
    ) -> list[Value]:  # fmt: skip
        inner = {**names, counter: index, **dict(zip(carried, given, strict=True))}
        end = self._region(operation.regions[0], (), inner, where)
        return [inner[name] for name in end.operands] if end and given else []

    def _carried(self, init: Value, loop: int, number: int) -> Value:
        """Return what stands for a carried value in the first evaluation."""
        atom = as_poly(Atom(SYMBOL, f"carried.{loop}.{number}"))
        match init:
            case Number():
                return replace(init, poly=atom)
            case Pointer():
                return replace(init, offset=init.offset + atom)
            case Truth():
                return replace(init, cond=Cond("data", "carried", loop, number))
            case Descriptor() if init.offsets:
                moved = [
                    replace(
                        o,
                        poly=o.poly
                        + as_poly(Atom(SYMBOL, f"carried.{loop}.{number}.{d}")),
                    )
                    for d, o in enumerate(init.offsets)
                ]
                return replace(init, offsets=tuple(moved))
        return init

    def _closed(
        self, init: Value, guess: Value, end: Value, variant: "_Variant", place: Atom,
        where: Where,
    ) -> tuple[Value, Any]:  # fmt: skip
        """Return a carried value in an iteration, and what each one adds.

        The second is None where that is unknown.
        """
        count = as_poly(place)
        match init, guess, end:
            case Number(), Number(), Number():
                delta = end.poly - guess.poly
                if not variant.touches(delta) and not _has(guess.poly, delta):
                    made = replace(
                        init,
                        poly=init.poly + count * delta,
                        checks=init.checks | end.checks,
                        wide=init.wide | end.wide,
                    )
                    return made, replace(end, poly=delta)
                return self.unknown(init.bits, init.shape, where, "a loop"), None
            case Pointer(), Pointer(), Pointer():
                if end.base != init.base:
                    return replace(
                        init, base="", why="a pointer that a loop changes"
                    ), None
                delta = end.offset - guess.offset
                if not variant.touches(delta):
                    made_ = replace(
                        init,
                        offset=init.offset + count * delta,
                        checks=init.checks | end.checks,
                    )
                    return made_, replace(end, offset=delta)
                away = self.unknown(64, init.shape, where, "a loop")
                return replace(init, offset=away.poly), None
            case Truth(), _, _:
                return self.doubt(init.shape, where), None
            case Descriptor(), Descriptor(), Descriptor():
                if end == guess:
                    return init, replace(init, offsets=())
                if (end.base, end.sizes, end.strides) != (
                    guess.base, guess.sizes, guess.strides,
                ):  # fmt: skip
                    raise Unsupported("a descriptor that a loop changes")
                moved, deltas = [], []
                for o, g, e in zip(
                    init.offsets, guess.offsets, end.offsets, strict=True
                ):
                    form, delta_ = self._closed(o, g, e, variant, place, where)
                    moved.append(form)
                    deltas.append(delta_)
                return replace(init, offsets=tuple(moved)), deltas
        return init, None

    def _after(
        self, init: Value, delta: Any, trips: Poly, checks: Checks, where: Where
    ) -> Value:
        """Return a carried value after its loop."""
        match init:
            case Number() if isinstance(delta, Number):
                return replace(
                    init,
                    poly=init.poly + trips * delta.poly,
                    checks=init.checks | delta.checks | checks,
                    wide=init.wide | delta.wide,
                )
            case Number():
                return self.unknown(init.bits, init.shape, where, "a loop")
            case Pointer() if isinstance(delta, Pointer):
                return replace(
                    init,
                    offset=init.offset + trips * delta.offset,
                    checks=init.checks | delta.checks | checks,
                )
            case Pointer():
                return replace(init, base="", why="a pointer that a loop changes")
            case Truth():
                return self.doubt(init.shape, where)
            case Descriptor() if isinstance(delta, list):
                moved = [
                    self._after(o, d, trips, checks, where)
                    for o, d in zip(init.offsets, delta, strict=True)
                ]
                return replace(init, offsets=tuple(moved))  # type: ignore[arg-type]
        return init

    def _while(
        self, operation: Operation, names: dict[str, Value], where: Where
    ) -> list[Value]:
        """Evaluate a loop of which nothing is known but its condition."""
        self._loops += 1
        loop = self._loops
        inside = replace(where, loops=(*where.loops, loop))
        held = operation.operands
        carried, inits = held[0::2], [names[n] for n in held[1::2]]
        given = [self._anything(init, inside) for init in inits]
        inner = {**names, **dict(zip(carried, given, strict=True))}
        end = self._region(operation.regions[0], (), inner, inside)
        if end is None or end.name != "scf.condition":
            raise Unsupported("a loop without a condition")
        truth = self._truth(inner[end.operands[0]])
        passed = [inner[name] for name in end.operands[1:]]
        last = self._region(operation.regions[1], passed, inner, inside.under(truth))
        ends = [inner[name] for name in last.operands] if last else []
        for init, value in zip(inits, ends, strict=True):
            if isinstance(init, Pointer) and getattr(value, "base", "") != init.base:
                raise Unsupported("a pointer that a loop changes")
            if isinstance(init, Descriptor) and value != init:
                raise Unsupported("a descriptor that a loop changes")
        return [self._anything(value, where) for value in passed]

    def _anything(self, value: Value, where: Where) -> Value:
        """Return what may be any value of the kind of another one."""
        match value:
            case Number():
                return self.unknown(value.bits, value.shape, where, "a while loop")
            case Pointer():
                away = self.unknown(64, value.shape, where, "a while loop")
                return replace(value, offset=away.poly)
            case Truth():
                return self.doubt(value.shape, where)
        return value

    def _call(
        self, operation: Operation, names: dict[str, Value], where: Where
    ) -> list[Value]:
        symbol_ = operation.words.removeprefix("@").partition("(")[0].strip('"')
        function = self._functions.get(symbol_)
        if function is None or len(self._calls) >= _CALLS:
            raise Unsupported(f"a call of {symbol_}")
        self._calls.append((operation.file, operation.line))
        try:
            return self._function(
                function, [names[name] for name in operation.operands], where
            )
        finally:
            self._calls.pop()

    def _reduce(
        self, operation: Operation, names: dict[str, Value], where: Where
    ) -> list[Value]:
        why = operation.name.removeprefix("tt.")
        return [self.fresh(kind, where, f"a {why}") for kind in operation.made]

    # What operations are made of.

    def place(self, operation: Operation) -> tuple[str, int]:
        """Return file and line of an operation, in the user's source if it can be."""
        file = self._launch.file
        for found, line in reversed([*self._calls, (operation.file, operation.line)]):
            if found == file:
                return found, line
        return operation.file, operation.line

    def check(
        self, poly: Poly, bits: int, wide: frozenset[Atom], where: Where, shape: Shape,
        needs: Iterable[int], operation: Operation, what: str,
    ) -> Checks:  # fmt: skip
        """Note what has to hold for a result; return it with what it needs."""
        # Each one, also of constants: a loop's body makes the same ones twice.
        file, line = self.place(operation)
        made = Check(
            poly, bits, wide, where.path, shape, frozenset(needs) | where.checks, line,
            file, what,
        )  # fmt: skip
        self.graph.checks.append(made)
        return frozenset({*needs, len(self.graph.checks) - 1})

    def unknown(
        self, bits: int, shape: Shape, where: Where, why: str, *,
        low: Poly | None = None, high: Poly | None = None,
    ) -> Number:  # fmt: skip
        """Return a number of which only its type is known, or also its range."""
        self._data += 1
        self.graph.data[self._data] = Data(low, high, bits, why)
        return Number(as_poly(self._atom(shape, where)), bits, shape)

    def doubt(self, shape: Shape, where: Where) -> Truth:
        """Return a condition of which nothing is known."""
        self._data += 1
        atom = self._atom(shape, where)
        return Truth(Cond("data", *atom.parts), shape)

    def _atom(self, shape: Shape, where: Where) -> Atom:
        places = [program(axis) for axis in range(3)]
        places += [iteration(loop) for loop in where.loops]
        places += [lane(dim) for dim, size in enumerate(shape) if size > 1]
        return Atom(DATA, self._data, tuple(map(as_poly, places)))

    def fresh(self, kind: Type, where: Where, why: str) -> Value:
        """Return a value of a type of which nothing else is known."""
        if kind.bits == 1:
            return self.doubt(kind.shape, where)
        if kind.bits:
            return self.unknown(kind.bits, kind.shape, where, why)
        if kind.element == "ptr":
            size = itemsize_of(kind.pointee)
            return Pointer("", as_poly(0), size, kind.shape, why=why)
        return Other(kind.shape)

    def loaded_below(self, base: str) -> Poly | None:
        """Return what the integers that an argument holds stay below, if anything."""
        argument = self._symbols.get(base)
        if argument is None or argument.below is None:
            return None
        return as_poly(symbol(f"{base}.below"))

    def access(self, access: Access) -> None:
        """Note an access."""
        self.graph.accesses.append(access)

    def _truth(self, value: Value) -> Truth:
        if not isinstance(value, Truth):
            raise Unsupported("a condition that is none")
        return value

    def _number(self, value: Value) -> Number:
        if not isinstance(value, Number):
            raise Unsupported("a loop bound that is no integer")
        return value


@dataclass(frozen=True)
class _Variant:
    """What changes from one iteration of a loop to the next.

    Attributes:
        known: number of the last unknown value from before.
        loop: the loop.
    """

    known: int
    loop: int

    def touches(self, poly: Poly) -> bool:
        """Whether a number may differ between iterations."""
        for atom in atoms_in(poly):
            if atom.kind == DATA and atom.parts[0] > self.known:
                return True
            if atom is iteration(self.loop):
                return True
            if atom.kind == SYMBOL and atom.parts[0].startswith(
                f"carried.{self.loop}."
            ):
                return True
        return False


def _has(guess: Poly, delta: Poly) -> bool:
    atom = guess.single
    return atom is not None and any(a is atom for a in atoms_in(delta))


def _merged_ways(ways: Sequence[Where]) -> Where:
    first = ways[0]
    checks = frozenset().union(*(way.checks for way in ways))
    return replace(first, path=any_of(way.path for way in ways), checks=checks)


def _jump(
    reached: dict[str, list[tuple[Where, list[Value]]]], target: str, where: Where,
    names: Mapping[str, Value],
) -> None:  # fmt: skip
    label, _, given = target.partition("(")
    passed = given.partition(" : ")[0].partition(":")[0].rstrip(")").split(",")
    values = [names[n.strip()] for n in passed if n.strip()]
    reached.setdefault(label.strip(), []).append((where, values))


def _targets(words: str) -> tuple[str, str]:
    from kfuzz.prove.ttir import split_outer

    _, then, other = split_outer(words)
    return then, other


def _labels_after(blocks: Sequence[Block], number: int) -> set[str]:
    return {block.label for block in blocks[number + 1 :]}


def itemsize_of(element: str) -> int:
    """Return the bytes of an element by the IR's name of its type."""
    if element.startswith("!tt.ptr"):
        return 8
    digits = "".join(c for c in element.partition("E")[0] if c.isdigit())
    return max(int(digits or 8) // 8, 1)


_CONTROL: Final[dict[str, Any]] = {
    "scf.if": Evaluator._if,
    "scf.for": Evaluator._for,
    "scf.while": Evaluator._while,
    "tt.call": Evaluator._call,
    "tt.reduce": Evaluator._reduce,
    "tt.scan": Evaluator._reduce,
    "tt.map_elementwise": Evaluator._reduce,
}


def graph_of(functions: Mapping[str, Function], launch: Launch) -> Graph:
    """Return the access graph of a kernel.

    Args:
        functions: of its module, the kernel first.
        launch: what it is given; integers are symbols all the same.
    """
    evaluator = Evaluator(functions, launch)
    try:
        return evaluator.run()
    except Unsupported as error:
        evaluator.graph.open.append((0, str(error)))
    return evaluator.graph
