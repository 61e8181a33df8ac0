"""Memory beside pages that fault, for what a kernel allocates itself on a device."""

from typing import Final

from torch import Tensor

from kfuzz.core.errors import HarnessError
from kfuzz.core.recipe import Edge
from kfuzz.execution.device.gpu_fences import Pool
from kfuzz.execution.memory.zones import Slot, edge_slot, rounded

EDGE_ALIGNMENT: Final = 256
"""What CUDA's programming guide promises of any allocation; the less of it, the fewer
bytes between an allocation and the page behind it."""

EDGE_ALLOCATIONS: Final = 64
"""Allocations of one call that get fenced memory of their own, of which each takes as
much as the device maps at once, 2 MiB."""

EDGE_TOTAL_BYTES: Final = 1 << 30
"""Fenced memory of one call; past this much, allocations lie between guard zones."""


class OwnEdges:
    """Gives the allocations of one call, in order, memory at an edge.

    Args:
        edge: which of them lie there; its `argument` has to be "".
        pool: where the memory comes from.
    """

    def __init__(self, edge: Edge, pool: Pool) -> None:
        self.edge = edge
        self._pool = pool
        self._total = 0

    def take(self, number: int, nbytes: int, guard: int) -> tuple[Tensor, Slot] | None:
        """Return where an allocation lies beside a fence, None if it does not.

        Args:
            number: of the allocation, counted from 0.
            nbytes: size of its storage.
            guard: width of the guard zone on its other side.
        """
        edge = self.edge
        if edge.argument or edge.allocation not in (None, number):
            return None
        need = rounded(nbytes + guard + edge.slack + 2 * EDGE_ALIGNMENT)
        if number >= EDGE_ALLOCATIONS or self._total + need > EDGE_TOTAL_BYTES:
            return None
        try:
            room = self._pool.take(need, readable=edge.readable)
        except HarnessError:  # no fault of the kernel, whose call this is
            return None
        self._total += need
        slot = edge_slot(edge, room, nbytes, guard, alignment=EDGE_ALIGNMENT)
        return room.memory, slot
