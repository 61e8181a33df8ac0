"""What single operations of Triton's IR do to symbolic values.

An operation that is not listed and makes integers, pointers or conditions, or has an
effect, is not understood. `PURE` lists what only computes: its floats carry no address,
its integers may be anything.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from kfuzz.prove.ir import memory, promises
from kfuzz.prove.ir.terms import (
    FALSE,
    LANE,
    TRUE,
    Poly,
    Rewriter,
    all_of,
    any_of,
    as_poly,
    at_most,
    below,
    equal,
    greatest,
    least,
    negated,
    quotient,
    remainder,
)
from kfuzz.prove.ir.ttir import Operation
from kfuzz.prove.ir.values import (
    Number,
    Other,
    Pointer,
    Shape,
    Truth,
    Unsupported,
    Value,
    grid,
    itemsize_of,
    lane,
    moved,
    number_of,
    program,
)

if TYPE_CHECKING:
    from kfuzz.prove.ir.graph import Evaluator
    from kfuzz.prove.ir.values import Where

_AXES: Final = {"x": 0, "y": 1, "z": 2}
# Nothing that an address could depend on comes of these, or only an unknown integer.
PURE: Final = (
    "math.", "arith.addf", "arith.subf", "arith.mulf", "arith.divf", "arith.remf",
    "arith.negf", "arith.maxnumf", "arith.minnumf", "arith.maximumf", "arith.minimumf",
    "arith.truncf", "arith.extf", "arith.sitofp", "arith.uitofp", "arith.fptosi",
    "arith.fptoui", "tt.dot", "tt.fp_to_fp", "tt.clampf", "tt.precise_",
    "tt.mulhiui", "tt.extern_elementwise", "tt.histogram", "tt.gather", "ub.poison",
    "tt.bitcast", "tt.cat", "arith.mulsi_extended", "arith.mului_extended",
)  # fmt: skip
_SILENT: Final = (
    "tt.print", "tt.assert", "ttg.barrier", "gpu.barrier", "tt.debug_barrier",
)  # fmt: skip
# Of operands that are at least 0 these are what they are of unbounded integers.
_POSITIVE: Final = frozenset(
    f"arith.{name}"
    for name in ("divui", "remui", "shrui", "shrsi", "andi", "maxui", "minui")
)
_SUMS: Final = {
    "arith.addi": "sum",
    "arith.subi": "difference",
    "arith.muli": "product",
}


def evaluate(
    graph: "Evaluator", operation: Operation, given: Sequence[Value], where: "Where"
) -> list[Value]:
    """Return the results of an operation.

    Raises:
        Unsupported: if what it does is not understood.
    """
    name = operation.name
    handler = _HANDLERS.get(name)
    if handler is not None:
        made: list[Value] = handler(graph, operation, given, where)
    elif name in _SILENT:
        made = []
    elif name.startswith(PURE):
        why = f"a result of {name}"
        made = [graph.fresh(kind, where, why, given) for kind in operation.made]
    else:
        _, line = graph.place(operation)
        raise Unsupported(f"{name} (line {line})")
    if operation.attributes and made and isinstance(made[0], Number):
        promises.note(graph, operation, made[0], where)
    return made


def _constant(
    graph: "Evaluator", operation: Operation, given: Sequence[Value], where: "Where"
) -> list[Value]:
    text = operation.words
    if not operation.made and text.strip() in ("true", "false"):  # prints no type
        return [Truth(TRUE if text.strip() == "true" else FALSE)]
    (kind,) = operation.made
    if found := re.fullmatch(r"dense<(.*)>", text, re.DOTALL):
        text = found[1]
    if kind.bits == 1 and text in ("true", "false"):
        return [Truth(TRUE if text == "true" else FALSE, kind.shape)]
    if kind.bits and re.fullmatch(r"-?\d+", text):
        if kind.bits == 1:
            return [Truth(TRUE if int(text) else FALSE, kind.shape)]
        return [Number(as_poly(int(text)), kind.bits, kind.shape)]
    return [graph.fresh(kind, where, "a constant block")]


def _program_id(
    graph: "Evaluator", operation: Operation, given: Sequence[Value], where: "Where"
) -> list[Value]:
    return [Number(as_poly(program(_AXES[operation.words.strip()])), 32)]


def _programs(
    graph: "Evaluator", operation: Operation, given: Sequence[Value], where: "Where"
) -> list[Value]:
    return [Number(as_poly(grid(_AXES[operation.words.strip()])), 32)]


def _range(
    graph: "Evaluator", operation: Operation, given: Sequence[Value], where: "Where"
) -> list[Value]:
    start = int(_attribute(operation, "start"))
    (kind,) = operation.made
    place = as_poly(lane(0)) if kind.shape[0] > 1 else as_poly(0)
    return [Number(place + start, 32, kind.shape)]


def _attribute(operation: Operation, name: str) -> str:
    found = re.search(rf"\b{name} = (-?\d+)", operation.attributes)
    if found is None:
        raise KeyError(name)
    return found[1]


def _reshaped(
    value: Value, shape: Shape, places: Callable[[int], Poly | None]
) -> Value:
    """Return a block's value in another shape.

    Args:
        value: the block.
        shape: the new one.
        places: returns what the place along an old dimension is in the new block.
    """
    if not isinstance(value, Number | Truth | Pointer):
        return Other(shape)
    rewriter = Rewriter(lambda a: places(a.parts[0]) if a.kind == LANE else None)
    stays = all(
        size == 1 or rewriter.atom(lane(dim)).single is lane(dim)
        for dim, size in enumerate(value.shape)
    )
    checks = value.checks if stays else moved(value.checks)
    match value:
        case Number():
            poly = rewriter.poly(value.poly)
            return replace(value, poly=poly, shape=shape, checks=checks)
        case Truth():
            cond = rewriter.cond(value.cond)
            return replace(value, cond=cond, shape=shape, checks=checks)
    offset = rewriter.poly(value.offset)
    return replace(value, offset=offset, shape=shape, checks=checks)


def _same(dim: int) -> Poly | None:
    return None


def _splat(
    graph: "Evaluator", operation: Operation, given: Sequence[Value], where: "Where"
) -> list[Value]:
    return [_reshaped(given[0], operation.made[0].shape, _same)]


def _expand(
    graph: "Evaluator", operation: Operation, given: Sequence[Value], where: "Where"
) -> list[Value]:
    axis = int(_attribute(operation, "axis"))

    def placed(dim: int) -> Poly | None:
        return as_poly(lane(dim + 1)) if dim >= axis else None

    return [_reshaped(given[0], operation.made[0].shape, placed)]


def _transposed(
    graph: "Evaluator", operation: Operation, given: Sequence[Value], where: "Where"
) -> list[Value]:
    found = re.search(r"order = array<i32: ([\d, ]*)>", operation.attributes)
    assert found is not None
    order = [int(n) for n in found[1].split(",")]

    def placed(dim: int) -> Poly:
        return as_poly(lane(order.index(dim)))

    return [_reshaped(given[0], operation.made[0].shape, placed)]


def _reshape(
    graph: "Evaluator", operation: Operation, given: Sequence[Value], where: "Where"
) -> list[Value]:
    shape = operation.made[0].shape
    old = getattr(given[0], "shape", ())
    if isinstance(given[0], Other):
        return [Other(shape)]
    if "allow_reorder" in operation.words + operation.attributes:
        return [graph.fresh(operation.made[0], where, "a reordered block", given)]
    flat = as_poly(0)
    for dim, size in enumerate(shape):
        place = as_poly(lane(dim)) if size > 1 else as_poly(0)
        flat = flat * size + place
    steps: list[int] = []
    step = 1
    for size in reversed(old):
        steps.insert(0, step)
        step *= size

    def placed(dim: int) -> Poly:
        upper = remainder(flat, as_poly(steps[dim] * old[dim])) if dim else flat
        return quotient(upper, as_poly(steps[dim]))

    return [_reshaped(given[0], shape, placed)]


def _unsplat(
    graph: "Evaluator", operation: Operation, given: Sequence[Value], where: "Where"
) -> list[Value]:
    return [_reshaped(given[0], (), lambda dim: as_poly(0))]


def _join(
    graph: "Evaluator", operation: Operation, given: Sequence[Value], where: "Where"
) -> list[Value]:
    shape = operation.made[0].shape
    last = equal(as_poly(lane(len(shape) - 1)), 0)
    first, second = (_reshaped(value, shape, _same) for value in given)
    return [graph.chosen(Truth(last, shape), first, second)]


def _split(
    graph: "Evaluator", operation: Operation, given: Sequence[Value], where: "Where"
) -> list[Value]:
    shape = getattr(given[0], "shape", ())

    def half(which: int) -> Value:
        at = len(shape) - 1
        return _reshaped(
            given[0], shape[:-1], lambda dim: as_poly(which) if dim == at else None
        )

    return [half(0), half(1)]


def _addptr(
    graph: "Evaluator", operation: Operation, given: Sequence[Value], where: "Where"
) -> list[Value]:
    pointer, number = given
    if not isinstance(pointer, Pointer):
        raise Unsupported("a pointer that is none")
    if isinstance(number, Truth):
        number = number_of(number)
    if not isinstance(number, Number):
        raise Unsupported("an offset that is no integer")
    return [
        replace(
            pointer,
            offset=pointer.offset + number.poly,
            checks=pointer.checks | number.checks,
        )
    ]


def _arithmetic(
    graph: "Evaluator", operation: Operation, given: Sequence[Value], where: "Where"
) -> list[Value]:
    if all(isinstance(v, Truth) for v in given):
        return [
            graph.fresh(operation.made[0], where, f"{operation.name} of conditions")
        ]
    left, right = map(number_of, given)
    checks, wide = left.checks | right.checks, left.wide | right.wide
    a, b = left.poly, right.poly
    what = _SUMS.get(operation.name)
    bits, shape = left.bits, left.shape
    if what is not None:
        made = a + b if what == "sum" else a - b if what == "difference" else a * b
        checks = graph.check(made, bits, wide, where, shape, checks, operation, what)
        return [Number(made, bits, shape, checks, wide)]
    if operation.name == "arith.shli":
        if (by := b.constant) is None or not 0 <= by < bits:
            # Noted all the same: loops count checks.
            graph.check(as_poly(0), bits, wide, where, shape, (), operation, "shift")
            return [graph.unknown(bits, shape, where, "a shift", wide=wide)]
        made = a * (1 << by)
        checks = graph.check(made, bits, wide, where, shape, checks, operation, "shift")
        return [Number(made, bits, shape, checks, wide)]
    if operation.name in _POSITIVE:
        for each in (a, b):
            checks = graph.check(
                each, 0, wide, where, shape, checks, operation, "unsigned operand"
            )
    match operation.name:
        case "arith.divsi" | "arith.divui":
            made = quotient(a, b)
        case "arith.remsi" | "arith.remui":
            made = remainder(a, b)
        case "arith.minsi" | "arith.minui":
            made = least(a, b)
        case "arith.maxsi" | "arith.maxui":
            made = greatest(a, b)
        case "arith.shrsi" | "arith.shrui" if b.constant is not None:
            made = quotient(a, as_poly(1 << b.constant))
        case "arith.andi" if _is_mask(b.constant):
            made = remainder(a, b + 1)
        case _:
            why = f"a result of {operation.name}"
            return [graph.unknown(bits, shape, where, why, wide=wide)]
    return [Number(made, bits, shape, checks, wide)]


def _is_mask(value: int | None) -> bool:
    return value is not None and value > 0 and value & (value + 1) == 0


def _logic(
    graph: "Evaluator", operation: Operation, given: Sequence[Value], where: "Where"
) -> list[Value]:
    left, right = given
    if not (isinstance(left, Truth) and isinstance(right, Truth)):
        return _arithmetic(graph, operation, given, where)
    checks = left.checks | right.checks
    match operation.name:
        case "arith.andi" | "arith.muli" | "arith.minui":
            made = all_of([left.cond, right.cond])
        case "arith.ori" | "arith.maxui":
            made = any_of([left.cond, right.cond])
        case _:  # arith.xori
            one = all_of([left.cond, negated(right.cond)])
            made = any_of([one, all_of([negated(left.cond), right.cond])])
    return [Truth(made, left.shape, checks)]


def _compared(
    graph: "Evaluator", operation: Operation, given: Sequence[Value], where: "Where"
) -> list[Value]:
    left, right = given
    shape = getattr(left, "shape", ())
    if not all(isinstance(v, Number | Truth) for v in given):
        return [graph.doubt(shape, where)]
    how = operation.words.partition(",")[0].strip()
    first, second = number_of(left), number_of(right)
    checks = first.checks | second.checks
    a, b = first.poly, second.poly
    if how.startswith("u"):
        for each in (a, b):
            checks = graph.check(
                each, 0, first.wide, where, shape, checks, operation,
                "unsigned operand",
            )  # fmt: skip
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


def _select(
    graph: "Evaluator", operation: Operation, given: Sequence[Value], where: "Where"
) -> list[Value]:
    condition, then, other = given
    assert isinstance(condition, Truth)
    return [graph.chosen(condition, then, other)]


def _cast(
    graph: "Evaluator", operation: Operation, given: Sequence[Value], where: "Where"
) -> list[Value]:
    (kind,) = operation.made
    value = given[0]
    if not isinstance(value, Number | Truth):
        return [graph.fresh(kind, where, f"a result of {operation.name}", given)]
    number = number_of(value)
    signed = operation.name == "arith.extsi" and isinstance(value, Truth)
    poly = -number.poly if signed else number.poly
    checks = number.checks
    if operation.name == "arith.extui" and not isinstance(value, Truth):
        checks = graph.check(
            poly, 0, number.wide, where, kind.shape, checks, operation,
            "unsigned operand",
        )  # fmt: skip
    if operation.name == "arith.trunci":
        if kind.bits == 1:
            return [graph.doubt(kind.shape, where)]
        checks = graph.check(
            poly, kind.bits, frozenset(), where, kind.shape, checks, operation,
            "narrowed integer",
        )  # fmt: skip
        return [Number(poly, kind.bits, kind.shape, checks)]
    return [Number(poly, kind.bits, kind.shape, checks, number.wide)]


def _bitcast(
    graph: "Evaluator", operation: Operation, given: Sequence[Value], where: "Where"
) -> list[Value]:
    (kind,) = operation.made
    value = given[0]
    if isinstance(value, Number) and kind.bits == value.bits:
        return [value]
    if isinstance(value, Truth) and kind.bits == 1:
        return [value]
    size = itemsize_of(kind.pointee) if kind.element == "ptr" else 0
    if isinstance(value, Pointer) and size == value.itemsize:
        return [value]
    return [graph.fresh(kind, where, f"a result of {operation.name}", given)]


_HANDLERS: Final[dict[str, Any]] = {
    "arith.constant": _constant,
    "tt.get_program_id": _program_id,
    "tt.get_num_programs": _programs,
    "tt.make_range": _range,
    "tt.splat": _splat,
    "tt.broadcast": _splat,
    "tt.unsplat": _unsplat,
    "tt.expand_dims": _expand,
    "tt.trans": _transposed,
    "tt.reshape": _reshape,
    "tt.join": _join,
    "tt.split": _split,
    "tt.addptr": _addptr,
    "arith.select": _select,
    "arith.cmpi": _compared,
    "arith.cmpf": _compared,
    "arith.bitcast": _bitcast,
    "tt.bitcast": _bitcast,
    "llvm.intr.assume": promises.assumed,
    **memory.HANDLERS,
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
