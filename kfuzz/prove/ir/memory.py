"""What loads, stores, atomics and tensor descriptors do: accesses of the graph."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from kfuzz.prove.ir.terms import (
    TRUE,
    all_of,
    as_poly,
    at_most,
    below,
)
from kfuzz.prove.ir.ttir import Operation, Type, parse_type, split_outer
from kfuzz.prove.ir.values import (
    ATOMIC,
    LOAD,
    NO_CHECKS,
    STORE,
    Access,
    Descriptor,
    Number,
    Other,
    Pointer,
    Truth,
    Unsupported,
    Value,
    lane,
    number_of,
)

if TYPE_CHECKING:
    from kfuzz.prove.ir.graph import Evaluator
    from kfuzz.prove.ir.values import Where


def _access(
    graph: "Evaluator", operation: Operation, kind: str, pointer: Value,
    mask: Value | None, where: "Where",
) -> None:  # fmt: skip
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
        bound, other_ = held
        made: Value = graph.unknown(
            kind.bits, kind.shape, where, f"what {pointer.base} holds",
            low=as_poly(0), high=bound - 1, other=other_,
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
    base = given[0]
    lists = re.findall(r"\[([^\]]*)\]", operation.words)
    names = iter(given[1:])
    groups = [
        tuple(number_of(next(names)) for _ in split_outer(text)) for text in lists[:3]
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
    for old, step in zip(pointer.offsets, map(number_of, steps), strict=True):
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
    tensor, *offsets = given
    if not isinstance(tensor, Descriptor):
        raise Unsupported("a tensor descriptor made on the host")
    return _block_access(
        graph, operation, LOAD, tensor, [number_of(o) for o in offsets], where
    )


def _descriptor_store(
    graph: "Evaluator", operation: Operation, given: Sequence[Value], where: "Where"
) -> list[Value]:
    tensor, *offsets, _ = given
    if not isinstance(tensor, Descriptor):
        raise Unsupported("a tensor descriptor made on the host")
    kind = ATOMIC if "reduce" in operation.name else STORE
    _block_access(
        graph, operation, kind, tensor, [number_of(o) for o in offsets], where
    )
    return []


HANDLERS: Final[dict[str, Any]] = {
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
}
