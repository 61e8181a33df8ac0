"""Loops: what they carry, in closed form where each iteration adds the same."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kfuzz.prove.ir.terms import (
    DATA,
    SYMBOL,
    Atom,
    Cond,
    Poly,
    all_of,
    as_poly,
    at_most,
    atoms_in,
    below,
    doubts_in,
    greatest,
    quotient,
)
from kfuzz.prove.ir.ttir import Operation
from kfuzz.prove.ir.values import (
    Checks,
    Descriptor,
    Number,
    Pointer,
    Truth,
    Unsupported,
    Value,
    Where,
    iteration,
)

if TYPE_CHECKING:
    from kfuzz.prove.ir.graph import Evaluator

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
    index = low.poly + as_poly(place) * step.poly
    running = Truth(all_of([at_most(0, place), below(index, high.poly)]), (), checks)
    inside = replace(where.under(running), loops=(*where.loops, loop))
    value = Number(index, low.bits, (), checks, wide)
    # Once to see what each iteration adds, then with that.
    kept = len(ev.graph.accesses), len(ev.graph.checks), len(ev.graph.hints)
    known = ev.unknowns
    guesses = [_carried(ev, init, loop, j) for j, init in enumerate(inits)]
    ends = _body(ev, operation, counter, carried, value, guesses, names, inside)
    counted = len(ev.graph.checks) - kept[1]
    del ev.graph.accesses[kept[0] :]
    del ev.graph.checks[kept[1] :]
    del ev.graph.hints[kept[2] :]
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
    if len(ev.graph.checks) != made + counted:  # what a form needs is told by number
        raise Unsupported("a loop whose operations depend on what it carries")
    trips = quotient(
        greatest(high.poly - low.poly, as_poly(0)) + step.poly - 1, step.poly
    )
    return [
        _after(ev, init, delta, trips, checks, where)
        for init, (_, delta) in zip(inits, forms, strict=True)
    ]


def _body(
    ev: "Evaluator", operation: Operation, counter: str, carried: Sequence[str],
    index: Number, given: Sequence[Value], names: dict[str, Value], where: Where,
) -> list[Value]:  # fmt: skip
    inner = {**names, counter: index, **dict(zip(carried, given, strict=True))}
    end = ev.region(operation.regions[0], (), inner, where)
    return [inner[name] for name in end.operands] if end and given else []


def _carried(ev: "Evaluator", init: Value, loop: int, number: int) -> Value:
    """Return what stands for a carried value in the first evaluation."""
    atom = as_poly(Atom(SYMBOL, f"carried.{loop}.{number}"))
    match init:
        case Number():
            return replace(init, poly=atom)
        case Pointer():
            return replace(init, offset=init.offset + atom)
        case Truth():
            return replace(init, cond=Cond("data", CARRIED, loop, number))
    return init


def _closed(
    ev: "Evaluator", init: Value, guess: Value, end: Value,
    varies: Callable[[Poly], bool], place: Atom, where: Where,
) -> tuple[Value, Any]:  # fmt: skip
    """Return a carried value in an iteration, and what each one adds.

    The second is None where that is unknown.
    """
    count = as_poly(place)
    match init, guess, end:
        case Number(), Number(), Number():
            delta = end.poly - guess.poly
            if not varies(delta) and not _has(guess.poly, delta):
                made = replace(
                    init,
                    poly=init.poly + count * delta,
                    checks=init.checks | end.checks,
                    wide=init.wide | end.wide,
                )
                return made, replace(end, poly=delta)
            wide = init.wide | end.wide
            return ev.unknown(init.bits, init.shape, where, wide=wide), None
        case Pointer(), Pointer(), Pointer():
            if end.base != init.base:
                return replace(init, base="", why="a pointer that a loop changes"), None
            delta = end.offset - guess.offset
            if not varies(delta):
                made_ = replace(
                    init,
                    offset=init.offset + count * delta,
                    checks=init.checks | end.checks,
                )
                return made_, replace(end, offset=delta)
            away = ev.unknown(64, init.shape, where)
            return replace(init, offset=away.poly), None
        case Truth(), _, _:
            return ev.doubt(init.shape, where), None
        case Descriptor(), _, _ if end != guess:
            raise Unsupported("a descriptor that a loop changes")
    return init, None


def _after(
    ev: "Evaluator", init: Value, delta: Any, trips: Poly, checks: Checks, where: Where
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
            return ev.unknown(init.bits, init.shape, where, wide=init.wide)
        case Pointer() if isinstance(delta, Pointer):
            return replace(
                init,
                offset=init.offset + trips * delta.offset,
                checks=init.checks | delta.checks | checks,
            )
        case Pointer():
            return replace(init, base="", why="a pointer that a loop changes")
        case Truth():
            return ev.doubt(init.shape, where)
    return init


def until(
    ev: "Evaluator", operation: Operation, names: dict[str, Value], where: Where
) -> list[Value]:
    """Evaluate a loop of which nothing is known but its condition."""
    ev.loops += 1
    loop = ev.loops
    inside = replace(where, loops=(*where.loops, loop))
    held = operation.operands
    carried, inits = held[0::2], [names[n] for n in held[1::2]]
    given = [_anything(ev, init, inside) for init in inits]
    inner = {**names, **dict(zip(carried, given, strict=True))}
    end = ev.region(operation.regions[0], (), inner, inside)
    if end is None or end.name != "scf.condition":
        raise Unsupported("a loop without a condition")
    truth = ev.truth(inner[end.operands[0]])
    passed = [inner[name] for name in end.operands[1:]]
    last = ev.region(operation.regions[1], passed, inner, inside.under(truth))
    ends = [inner[name] for name in last.operands] if last else []
    for init, value in zip(inits, ends, strict=True):
        if isinstance(init, Pointer) and getattr(value, "base", "") != init.base:
            raise Unsupported("a pointer that a loop changes")
        if isinstance(init, Descriptor) and value != init:
            raise Unsupported("a descriptor that a loop changes")
    return [_anything(ev, value, where) for value in passed]


def _anything(ev: "Evaluator", value: Value, where: Where) -> Value:
    """Return what may be any value of the kind of another one."""
    match value:
        case Number():
            return ev.unknown(value.bits, value.shape, where, wide=value.wide)
        case Pointer():
            away = ev.unknown(64, value.shape, where)
            return replace(value, offset=away.poly)
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


def _has(guess: Poly, delta: Poly) -> bool:
    atom = guess.single
    return atom is not None and any(a is atom for a in atoms_in(delta))
