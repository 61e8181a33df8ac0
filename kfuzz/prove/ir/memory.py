"""What loads, stores, atomics and tensor descriptors do: accesses of the graph."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from kfuzz.prove.ir.terms import (
    TRUE,
    all_of,
    as_poly,
    at_most,
    below,
)
from kfuzz.prove.ir.ttir import parse_type, split_outer
from kfuzz.prove.ir.values import (
    ATOMIC,
    LOAD,
    NO_CHECKS,
    STORE,
    Access,
    Descriptor,
    Other,
    Pointer,
    Step,
    Truth,
    Unsupported,
    Value,
    lane,
    number_of,
)


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
            kind, pointer.base, pointer.offset, held, step.where.path, pointer.shape,
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
    held = graph.loaded_below(pointer.base)
    if kind.bits > 1 and held is not None:
        bound, other_ = held
        made: Value = graph.unknown(
            kind.bits, kind.shape, where, low=as_poly(0), high=bound - 1, other=other_
        )  # fmt: skip
    else:
        made = graph.fresh(kind, where, f"what {pointer.base or 'memory'} holds")
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


def _descriptor(step: Step) -> list[Value]:
    base, types = step.given[0], step.operation.types
    lists = re.findall(r"\[([^\]]*)\]", step.operation.words)
    names = iter(step.given[1:])
    groups = [
        tuple(number_of(next(names)) for _ in split_outer(text)) for text in lists[:2]
    ]
    found = re.search(r"<((?:\d+x)+)", types.rpartition(",")[2])
    found = found or re.search(r"tensor<((?:\d+x)+)", types)
    if not isinstance(base, Pointer) or found is None:
        raise Unsupported("a tensor descriptor")
    block = tuple(int(n) for n in found[1].split("x") if n)
    return [Descriptor(base, groups[0], groups[1], block)]


def _block_access(step: Step, kind: str, offsets: Sequence[Value]) -> list[Value]:
    """Access the part of a block that lies in the tensor; the rest is left out."""
    tensor = step.given[0]
    if not isinstance(tensor, Descriptor):
        raise Unsupported("a tensor descriptor made on the host")
    pointer = replace(tensor.base, shape=tensor.block)
    offset, masks, checks, guards = as_poly(0), [], pointer.checks, step.where.checks
    for dim, (size, stride, start) in enumerate(
        zip(tensor.sizes, tensor.strides, map(number_of, offsets), strict=True)
    ):
        place = start.poly
        if tensor.block[dim] > 1:
            place = place + as_poly(lane(dim))
        offset = offset + place * stride.poly
        checks = checks | start.checks | stride.checks
        masks += [at_most(0, place), below(place, size.poly)]
        guards = guards | start.checks | size.checks
    mask = Truth(all_of(masks), tensor.block, guards)
    moved = replace(pointer, offset=pointer.offset + offset, checks=checks)
    _access(step, kind, moved, mask)
    made = step._replace(given=()).fresh(f"what {pointer.base} holds")
    return made[: len(step.operation.results)]


def _descriptor_load(step: Step) -> list[Value]:
    return _block_access(step, LOAD, step.given[1:])


def _descriptor_store(step: Step) -> list[Value]:
    kind = ATOMIC if "reduce" in step.operation.name else STORE
    _block_access(step, kind, step.given[1:-1])
    return []


HANDLERS: Final[dict[str, Any]] = {
    "tt.load": _load,
    "tt.store": _store,
    "tt.atomic_rmw": _atomic,
    "tt.atomic_cas": _atomic,
    "tt.make_tensor_descriptor": _descriptor,
    "tt.descriptor_load": _descriptor_load,
    "tt.descriptor_store": _descriptor_store,
    "tt.descriptor_reduce": _descriptor_store,
}
