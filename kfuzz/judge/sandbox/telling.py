"""What the child tells of what a call returned."""

from collections import deque
from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor

from kfuzz.judge.sandbox.carried import Geometry, page_up

MOST_ITEMS: Final = 64
"""Results of one call that are told."""

# Levels of nested results.
_DEPTH: Final = 8
_CALLS: Final = 2
_HELD_BYTES: Final = 1 << 30


class Held:
    """The results of the last calls, kept alive.

    While the campaign holds results of a call, their memory must not be given to the
    next; and a kernel that returns the very memory of an earlier result is told from
    one that was given memory which had become free.

    Attributes:
        call: number of the call that was held last.
    """

    def __init__(self) -> None:
        self.call = 0
        self._calls: deque[tuple[int, list[Tensor]]] = deque(maxlen=_CALLS)

    def again(self, storage: int) -> list[int] | None:
        """Return call and place of an earlier result in the same storage."""
        for call, tensors in reversed(self._calls):
            for place, tensor in enumerate(tensors):
                if tensor.untyped_storage().data_ptr() == storage:
                    return [call, place]
        return None

    def keep(self, tensors: Sequence[Tensor]) -> None:
        """Keep the results of a call, and no more of the first one kept."""
        self.call += 1
        self._calls.append((self.call, list(tensors)))
        total = sum(t.untyped_storage().nbytes() for _, ts in self._calls for t in ts)
        while self._calls and total > _HELD_BYTES:
            total -= sum(t.untyped_storage().nbytes() for t in self._calls.popleft()[1])

    def clear(self) -> None:
        """Keep nothing."""
        self._calls.clear()


def told_results(
    returned: object, arguments: Sequence[Tensor], held: Held, capacity: int
) -> tuple[dict[str, Any], list[Tensor]]:
    """Describe what a call returned.

    Args:
        returned: what it returned.
        arguments: the tensors that it was given.
        held: earlier results; these are added.
        capacity: bytes that can be handed over.

    Returns:
        The description, and the tensors whose elements are to be handed over: result
        `carried` belongs at the byte `at`.
    """
    structure = "tuple"
    found: Sequence[object]
    if isinstance(returned, tuple | list | dict):
        found = leaves(returned)
    elif returned is None:
        structure, found = "none", []
    else:
        structure, found = "one", [returned]
    items: list[dict[str, Any]] = []
    carried: list[Tensor] = []
    storages: list[Tensor] = []
    at = 0
    for each in found[:MOST_ITEMS]:
        item: dict[str, Any] = {"type": type(each).__name__[:100]}
        items.append(item)
        if type(each) not in (Tensor, torch.nn.Parameter):
            continue
        assert isinstance(each, Tensor)
        item["layout"] = str(each.layout)
        if each.layout is not torch.strided or each.is_quantized:
            item["layout"] = "quantized" if each.is_quantized else item["layout"]
            continue
        item["geometry"] = Geometry.of(each).told()
        item["device"] = each.device.type
        if each.device.type == "meta":
            continue
        own = each.untyped_storage().data_ptr()
        item["argument"] = _argument(each, own, arguments)
        if item["argument"] is not None:
            continue
        item["storage"] = _place(own, storages)
        if item["storage"] == len(storages):
            item["again"] = held.again(own) if own else None
            storages.append(each)
        nbytes = each.numel() * each.element_size()
        if at + nbytes <= capacity:
            item.update(carried=len(carried), at=at)
            carried.append(each)
            at += page_up(nbytes)
    held.keep(storages)
    type_name = type(returned).__name__[:100]
    told: dict[str, Any] = {"structure": structure, "type": type_name, "items": items}
    told["call"] = held.call
    if structure == "tuple":
        told["count"] = len(found)
        told["nesting"] = nesting(returned)
    return told, carried


def leaves(returned: object, depth: int = 0) -> list[object]:
    """Return what nested tuples, lists and mappings hold, in order; keys sorted.

    At most one more than are told of: that many are too many.
    """
    if depth > _DEPTH or not isinstance(returned, tuple | list | dict):
        return [returned]
    each: Sequence[object] = (
        [returned[key] for key in sorted(returned, key=str)]
        if isinstance(returned, dict)
        else returned
    )
    found: list[object] = []
    for part in each:
        found += leaves(part, depth + 1)
        if len(found) > MOST_ITEMS:
            break
    return found[: MOST_ITEMS + 1]


def nesting(returned: object) -> str:
    """Return how results are nested: "(*, {'k': *})"; lists are tuples.

    "" for a tensor, or several in a row.
    """
    parts = returned if isinstance(returned, tuple | list) else ()
    nested = isinstance(returned, dict) or any(
        isinstance(part, tuple | list | dict) for part in parts
    )
    return _form(returned) if nested else ""


def _form(returned: object, depth: int = 0) -> str:
    """Return the form of results; of more than are told of, how many there are."""
    if depth > _DEPTH or not isinstance(returned, tuple | list | dict):
        return "*"
    if len(returned) > MOST_ITEMS:
        return f"{len(returned)}"
    if not isinstance(returned, dict):
        return f"({', '.join(_form(part, depth + 1) for part in returned)})"
    parts = (
        f"{str(key)[:100]!r}: {_form(returned[key], depth + 1)}"
        for key in sorted(returned, key=str)
    )
    return f"{{{', '.join(parts)}}}"


def _argument(result: Tensor, own: int, arguments: Sequence[Tensor]) -> int | None:
    """Return the number of the argument whose storage a result lies in."""
    for number, argument in enumerate(arguments):
        if result is argument:
            return number
    for number, argument in enumerate(arguments):
        storage = argument.untyped_storage()
        if storage.nbytes() and own and storage.data_ptr() == own:
            return number
    return None


def _place(own: int, storages: Sequence[Tensor]) -> int:
    """Return the number of a storage among those of other results."""
    for number, other in enumerate(storages):
        if own and other.untyped_storage().data_ptr() == own:
            return number
    return len(storages)
