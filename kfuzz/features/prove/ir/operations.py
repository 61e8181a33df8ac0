"""What single operations of Triton's IR do to symbolic values.

An operation that is not listed and makes integers, pointers or conditions, or has an
effect, is not understood. `PURE` lists what only computes: its floats carry no address,
its integers may be anything.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from kfuzz.features.prove.ir.ttir import parse_type, split_outer
from kfuzz.features.prove.ir.values import (
    ATOMIC,
    FALSE,
    LANE,
    LOAD,
    NO_CHECKS,
    STORE,
    TRUE,
    Access,
    Number,
    Other,
    Pointer,
    Poly,
    Rewriter,
    Shape,
    Step,
    Truth,
    Unsupported,
    Value,
    all_of,
    any_of,
    as_poly,
    at_most,
    below,
    equal,
    greatest,
    grid,
    itemsize_of,
    lane,
    least,
    moved,
    negated,
    number_of,
    program,
    quotient,
    remainder,
)

# What loads, stores and atomics do: accesses of the graph.


def _access(step: Step, kind: str, pointer: Value, mask: Value | None) -> None:
    if not isinstance(pointer, Pointer):
        raise Unsupported(f"a {kind} through what is no pointer")
    if mask is not None and not isinstance(mask, Truth):
        raise Unsupported("a mask that is none")
    held = TRUE if mask is None else mask.cond
    guards = step.where.checks | (NO_CHECKS if mask is None else mask.checks)
    line = step.graph.line_of(step.operation)
    step.graph.graph.accesses.append(
        Access(
            kind, pointer.base, pointer.poly, held, step.where.path, pointer.shape,
            pointer.checks, guards, line, pointer.why,
        )
    )  # fmt: skip


def _load(step: Step) -> list[Value]:
    graph, where = step.graph, step.where
    pointer, *rest = step.given
    mask = rest[0] if rest else None
    _access(step, LOAD, pointer, mask)
    assert isinstance(pointer, Pointer)
    kinds = map(parse_type, split_outer(step.operation.types.strip("()")))
    pointee = next(kind.pointee for kind in kinds if kind.element == "ptr")
    kind = replace(parse_type(pointee), shape=pointer.shape)
    made = graph.loaded(kind, pointer.base, where)
    if isinstance(mask, Truth) and not isinstance(made, Other):
        unread = rest[1:2] or [graph.fresh(kind, where, "a masked load")]
        made = graph.chosen(mask, made, unread[0])
    return [made]


def _store(step: Step) -> list[Value]:
    pointer, _, *rest = step.given
    _access(step, STORE, pointer, rest[0] if rest else None)
    return []


def _atomic(step: Step) -> list[Value]:
    pointer, *rest = step.given
    masked = step.operation.name == "tt.atomic_rmw" and len(rest) > 1
    _access(step, ATOMIC, pointer, rest[1] if masked else None)
    return step._replace(given=()).fresh("what an atomic gives")


# Nothing that an address could depend on comes of these, or only an unknown integer.
PURE: Final = (
    "math.", "arith.addf", "arith.subf", "arith.mulf", "arith.divf", "arith.remf",
    "arith.negf", "arith.maxnumf", "arith.minnumf", "arith.maximumf", "arith.minimumf",
    "arith.truncf", "arith.extf", "arith.sitofp", "arith.uitofp", "arith.fptosi",
    "arith.fptoui", "tt.dot", "tt.fp_to_fp", "tt.clampf", "tt.precise_",
    "tt.trans", "tt.reshape", "tt.mulhiui", "tt.extern_elementwise", "tt.histogram",
    "tt.gather", "ub.poison",
    "tt.bitcast", "tt.cat", "tt.join", "arith.mulsi_extended", "arith.mului_extended",
)  # fmt: skip
_SILENT: Final = (
    "tt.print", "tt.assert", "llvm.intr.assume", "ttg.barrier", "gpu.barrier",
    "tt.debug_barrier",
)  # fmt: skip
# Of operands that are at least 0 these are what they are of unbounded integers.
_POSITIVE: Final = frozenset(
    f"arith.{name}" for name in ("divui", "remui", "maxui", "minui")
)
# Python's are these of operands that are at least 0.
_TRUNCATED: Final = ("arith.divsi", "arith.remsi")
_SUMS: Final = {
    "arith.addi": "sum",
    "arith.subi": "difference",
    "arith.muli": "product",
}


def evaluate(step: Step) -> list[Value]:
    """Return the results of an operation.

    Raises:
        Unsupported: if what it does is not understood.
    """
    operation, name = step.operation, step.operation.name
    if (handler := _HANDLERS.get(name)) is not None:
        made: list[Value] = handler(step)
    elif name in _SILENT:
        made = []
    elif name.startswith(PURE):
        made = step.fresh(f"a result of {name}")
    else:
        raise Unsupported(f"{name} (line {step.graph.line_of(operation)})")
    return made


def _constant(step: Step) -> list[Value]:
    text = step.operation.words
    if not step.operation.made and text.strip() in ("true", "false"):  # prints no type
        return [Truth(TRUE if text.strip() == "true" else FALSE)]
    (kind,) = step.operation.made
    if found := re.fullmatch(r"dense<(.*)>", text, re.DOTALL):
        text = found[1]
    if kind.bits == 1 and text in ("true", "false"):
        return [Truth(TRUE if text == "true" else FALSE, kind.shape)]
    if kind.bits and re.fullmatch(r"-?\d+", text):
        if kind.bits == 1:
            return [Truth(TRUE if int(text) else FALSE, kind.shape)]
        return [Number(as_poly(int(text)), kind.bits, kind.shape)]
    return step.fresh("a constant block")


def _program(step: Step) -> list[Value]:
    which = program if step.operation.name == "tt.get_program_id" else grid
    return [Number(as_poly(which("xyz".index(step.operation.words.strip()))), 32)]


def _range(step: Step) -> list[Value]:
    start = _attribute(step, "start")
    (kind,) = step.operation.made
    place = as_poly(lane(0)) if kind.shape[0] > 1 else as_poly(0)
    return [Number(place + start, 32, kind.shape)]


def _attribute(step: Step, name: str) -> int:
    found = re.search(rf"\b{name} = (-?\d+)", step.operation.attributes)
    if found is None:
        raise KeyError(name)
    return int(found[1])


def _reshaped(
    value: Value, shape: Shape, places: Callable[[int], Poly | None] = lambda dim: None
) -> Value:
    """Return a block's value in another shape.

    Args:
        value: the block.
        shape: the new one.
        places: returns what the place along an old dimension is in the new block; None
            where it is the same.
    """
    if not isinstance(value, Number | Truth | Pointer):
        return Other(shape)
    rewriter = Rewriter(lambda a: places(a.parts[0]) if a.kind == LANE else None)
    stays = all(
        size == 1 or rewriter.atom(lane(dim)).single is lane(dim)
        for dim, size in enumerate(value.shape)
    )
    checks = value.checks if stays else moved(value.checks)
    if isinstance(value, Truth):
        cond = rewriter.cond(value.cond)
        return replace(value, cond=cond, shape=shape, checks=checks)
    poly = rewriter.poly(value.poly)
    return replace(value, poly=poly, shape=shape, checks=checks)


def _splat(step: Step) -> list[Value]:
    return [_reshaped(step.given[0], step.operation.made[0].shape)]


def _expand(step: Step) -> list[Value]:
    axis, shape = _attribute(step, "axis"), step.operation.made[0].shape
    return [
        _reshaped(step.given[0], shape, lambda dim: as_poly(lane(dim + (dim >= axis))))
    ]


def _split(step: Step) -> list[Value]:
    """Return the halves; the text has the type of both once."""
    return [value for _ in step.operation.results for value in step.fresh("a half")]


def _addptr(step: Step) -> list[Value]:
    pointer, number = step.given
    if not isinstance(pointer, Pointer):
        raise Unsupported("a pointer that is none")
    number = number_of(number)
    poly, checks = pointer.poly + number.poly, pointer.checks | number.checks
    return [replace(pointer, poly=poly, checks=checks)]


def _arithmetic(step: Step) -> list[Value]:
    if all(isinstance(v, Truth) for v in step.given):
        return step.fresh(f"{step.operation.name} of conditions")
    left, right = map(number_of, step.given)
    checks, wide = left.checks | right.checks, left.wide | right.wide
    a, b = left.poly, right.poly
    what = _SUMS.get(step.operation.name)
    bits, shape = left.bits, left.shape
    if what is not None:
        made = a + b if what == "sum" else a - b if what == "difference" else a * b
        checks = step.check(made, bits, what, shape, checks, wide)
        return [Number(made, bits, shape, checks, wide)]
    if step.operation.name in _POSITIVE or (
        step.operation.name in _TRUNCATED and step.graph.folded(a, b)
    ):
        for each in (a, b):
            checks = step.check(each, 0, "unsigned operand", shape, checks, wide)
    match step.operation.name:
        case "arith.divsi" | "arith.divui":
            made = quotient(a, b)
        case "arith.remsi" | "arith.remui":
            made = remainder(a, b)
        case "arith.minsi" | "arith.minui":
            made = least(a, b)
        case "arith.maxsi" | "arith.maxui":
            made = greatest(a, b)
        case _:
            return [step.graph.unknown(bits, shape, step.where, wide=wide)]
    return [Number(made, bits, shape, checks, wide)]


def _logic(step: Step) -> list[Value]:
    left, right = step.given
    if not (isinstance(left, Truth) and isinstance(right, Truth)):
        return _arithmetic(step)
    checks = left.checks | right.checks
    match step.operation.name:
        case "arith.andi" | "arith.muli" | "arith.minui":
            made = all_of([left.cond, right.cond])
        case "arith.ori" | "arith.maxui":
            made = any_of([left.cond, right.cond])
        case _:  # arith.xori
            return [step.graph.doubt(left.shape, step.where)]
    return [Truth(made, left.shape, checks)]


def _compared(step: Step) -> list[Value]:
    left, right = step.given
    shape = getattr(left, "shape", ())
    if not all(isinstance(v, Number | Truth) for v in step.given):
        return [step.graph.doubt(shape, step.where)]
    how = step.operation.words.partition(",")[0].strip()
    first, second = number_of(left), number_of(right)
    checks = first.checks | second.checks
    a, b = first.poly, second.poly
    if how.startswith("u"):
        for each in (a, b):
            checks = step.check(each, 0, "unsigned operand", shape, checks, first.wide)
        how = f"s{how[1:]}"
    made = {
        "eq": lambda: equal(a, b),
        "ne": lambda: negated(equal(a, b)),
        "slt": lambda: below(a, b),
        "sle": lambda: at_most(a, b),
        "sgt": lambda: below(b, a),
        "sge": lambda: at_most(b, a),
    }[how]()
    return [Truth(made, shape, checks)]


def _select(step: Step) -> list[Value]:
    condition, then, other = step.given
    assert isinstance(condition, Truth)
    return [step.graph.chosen(condition, then, other)]


def _cast(step: Step) -> list[Value]:
    (kind,) = step.operation.made
    value = step.given[0]
    if not isinstance(value, Number | Truth):
        return step.fresh(f"a result of {step.operation.name}")
    number = number_of(value)
    if 1 < number.bits < min(kind.bits, 32) and step.graph.constants:
        raise Unsupported("a narrow integer beside a constant: it may stay narrow")
    signed = step.operation.name == "arith.extsi" and isinstance(value, Truth)
    poly = -number.poly if signed else number.poly
    checks = number.checks
    if step.operation.name == "arith.extui" and not isinstance(value, Truth):
        what = "unsigned operand"
        checks = step.check(poly, 0, what, kind.shape, checks, number.wide)
    if step.operation.name == "arith.trunci":
        if kind.bits == 1:
            return [step.graph.doubt(kind.shape, step.where)]
        checks = step.check(poly, kind.bits, "narrowed integer", kind.shape, checks)
        return [Number(poly, kind.bits, kind.shape, checks)]
    return [Number(poly, kind.bits, kind.shape, checks, number.wide)]


def _bitcast(step: Step) -> list[Value]:
    (kind,) = step.operation.made
    value = step.given[0]
    if isinstance(value, Number) and kind.bits == value.bits:
        return [value]
    if isinstance(value, Truth) and kind.bits == 1:
        return [value]
    size = itemsize_of(kind.pointee) if kind.element == "ptr" else 0
    if isinstance(value, Pointer) and size == value.itemsize:
        return [value]
    return step.fresh(f"a result of {step.operation.name}")


_HANDLERS: Final[dict[str, Any]] = {
    "arith.constant": _constant,
    "tt.get_program_id": _program,
    "tt.get_num_programs": _program,
    "tt.make_range": _range,
    "tt.splat": _splat,
    "tt.broadcast": _splat,
    "tt.expand_dims": _expand,
    "tt.split": _split,
    "tt.addptr": _addptr,
    "arith.select": _select,
    "arith.cmpi": _compared,
    "arith.cmpf": _compared,
    "arith.bitcast": _bitcast,
    "tt.bitcast": _bitcast,
    "tt.load": _load,
    "tt.store": _store,
    "tt.atomic_rmw": _atomic,
    "tt.atomic_cas": _atomic,
    **{
        f"arith.{name}": _cast for name in ("extsi", "extui", "trunci", "index_cast")
    },
    **{f"arith.{name}": _logic for name in ("andi", "ori", "xori")},
    **{
        f"arith.{name}": _arithmetic
        for name in (
            "addi", "subi", "muli", "divsi", "divui", "remsi", "remui", "minsi",
            "minui", "maxsi", "maxui", "shli", "shrsi", "shrui", "ceildivsi",
            "floordivsi",
        )
    },
}  # fmt: skip
