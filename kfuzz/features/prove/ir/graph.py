"""Symbolic evaluation of Triton's IR: from a kernel to its access graph.

Every program runs the same text, so one evaluation with the program's number as an atom
stands for all of them, and one with the places in a block as atoms for all lanes. A
loop is evaluated once with the number of its iteration as an atom; what it carries from
one iteration to the next is in closed form where each adds the same, and unknown
otherwise. An unknown number may be anything that its type holds. What is not understood
at all is noted in `Graph.open`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from triton.backends.compiler import GPUTarget
from triton.compiler import make_backend

from kfuzz.execution.launches.building import NotCompiledError, said, source_of
from kfuzz.execution.launches.capture import (
    ConstArgument,
    IntArgument,
    Launch,
    TensorArgument,
)
from kfuzz.features.prove.ir import operations
from kfuzz.features.prove.ir.ttir import Block, Function, Operation, Type, split_outer
from kfuzz.features.prove.ir.values import (
    DATA,
    FALSE,
    NO_CHECKS,
    SYMBOL,
    TRUE,
    Atom,
    Check,
    Checks,
    Cond,
    Data,
    Graph,
    Number,
    Other,
    Pointer,
    Poly,
    Shape,
    Step,
    Truth,
    Unsupported,
    Value,
    Where,
    all_of,
    any_of,
    as_poly,
    at_most,
    atoms_in,
    below,
    choice,
    doubts_in,
    greatest,
    itemsize_of,
    iteration,
    lane,
    leaves_of,
    negated,
    program,
    quotient,
    symbol,
)

# Loops: what they carry, in closed form where each iteration adds the same.

CARRIED: Final = "carried"


def repeated(
    ev: "Evaluator", operation: Operation, names: dict[str, Value], where: Where
) -> list[Value]:
    """Return the results of a loop over a range."""
    counter, *rest = operation.operands
    if operation.words.startswith("unsigned"):
        raise Unsupported("a loop over unsigned integers")
    count = len(operation.results)
    carried = rest[3::2] if count else []
    # "%i = %lb to %ub step %s iter_args(%a = %x, …)"
    low, high, step = (ev.number(names[n]) for n in rest[:3])
    inits = [names[n] for n in rest[4::2]] if count else []
    ev.loops += 1
    loop, place = ev.loops, iteration(ev.loops)
    wide = low.wide | high.wide | step.wide
    checks = low.checks | high.checks | step.checks
    checks |= ev.check(
        high.poly + step.poly - 1, low.bits, wide, where, (), checks, operation,
        "loop counter",
    )  # fmt: skip
    if ev.folded(step.poly):
        one = step.poly - 1
        checks |= ev.check(
            one, 0, wide, where, (), checks, operation, "step of a loop less 1"
        )
    index = low.poly + as_poly(place) * step.poly
    running = Truth(all_of([at_most(0, place), below(index, high.poly)]), (), checks)
    inside = replace(where.under(running), loops=(*where.loops, loop))
    value = Number(index, low.bits, (), checks, wide)
    # Once to see what each iteration adds, then with that.
    kept = len(ev.graph.accesses), len(ev.graph.checks)
    known = ev.unknowns
    guesses = [_carried(init, loop, j) for j, init in enumerate(inits)]
    ends = _body(ev, operation, counter, carried, value, guesses, names, inside)
    counted = len(ev.graph.checks) - kept[1]
    del ev.graph.accesses[kept[0] :]
    del ev.graph.checks[kept[1] :]
    made = len(ev.graph.checks)
    varies = partial(_varies, known, loop)
    forms = [
        _closed(ev, init, guess, end, varies, place, inside)
        for init, guess, end in zip(inits, guesses, ends, strict=True)
    ]
    _body(
        ev,
        operation, counter, carried, value, [form for form, _ in forms], names,
        inside,
    )  # fmt: skip
    if len(ev.graph.checks) != made + counted:  # what a form needs is known by number
        raise Unsupported("a loop whose operations depend on what it carries")
    trips = quotient(
        greatest(high.poly - low.poly, as_poly(0)) + step.poly - 1, step.poly
    )
    return [
        _after(ev, init, added, trips, checks, where)
        for init, (_, added) in zip(inits, forms, strict=True)
    ]


def _body(
    ev: "Evaluator", operation: Operation, counter: str, carried: Sequence[str],
    index: Number, given: Sequence[Value], names: dict[str, Value], where: Where,
) -> list[Value]:  # fmt: skip
    inner = {**names, counter: index, **dict(zip(carried, given, strict=True))}
    end = ev.region(operation.regions[0], (), inner, where)
    return [inner[name] for name in end.operands] if end and given else []


def _carried(init: Value, loop: int, number: int) -> Value:
    """Return what stands for a carried value in the first evaluation."""
    match init:
        case Number() | Pointer():
            atom = Atom(SYMBOL, f"carried.{loop}.{number}")
            return replace(init, poly=init.poly + as_poly(atom))
        case Truth():
            return replace(init, cond=Cond("data", CARRIED, loop, number))
    return init


def _closed(
    ev: "Evaluator", init: Value, guess: Value, end: Value,
    varies: Callable[[Poly], bool], place: Atom, where: Where,
) -> tuple[Value, Number | Pointer | None]:  # fmt: skip
    """Return a carried value in an iteration, and what each one adds.

    The second is None where that is unknown.
    """
    match init, guess, end:
        case (Number() | Pointer(), Number() | Pointer(), Number() | Pointer()):
            if getattr(end, "base", "") != getattr(init, "base", ""):
                return _lost(init), None
            added = replace(end, poly=end.poly - guess.poly)
            if not varies(added.poly):
                return _advanced(init, as_poly(place), added), added
            if isinstance(init, Number) and isinstance(end, Number):
                init = replace(init, wide=init.wide | end.wide)
            return _anything(ev, init, where), None
        case Truth(), _, _:
            return ev.doubt(init.shape, where), None
    return init, None


def _advanced(
    init: Number | Pointer, times: Poly, added: Number | Pointer
) -> Number | Pointer:
    """Return a value to which something was added so many times."""
    checks = init.checks | added.checks
    made = replace(init, poly=init.poly + times * added.poly, checks=checks)
    if isinstance(made, Number) and isinstance(added, Number):
        return replace(made, wide=made.wide | added.wide)
    return made


def _lost(init: Value) -> Value:
    """Return what a loop makes of a pointer so that its base is not known."""
    assert isinstance(init, Pointer)
    return replace(init, base="", why="a pointer that a loop changes")


def _after(
    ev: "Evaluator", init: Value, added: Number | Pointer | None, trips: Poly,
    checks: Checks, where: Where,
) -> Value:  # fmt: skip
    """Return a carried value after its loop."""
    if added is not None and isinstance(init, Number | Pointer):
        made = _advanced(init, trips, added)
        return replace(made, checks=made.checks | checks)
    return _lost(init) if isinstance(init, Pointer) else _anything(ev, init, where)


def _anything(ev: "Evaluator", value: Value, where: Where) -> Value:
    """Return what may be any value of the kind of another one."""
    match value:
        case Number():
            return ev.unknown(value.bits, value.shape, where, wide=value.wide)
        case Pointer():
            away = ev.unknown(64, value.shape, where)
            return replace(value, poly=away.poly)
        case Truth():
            return ev.doubt(value.shape, where)
    return value


def _varies(known: int, loop: int, poly: Poly) -> bool:
    """Whether a number may differ between the iterations of a loop.

    Args:
        known: number of the last unknown value from before.
        loop: the loop.
        poly: the number.
    """
    for atom in atoms_in(poly):
        if atom.kind == DATA and atom.parts[0] > known:
            return True
        if atom is iteration(loop):
            return True
        if atom.kind == SYMBOL and atom.parts[0].startswith(f"carried.{loop}."):
            return True
    for what, *rest in (doubt.parts for doubt in doubts_in(poly)):
        is_new = rest[0] == loop if what == CARRIED else isinstance(what, int)
        if is_new and (what == CARRIED or what > known):
            return True
    return False


_CALLS: Final = 24
"""Calls inside one another at most."""


class Evaluator:
    """Evaluates the functions of a module.

    Args:
        functions: by name, the kernel first.
        launch: what the kernel is given.

    Attributes:
        graph: what has been found.
        constants: those of the kernel that are taken as arguments.
    """

    def __init__(self, functions: Mapping[str, Function], launch: Launch) -> None:
        self.graph = Graph()
        self._functions = functions
        self._launch = launch
        self._calls: list[tuple[str, int]] = []
        self.constants = frozenset(
            symbol(name)
            for name, argument in launch.arguments.items()
            if isinstance(argument, IntArgument) and argument.constant
        )
        self.loops = 0
        self.unknowns = 0

    def run(self) -> Graph:
        """Return the graph of the kernel."""
        kernel = next(iter(self._functions.values()))
        arguments = [
            (name, argument)
            for name, argument in self._launch.arguments.items()
            if not isinstance(argument, ConstArgument)
        ]
        given = [
            self._argument(*each, kind)
            for each, (_, kind) in zip(arguments, kernel.arguments, strict=True)
        ]
        self._function(kernel, given, Where())
        return self.graph

    def _argument(self, name: str, argument: Any, kind: Type) -> Value:
        if isinstance(argument, TensorArgument):
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
        names = dict(zip([n for n, _ in function.arguments], given, strict=True))
        reached: dict[str, list[tuple[Where, list[Value]]]] = {}
        returns: list[tuple[Where, list[Value]]] = []
        for number, block in enumerate(function.blocks):
            if number == 0:
                inside = where
            else:
                ways = reached.pop(block.label, [])
                if not ways:
                    continue
                inside = replace(
                    ways[0][0],
                    path=any_of(way.path for way, _ in ways),
                    checks=frozenset().union(*(way.checks for way, _ in ways)),
                )
                given = self._merged([(w.path, v) for w, v in ways])
                names |= zip([n for n, _ in block.arguments], given, strict=True)
            for operation in block.operations:
                if operation.name == "cf.br":
                    _jump(reached, operation.words, inside, names)
                elif operation.name == "cf.cond_br":
                    truth = self.truth(names[operation.operands[0]])
                    _, then, other = split_outer(operation.words)
                    _jump(reached, then, inside.under(truth), names)
                    opposite = replace(truth, cond=negated(truth.cond))
                    _jump(reached, other, inside.under(opposite), names)
                elif operation.name == "tt.return":
                    returns.append((inside, [names[n] for n in operation.operands]))
                else:
                    self._operation(operation, names, inside)
            if not reached.keys() <= {b.label for b in function.blocks[number + 1 :]}:
                raise Unsupported("a jump backwards")
        return self._merged([(w.path, v) for w, v in returns]) if returns else []

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
        if truth.cond in (TRUE, FALSE):
            chosen = then if truth.cond == TRUE else other
            if isinstance(chosen, Number | Truth | Pointer):
                return replace(chosen, checks=truth.checks | chosen.checks)
        match then, other:
            case Number(), Number():
                return replace(
                    then,
                    poly=choice(truth.cond, then.poly, other.poly),
                    checks=truth.checks | then.checks | other.checks,
                    wide=then.wide | other.wide,
                )
            case Truth(), Truth():
                either = all_of([negated(truth.cond), other.cond])
                made = any_of([all_of([truth.cond, then.cond]), either])
                checks = truth.checks | then.checks | other.checks
                return Truth(made, then.shape, checks)
            case Pointer(), Pointer():
                if then.base != other.base or then.itemsize != other.itemsize:
                    why = "a pointer into one of several tensors"
                    return replace(then, base="", why=then.why or other.why or why)
                return replace(
                    then,
                    poly=choice(truth.cond, then.poly, other.poly),
                    checks=truth.checks | then.checks | other.checks,
                )
        return Other(getattr(then, "shape", ()))

    def region(
        self, blocks: list[Block], given: Sequence[Value], names: dict[str, Value],
        where: Where,
    ) -> Operation | None:  # fmt: skip
        """Evaluate a region of one block; return the operation that ends it."""
        if len(blocks) != 1:
            raise Unsupported("a region of several blocks")
        names.update(zip([n for n, _ in blocks[0].arguments], given, strict=False))
        last = None
        for last in blocks[0].operations:
            if last.name != "scf.yield":
                self._operation(last, names, where)
        return last

    def _operation(
        self, operation: Operation, names: dict[str, Value], where: Where
    ) -> None:
        handler = _CONTROL.get(operation.name)
        if handler is not None:
            results = handler(self, operation, names, where)
        elif operation.regions:
            raise Unsupported(f"{operation.name} (line {self.line_of(operation)})")
        else:
            given = [names[name] for name in operation.operands]
            results = operations.evaluate(Step(self, operation, given, where))
        names.update(zip(operation.results, results, strict=True))

    def _if(
        self, operation: Operation, names: dict[str, Value], where: Where
    ) -> list[Value]:
        truth = self.truth(names[operation.operands[0]])
        opposite = replace(truth, cond=negated(truth.cond))
        ends = []
        for region, held in zip(operation.regions, (truth, opposite), strict=False):
            inner = dict(names)
            end = self.region(region, (), inner, where.under(held))
            ends.append([inner[n] for n in end.operands] if end else [])
        if not operation.results:
            return []
        return [self.chosen(truth, a, b) for a, b in zip(*ends, strict=True)]

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
        why = f"a {operation.name.removeprefix('tt.')}"
        given = [names[name] for name in operation.operands if name in names]
        return [self.fresh(kind, where, why, given) for kind in operation.made]

    # What operations are made of.

    def line_of(self, operation: Operation) -> int:
        """Return the line of an operation, in the user's source if it can be."""
        file = self._launch.file
        calls = (line for found, line in reversed(self._calls) if found == file)
        return operation.line if operation.file == file else next(calls, operation.line)

    def check(
        self, poly: Poly, bits: int, wide: frozenset[Atom], where: Where, shape: Shape,
        needs: Iterable[int], operation: Operation, what: str,
    ) -> Checks:  # fmt: skip
        """Note what has to hold for a result; return it with what it needs."""
        # Each one, also of constants: a loop's body makes the same ones twice.
        needed, line = frozenset(needs) | where.checks, self.line_of(operation)
        folded = self.folded(poly)
        made = Check(poly, bits, wide, where.path, shape, needed, line, what, folded)
        self.graph.checks.append(made)
        return frozenset({*needs, len(self.graph.checks) - 1})

    def unknown(
        self, bits: int, shape: Shape, where: Where, *,
        low: Poly | None = None, high: Poly | None = None, other: Poly | None = None,
        wide: frozenset[Atom] = frozenset(),
    ) -> Number:  # fmt: skip
        """Return a number of which only its type is known, or also its range."""
        self.unknowns += 1
        self.graph.data[self.unknowns] = Data(low, high, bits, other, wide)
        return Number(as_poly(self._atom(shape, where)), bits, shape, NO_CHECKS, wide)

    def doubt(self, shape: Shape, where: Where) -> Truth:
        """Return a condition of which nothing is known."""
        self.unknowns += 1
        atom = self._atom(shape, where)
        return Truth(Cond("data", *atom.parts), shape)

    def _atom(self, shape: Shape, where: Where) -> Atom:
        places = [program(axis) for axis in range(3)]
        places += [iteration(loop) for loop in where.loops]
        places += [lane(dim) for dim, size in enumerate(shape) if size > 1]
        return Atom(DATA, self.unknowns, tuple(map(as_poly, places)))

    def fresh(
        self, kind: Type, where: Where, why: str, given: Iterable[Value] = ()
    ) -> Value:
        """Return a value of a type of which nothing else is known.

        Args:
            kind: the type.
            where: the place.
            why: where it comes from.
            given: what it is made of: with arguments of 64 bits it has as many.
        """
        if kind.bits == 1:
            return self.doubt(kind.shape, where)
        if kind.bits:
            wide = frozenset[Atom]().union(
                *(value.wide for value in given if isinstance(value, Number))
            )
            return self.unknown(kind.bits, kind.shape, where, wide=wide)
        if kind.element == "ptr":
            size = itemsize_of(kind.pointee)
            return Pointer("", as_poly(0), size, kind.shape, why=why)
        return Other(kind.shape)

    def loaded(self, kind: Type, base: str, where: Where) -> Value:
        """Return what an argument holds: integers may stay below some number.

        There may be one among them that does not.
        """
        known = self._launch.arguments.get(base)
        if not (
            kind.bits > 1 and isinstance(known, TensorArgument)
            and known.below is not None
        ):  # fmt: skip
            return self.fresh(kind, where, f"what {base or 'memory'} holds")
        other = as_poly(symbol(f"{base}.ignored"))
        return self.unknown(
            kind.bits, kind.shape, where, low=as_poly(0),
            high=as_poly(symbol(f"{base}.below")) - 1,
            other=other if known.ignored is not None else None,
        )  # fmt: skip

    def folded(self, *parts: Poly) -> bool:
        """Whether numbers consist of a kernel's constants alone: Python computes them.

        It divides and counts down otherwise than Triton does.
        """
        leaves = set(leaves_of(parts))
        return bool(leaves) and self.constants >= leaves

    def truth(self, value: Value) -> Truth:
        """Return a value as a condition; see `number`."""
        if not isinstance(value, Truth):
            raise Unsupported("a condition that is none")
        return value

    def number(self, value: Value) -> Number:
        """Return a value as an integer.

        Raises:
            Unsupported: if it is none.
        """
        if not isinstance(value, Number):
            raise Unsupported("a loop bound that is no integer")
        return value


