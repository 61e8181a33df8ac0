"""Memory in the child for the arguments: at the same addresses call after call."""

from collections import OrderedDict
from typing import Final

import torch
from torch import Tensor

from kfuzz.judge.sandbox.carried import PAGE

MOST_BYTES: Final = 1 << 30
"""Kept for arguments that may come back; those of the call under way come on top."""

MOST_BLOCKS: Final = 64


class Blocks:
    """Gives an argument that lies where one lay before the memory that it had.

    A kernel that remembers addresses meets them again as it would in the campaign.

    Attributes:
        device: where the memory is.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._blocks: OrderedDict[tuple[int, int], Tensor] = OrderedDict()

    def at(self, address: int, nbytes: int) -> Tensor:
        """Return uint8 memory that stands for that at an address of the campaign's.

        It starts as many bytes behind a page's start as that does.

        Args:
            address: in the campaign.
            nbytes: its size.
        """
        key = address, nbytes
        block = self._blocks.pop(key, None)
        if block is None:
            room = torch.empty(nbytes + PAGE, dtype=torch.uint8, device=self.device)
            skip = (address - room.data_ptr()) % PAGE
            block = room[skip : skip + nbytes]
        self._blocks[key] = block
        return block

    def trim(self) -> None:
        """Let go of what was not used for longest, once there is too much."""
        total = sum(block.numel() for block in self._blocks.values())
        while self._blocks and (total > MOST_BYTES or len(self._blocks) > MOST_BLOCKS):
            _, block = self._blocks.popitem(last=False)
            total -= block.numel()

    def clear(self) -> None:
        """Let go of everything."""
        self._blocks.clear()
