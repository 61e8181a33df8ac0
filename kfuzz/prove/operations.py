"""What single operations of Triton's IR do to symbolic values.

An operation that is not listed and makes integers, pointers or conditions, or has an
effect, is not understood. `PURE` lists what only computes: its floats carry no address,
its integers may be anything.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from kfuzz.prove.terms import (
    FALSE,
    LANE,
    TRUE,
    Cond,
    Poly,
    Rewriter,
    all_of,
    any_of,
    as_poly,
    at_most,
    below,
    choice,
    equal,
    greatest,
    least,
    negated,
    quotient,
    remainder,
)
from kfuzz.prove.ttir import Operation, Type, parse_type, split_outer
from kfuzz.prove.values import (
    ATOMIC,
    LOAD,
    NO_CHECKS,
    STORE,
    Access,
    Descriptor,
    Hint,
    Number,
    Other,
    Pointer,
    Shape,
    Truth,
    Value,
    grid,
    lane,
    program,
)

if TYPE_CHECKING:
    from kfuzz.prove.graph import Evaluator, Where

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
    from kfuzz.prove.graph import Unsupported

    name = operation.name
    handler = _HANDLERS.get(name)
    if handler is not None:
        made: list[Value] = handler(graph, operation, given, where)
    elif name in _SILENT:
        made = []
    elif name.startswith(PURE):
        why = f"a result of {name}"
        made = [graph.fresh(kind, where, why) for kind in operation.made]
    else:
        _, line = graph.place(operation)
        raise Unsupported(f"{name} (line {line})")
    if operation.attributes and made and isinstance(made[0], Number):
        _hints(graph, operation, made[0], where)
    return made


def _number(value: Value) -> Number:
    from kfuzz.prove.graph import Unsupported

    if isinstance(value, Number):
        return value
    if isinstance(value, Truth):
        one, none = as_poly(1), as_poly(0)
        poly = choice(value.cond, one, none)
        return Number(poly, 1, value.shape, value.checks)
    raise Unsupported("an integer that is none")


def _constant(
    graph: "Evaluator", operation: Operation, given: Sequence[Value], where: "Where"
) -> list[Value]:
    (kind,) = operation.made
    text = operation.words
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
    rewriter = Rewriter(lambda a: places(a.parts[0]) if a.kind == LANE else None)
    match value:
        case Number():
            return replace(value, poly=rewriter.poly(value.poly), shape=shape)
        case Truth():
            return replace(value, cond=rewriter.cond(value.cond), shape=shape)
        case Pointer():
            return replace(value, offset=rewriter.poly(value.offset), shape=shape)
    return Other(shape)


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

    def moved(dim: int) -> Poly | None:
        return as_poly(lane(dim + 1)) if dim >= axis else None

    return [_reshaped(given[0], operation.made[0].shape, moved)]


def _transposed(
    graph: "Evaluator", operation: Operation, given: Sequence[Value], where: "Where"
) -> list[Value]:
    found = re.search(r"order = array<i32: ([\d, ]*)>", operation.attributes)
    assert found is not None
    order = [int(n) for n in found[1].split(",")]

    def moved(dim: int) -> Poly:
        return as_poly(lane(order.index(dim)))

    return [_reshaped(given[0], operation.made[0].shape, moved)]


def _reshape(
    graph: "Evaluator", operation: Operation, given: Sequence[Value], where: "Where"
) -> list[Value]:
    shape = operation.made[0].shape
    old = getattr(given[0], "shape", ())
    if isinstance(given[0], Other):
        return [Other(shape)]
    if "allow_reorder" in operation.words + operation.attributes:
        return [graph.fresh(operation.made[0], where, "a reordered block")]
    flat = as_poly(0)
    for dim, size in enumerate(shape):
        place = as_poly(lane(dim)) if size > 1 else as_poly(0)
        flat = flat * size + place
    steps, step = [], 1
    for size in reversed(old):
        steps.insert(0, step)
        step *= size

    def moved(dim: int) -> Poly:
        upper = remainder(flat, as_poly(steps[dim] * old[dim])) if dim else flat
        return quotient(upper, as_poly(steps[dim]))

    return [_reshaped(given[0], shape, moved)]


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
    from kfuzz.prove.graph import Unsupported

    pointer, number = given
    if not isinstance(pointer, Pointer):
        raise Unsupported("a pointer that is none")
    if isinstance(number, Truth):
        number = _number(number)
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
    left, right = map(_number, given)
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
            return [graph.unknown(bits, shape, where, "a shift")]
        made = a * (1 << by)
        checks = graph.check(made, bits, wide, where, shape, checks, operation, "shift")
        return [Number(made, bits, shape, checks, wide)]
    positive = ("arith.divui", "arith.remui", "arith.shrui", "arith.shrsi", "arith.andi",
                "arith.maxui", "arith.minui")  # fmt: skip
    if operation.name in positive:
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
            return [graph.unknown(bits, shape, where, why)]
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
    first, second = _number(left), _number(right)
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
        return [graph.fresh(kind, where, f"a result of {operation.name}")]
    number = _number(value)
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
    if isinstance(value, Pointer) and kind.element == "ptr":
        from kfuzz.prove.graph import itemsize_of

        if itemsize_of(kind.pointee) == value.itemsize:
            return [value]
    return [graph.fresh(kind, where, f"a result of {operation.name}")]


# Memory.


def _access(
    graph: "Evaluator", operation: Operation, kind: str, pointer: Value,
    mask: Value | None, where: "Where",
) -> None:  # fmt: skip
    from kfuzz.prove.graph import Unsupported

    if not isinstance(pointer, Pointer):
        raise Unsupported(f"a {kind} through what is no pointer")
    if mask is not None and not isinstance(mask, Truth):
        raise Unsupported("a mask that is none")
    held = TRUE if mask is None else mask.cond
    guards = where.checks | (NO_CHECKS if mask is None else mask.checks)
    file, line = graph.place(operation)
    graph.access(
        Access(
            kind, pointer.base, pointer.offset, held, where.path, pointer.shape,
            pointer.itemsize, pointer.checks, guards, line, file, pointer.why,
        )
    )  # fmt: skip


def _pointed(pointer: Value, operation: Operation) -> Type:
    kinds = [parse_type(t) for t in split_outer(operation.types.strip("()"))]
    shape = getattr(pointer, "shape", ())
    kind = next(kind for kind in kinds if kind.element == "ptr")
    return replace(parse_type(kind.pointee), shape=shape)


def _load(
    graph: "Evaluator", operation: Operation, given: Sequence[Value], where: "Where"
) -> list[Value]:
    pointer, *rest = given
    if isinstance(pointer, Descriptor):
        return _block_access(graph, operation, LOAD, pointer, pointer.offsets, where)
    mask = rest[0] if rest else None
    _access(graph, operation, LOAD, pointer, mask, where)
    assert isinstance(pointer, Pointer)
    kind = _pointed(pointer, operation)
    held = graph.loaded_below(pointer.base)
    if kind.bits > 1 and held is not None:
        made: Value = graph.unknown(
            kind.bits, kind.shape, where, f"what {pointer.base} holds",
            low=as_poly(0), high=held - 1,
        )  # fmt: skip
    else:
        made = graph.fresh(kind, where, f"what {pointer.base or 'memory'} holds")
    if isinstance(mask, Truth) and not isinstance(made, Other):
        other = rest[1] if len(rest) > 1 else None
        if other is None:
            other = graph.fresh(kind, where, "a masked load")
        made = graph.chosen(mask, made, other)
    return [made]


def _store(
    graph: "Evaluator", operation: Operation, given: Sequence[Value], where: "Where"
) -> list[Value]:
    pointer, _, *rest = given
    if isinstance(pointer, Descriptor):
        _block_access(graph, operation, STORE, pointer, pointer.offsets, where)
        return []
    _access(graph, operation, STORE, pointer, rest[0] if rest else None, where)
    return []


def _atomic(
    graph: "Evaluator", operation: Operation, given: Sequence[Value], where: "Where"
) -> list[Value]:
    pointer, *rest = given
    mask = None
    if operation.name == "tt.atomic_rmw" and len(rest) > 1:
        mask = rest[1]
    _access(graph, operation, ATOMIC, pointer, mask, where)
    return [graph.fresh(kind, where, "what an atomic gives") for kind in operation.made]


def _descriptor(
    graph: "Evaluator", operation: Operation, given: Sequence[Value], where: "Where"
) -> list[Value]:
    from kfuzz.prove.graph import Unsupported

    base = given[0]
    lists = re.findall(r"\[([^\]]*)\]", operation.words)
    names = iter(given[1:])
    groups = [
        tuple(_number(next(names)) for _ in split_outer(text)) for text in lists[:3]
    ]
    found = re.search(r"<((?:\d+x)+)", operation.types.rpartition(",")[2]) or re.search(
        r"tensor<((?:\d+x)+)", operation.types
    )
    if not isinstance(base, Pointer) or found is None:
        raise Unsupported("a tensor descriptor")
    block = tuple(int(n) for n in found[1].split("x") if n)
    offsets = groups[2] if len(groups) > 2 else ()
    return [Descriptor(base, groups[0], groups[1], block, offsets)]


def _advance(
    graph: "Evaluator", operation: Operation, given: Sequence[Value], where: "Where"
) -> list[Value]:
    pointer, *steps = given
    assert isinstance(pointer, Descriptor)
    moved = []
    for old, step in zip(pointer.offsets, map(_number, steps), strict=True):
        made = old.poly + step.poly
        wide = old.wide | step.wide
        checks = graph.check(
            made, 32, wide, where, (), old.checks | step.checks, operation, "sum"
        )
        moved.append(Number(made, 32, (), checks, wide))
    return [replace(pointer, offsets=tuple(moved))]


def _block_access(
    graph: "Evaluator", operation: Operation, kind: str, tensor: Descriptor,
    offsets: Sequence[Number], where: "Where",
) -> list[Value]:  # fmt: skip
    """Access the part of a block that lies in the tensor; the rest is left out."""
    checked = range(len(tensor.block))
    if tensor.offsets:  # a block pointer names the dimensions that are checked
        found = re.search(r"boundaryCheck = array<i32(?:: ([\d, ]*))?>",
                          operation.attributes)  # fmt: skip
        named = (found[1] or "") if found else ""
        checked = [int(n) for n in named.split(",") if n.strip()]  # type: ignore[assignment]
    pointer = replace(tensor.base, shape=tensor.block)
    offset, masks, checks, guards = as_poly(0), [], pointer.checks, where.checks
    for dim, (size, stride, start) in enumerate(
        zip(tensor.sizes, tensor.strides, offsets, strict=True)
    ):
        place = start.poly
        if tensor.block[dim] > 1:
            place = place + as_poly(lane(dim))
        offset = offset + place * stride.poly
        checks = checks | start.checks | stride.checks
        if dim in checked:
            masks += [at_most(0, place), below(place, size.poly)]
            guards = guards | start.checks | size.checks
    mask = Truth(all_of(masks), tensor.block, guards)
    moved = replace(pointer, offset=pointer.offset + offset, checks=checks)
    _access(graph, operation, kind, moved, mask, where)
    return [
        graph.fresh(kind_, where, f"what {pointer.base} holds")
        for kind_ in operation.made
    ][: len(operation.results)]


def _descriptor_load(
    graph: "Evaluator", operation: Operation, given: Sequence[Value], where: "Where"
) -> list[Value]:
    from kfuzz.prove.graph import Unsupported

    tensor, *offsets = given
    if not isinstance(tensor, Descriptor):
        raise Unsupported("a tensor descriptor made on the host")
    return _block_access(
        graph, operation, LOAD, tensor, [_number(o) for o in offsets], where
    )


def _descriptor_store(
    graph: "Evaluator", operation: Operation, given: Sequence[Value], where: "Where"
) -> list[Value]:
    from kfuzz.prove.graph import Unsupported

    tensor, *offsets, _ = given
    if not isinstance(tensor, Descriptor):
        raise Unsupported("a tensor descriptor made on the host")
    kind = ATOMIC if "reduce" in operation.name else STORE
    _block_access(graph, operation, kind, tensor, [_number(o) for o in offsets], where)
    return []


def _assume(
    graph: "Evaluator", operation: Operation, given: Sequence[Value], where: "Where"
) -> list[Value]:
    (truth,) = given
    assert isinstance(truth, Truth)
    _, line = graph.place(operation)
    graph.graph.hints.append(
        Hint(truth.cond, where.path, (), truth.checks | where.checks, line, "tl.assume")
    )
    return []


def _hints(
    graph: "Evaluator", operation: Operation, value: Number, where: "Where"
) -> None:
    """Note what `tl.multiple_of` and `tl.max_contiguous` promise of a value."""
    promised = {
        name: [int(n) for n in found[1].split(",")]
        for name in ("divisibility", "contiguity", "constancy")
        if (
            found := re.search(
                rf"tt\.{name} = dense<\[?([\d, ]+)\]?>", operation.attributes
            )
        )
        or (found := re.search(rf"tt\.{name} = (\d+)", operation.attributes))
    }
    _, line = graph.place(operation)
    rank = max(len(value.shape), 1)
    for name, numbers in promised.items():
        goals = []
        runs = promised.get("contiguity", [1] * rank)
        for dim, number in enumerate((numbers * rank)[:rank]):
            if name == "divisibility":
                goals.append(_divisible(value, dim, number, runs))
            elif number > 1 and value.shape:
                goals.append(_runs(value, dim, number, int(name == "contiguity")))
        words = {"divisibility": "multiple_of", "contiguity": "max_contiguous",
                 "constancy": "max_constancy"}  # fmt: skip
        text = f"tl.{words[name]}({', '.join(map(str, numbers))})"
        graph.graph.hints.append(
            Hint(
                all_of(goals), where.path, value.shape, value.checks | where.checks,
                line, text,
            )
        )  # fmt: skip


def _next(value: Number, dim: int) -> Poly:
    """Return a block's value one place further along a dimension."""
    moved = as_poly(lane(dim)) + 1
    return Rewriter(lambda a: moved if a is lane(dim) else None).poly(value.poly)


