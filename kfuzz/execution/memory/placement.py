"""Placement: every tensor that a kernel is given lies between guard zones.

The arguments of a case lie in a row, those of a batch in as many rows, alike but for
the values. A case alone is a batch of one.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from kfuzz.core.errors import HarnessError
from kfuzz.core.recipe import Edge, TensorSpec
from kfuzz.execution.device.backends import backend_of
from kfuzz.execution.memory.arena import Arena
from kfuzz.execution.memory.argument_blocks import (
    Argument,
    Block,
    Dense,
    Sparse,
    at_edge,
    check_values,
    is_at_edge,
    side_by_side,
)
from kfuzz.execution.memory.poison import Poison, bits_of, poison_word
from kfuzz.execution.memory.rows import Rows
from kfuzz.execution.memory.windows import is_sparse
from kfuzz.execution.memory.zones import up
from kfuzz.numerics.run import Touch

ROW_BYTES: Final = 512
"""Rows are multiples of this, so that memory is aligned alike in all of them."""


@dataclass(frozen=True)
class Region:
    """The memory in which an argument lies alone, guard zones included.

    Attributes:
        memory: uint8, from the first byte of the zone in front to the last behind.
        base: where the argument's storage begins in it.
        stop: where that ends.
    """

    memory: Tensor
    base: int
    stop: int


_REGIONS: Final = WeakIdKeyDictionary()


def region_of(tensor: Tensor) -> Region | None:
    """Return the region of an argument as it was placed, None for another tensor."""
    found: Region | None = _REGIONS.get(tensor)  # type: ignore[no-untyped-call]
    return found


class Placement:
    """The tensors of one case or of a batch, and what has happened to their memory.

    Attributes:
        items: how many cases.
        every: per argument the tensor of each item, with the shape, strides, storage
            offset and dtype of its recipe. Those that are isolated have a storage of
            their own that starts at the aligned base and ends with the view. The
            others are views of one storage: their storage offset counts from its
            start, `untyped_storage` holds all rows, and they share one version
            counter. A kernel that looks at these may behave otherwise than on a case
            alone, where alone it is judged. An empty tensor's `data_ptr()` is 0, as
            everywhere in torch; its storage points between the guard zones.
    """

    def __init__(
        self,
        arena: Arena,
        specs: Mapping[str, TensorSpec],
        values: Mapping[str, Tensor],
        *,
        items: int,
        alignment: int,
        around: Poison,
        edge: Edge | None = None,
        unwritten: Collection[str] = (),
        fresh: Sequence[Poison] = (),
        isolated: Collection[int] = (0,),
    ) -> None:
        """Lay out, fill and keep the arguments of all items; see `place`.

        Args:
            arena: the memory; it is overwritten.
            specs: the recipes by parameter name; of several items none is sparse.
            values: per argument [items, *shape], but for those of `unwritten`.
            items: how many.
            alignment: bytes, a power of two.
            around: what lies around the elements.
            edge: which arguments lie beside a page that faults; of one item only.
            unwritten: arguments whose elements hold what fresh memory does.
            fresh: which poison that is in the first items; those after repeat it.
            isolated: items whose tensors have a storage of their own each, in the same
                rows; it costs each as much as many others.
        """
        self.items = items
        self._arena = arena
        self._unwritten = frozenset(unwritten)
        parts: list[Block] = []
        together: list[Argument] = []
        for number, (name, spec) in enumerate(specs.items()):
            argument = Argument.of(name, spec, alignment)
            if name not in unwritten:
                check_values(argument, values, items)
            if is_sparse(spec, argument.dtype.itemsize, arena.device):
                parts.append(Sparse(argument, around, arena))
            elif edge is not None and is_at_edge(argument, edge, arena):
                parts.append(at_edge(arena, number, argument, edge, around))
            else:
                together.append(argument)
        need = sum(argument.room for argument in together)
        pitch = up(max(need, 1), max(ROW_BYTES, 2 * alignment))
        arena.reserve(items * pitch)
        self._generation = arena.generation
        self._side_by_side: Dense | None = None
        if together:
            self._side_by_side = side_by_side(arena, together, items, pitch, around)
            parts.append(self._side_by_side)
        self._parts = parts
        self._part = {name: part for part in parts for name in part.placed}
        self.write(values, fresh)
        for part in parts:
            part.snap()
        self.every = {name: self._tensors(name, isolated) for name in specs}

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """The arguments of the first item."""
        return self.of(0)

    def of(self, number: int) -> dict[str, Tensor]:
        """Return the arguments of one item."""
        return {name: all_[number] for name, all_ in self.every.items()}

    @property
    def owned(self) -> list[tuple[int, int]]:
        """Addresses, first and one past the last, of memory that it has to itself."""
        return [(part.rows.low, part.rows.high) for part in self._parts]

    @property
    def rows(self) -> Rows:
        """The memory in which the arguments of a batch lie."""
        assert self._side_by_side is not None
        return self._side_by_side.rows

    def views(self, name: str) -> list[Tensor]:
        """Return the tensor of each item, as objects that no kernel has had."""
        part = self._part[name]
        argument, slot = part.placed[name]
        isolated = {0} if isinstance(part, Sparse) else ()
        return part.rows.tensors(isolated, slot, argument.form)

    def write(self, values: Mapping[str, Tensor], fresh: Sequence[Poison] = ()) -> None:
        """Write elements, and what fresh memory holds over those that have no values.

        Args:
            values: per argument [items, *shape]. Of elements that share memory by a
                stride of 0, the one at index 0 counts.
            fresh: the poison of the first items, which those after repeat; without it
                what has no values stays as it is.
        """
        for name, part in self._part.items():
            argument, _ = part.placed[name]
            elements = part.elements(name)
            if name not in self._unwritten:
                elements.copy_(argument.single(values[name]))
            for first, poison in enumerate(fresh if name in self._unwritten else ()):
                _, value = poison_word(argument.dtype, poison)
                bits_of(elements[first :: len(fresh)]).fill_(value)

    def restore(self, number: int) -> None:
        """Give an item of a batch its state when placed."""
        if self._side_by_side is not None:
            self._side_by_side.restore(number)

    def touched(self, free: Collection[str] = ()) -> Tensor:
        """Return in which items of a batch a byte has changed; bool [items].

        Does not wait for the device. A byte rewritten with its old value is no change.

        Args:
            free: arguments whose elements may have; as they are now, they count as
                placed from here on.
        """
        if self._side_by_side is None:
            return torch.zeros(self.items, dtype=torch.bool, device=self._arena.device)
        return self._side_by_side.touched(free)

    def touches(self, *, inplace: Collection[str] = ()) -> list[Touch]:
        """Compare all memory of the first item with its state when placed.

        Waits for the device. A byte rewritten with its old value is no touch.

        Args:
            inplace: arguments whose elements the kernel may change; see `touched`.

        Returns:
            At most one touch per argument and place, in the order of the arguments.

        Raises:
            HarnessError: if the arena has been given to another placement since.
        """
        if self._arena.generation != self._generation:
            raise HarnessError(
                "this placement's memory was reused by a later one",
                where="kfuzz.execution.memory.placement",
                fix="Check a placement before placing the next case in its arena",
            )
        backend_of(self._arena.device).wait(self._arena.device)
        found = [t for part in self._parts for t in part.touches(inplace)]
        if not found:
            return found
        order = list(self.every)
        found.sort(key=lambda touch: order.index(touch.argument))
        return [t for t in found if t.where != "element" or t.argument not in inplace]

    def _tensors(self, name: str, isolated: Collection[int]) -> list[Tensor]:
        """Return the tensor of an argument in each item."""
        part = self._part[name]
        argument, slot = part.placed[name]
        made = part.rows.tensors(isolated, slot, argument.form)
        if self.items == 1 and not isinstance(part, Sparse):
            memory = part.rows.memory[slot.start : slot.end]
            _REGIONS[made[0]] = Region(
                memory, slot.base - slot.start, slot.stop - slot.start
            )
        return made


def place(
    case_specs: Mapping[str, TensorSpec],
    values: Mapping[str, Tensor],
    *,
    device: torch.device | str,
    alignment: int,
    poison: Poison,
    arena: Arena | None = None,
    edge: Edge | None = None,
    unwritten: Collection[str] = (),
    fresh: Poison = Poison.NAN,
) -> Placement:
    """Lay a case's tensors out between guard zones: a batch of one.

    Around each argument: guard zone, storage from its base to the end of the view,
    guard zone. Guard zones, the storage in front of the view (its offset) and the
    padding between its elements hold the poison of the argument's dtype.

    An argument that lies at an edge has on that side, instead of the guard zone, a
    page that faults when touched. Its base keeps the alignment: at the end as many
    bytes of poison lie between the view and the page as that takes, at least
    `edge.slack`. At the start the base, not the view, touches the page: a storage
    offset lies between. Empty and sparse arguments have no edge, nor has on a device
    what is larger than `argument_blocks.EDGE_BYTES`.

    A view of few elements in far more memory than they take (`windows.is_sparse`)
    lies in memory of its own, poisoned and compared around its elements and at both
    ends only.

    Args:
        case_specs: the recipes by parameter name.
        values: per argument its logical elements, in the recipe's shape and dtype.
            Of elements that share memory by a stride of 0, the one at index 0
            counts.
        device: where the tensors are to lie; `arena`'s device where one is given.
        alignment: bytes, a power of two. Each base is a multiple of it (or of the
            item size, if that is larger) and, below `EXACT_BELOW` and away from
            edges, not of its double. A storage offset shifts the view from there.
        poison: which poison.
        arena: memory to use again; a fresh one by default.
        edge: which arguments lie beside a page that faults.
        unwritten: arguments that have no values: they hold what fresh memory does.
        fresh: which poison that is.

    Raises:
        HarnessError: if values do not fit their recipe, if elements overlap other
            than by a stride of 0, or if the alignment is no power of two.
        NoAddressSpace: if a sparse view spans more than the system gives.
    """
    return Placement(
        Arena(device) if arena is None else arena,
        case_specs,
        as_batch(values),
        items=1,
        alignment=alignment,
        around=poison,
        edge=edge,
        unwritten=unwritten,
        fresh=(fresh,),
    )


def as_batch(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the values of one case as those of a batch of one."""
    return {name: given.unsqueeze(0) for name, given in values.items()}