def _jump(
    reached: dict[str, list[tuple[Where, list[Value]]]], target: str, where: Where,
    names: Mapping[str, Value],
) -> None:  # fmt: skip
    label, _, given = target.partition("(")
    passed = given.partition(" : ")[0].partition(":")[0].rstrip(")").split(",")
    values = [names[n.strip()] for n in passed if n.strip()]
    reached.setdefault(label.strip(), []).append((where, values))


_CONTROL: Final[dict[str, Any]] = {
    "scf.if": Evaluator._if,
    "scf.for": repeated,
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
        evaluator.graph.open = str(error)
    return evaluator.graph


# Triton's IR of a launch, as its frontend makes it: no pass has run, no GPU is asked.
#
# No pass, because what is proved has to hold for what the kernel says: passes drop
# loads that nothing uses and merge those that are alike.

# What the frontend asks of a GPU is asked of this one; an H100.
TARGET: Final = GPUTarget("cuda", 90, 32)
WIDE: Final = "i64"
NARROW: Final = "i32"


def ttir(function: Any, launch: Launch, *, integers: str = "") -> str:
    """Return the text of a launch's module, with locations.

    Arguments are neither specialised to 1 nor by divisibility: what holds of the
    general kernel holds of each special one, the same program partially evaluated.

    Args:
        function: `triton.runtime.jit.JITFunction`.
        launch: how it is launched.
        integers: type of the integers that have none declared: "i32", "i64"; by
            default as each is launched.

    Raises:
        NotCompiledError: if the frontend refuses it.
    """
    from triton._C.libtriton import ir

    source = source_of(function, launch, integers=integers)
    backend = make_backend(TARGET)
    options = backend.parse_options(dict(launch.options))
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    try:
        module = source.make_ir(
            TARGET,
            options,
            backend.get_codegen_implementation(options),
            backend.get_module_map(),
            context,
        )
    except Exception as error:
        raise NotCompiledError(said(error)) from error
    return str(module)