def _divisible(value: Number, dim: int, number: int, runs: Sequence[int]) -> Cond:
    """Return that the first element of each run of neighbours is a multiple."""
    goal = equal(remainder(value.poly, as_poly(number)), 0)
    if not value.shape:
        return goal
    run = (list(runs) * len(value.shape))[dim]
    if (_next(value, dim) - value.poly).constant == 1:
        run = max(run, value.shape[dim])
    start = remainder(as_poly(lane(dim)), as_poly(run)) if run > 1 else as_poly(0)
    return any_of([negated(equal(start, 0)), goal])


def _runs(value: Number, dim: int, number: int, step: int) -> Cond:
    """Return that neighbours within a run differ by `step`."""
    last = equal(remainder(as_poly(lane(dim)), as_poly(number)), number - 1)
    return any_of([last, equal(_next(value, dim) - value.poly, step)])


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
    "tt.load": _load,
    "tt.store": _store,
    "tt.atomic_rmw": _atomic,
    "tt.atomic_cas": _atomic,
    "tt.make_tensor_descriptor": _descriptor,
    "tt.make_tensor_ptr": _descriptor,
    "tt.advance": _advance,
    "tt.descriptor_load": _descriptor_load,
    "tt.descriptor_store": _descriptor_store,
    "tt.descriptor_reduce": _descriptor_store,
    "llvm.intr.assume": _assume,
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
