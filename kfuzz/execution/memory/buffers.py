"""Fenced memory that placements use in turn, on the CPU or on a device."""

import mmap
from dataclasses import dataclass

import torch
from torch import Tensor

from kfuzz.execution.device import pages as device_pages
from kfuzz.execution.memory import pages


@dataclass(frozen=True)
class Room:
    """Fenced memory that placements of one argument use in turn.

    Attributes:
        memory: uint8, between two fences; on a device with them where they can be
            read.
        snapshot: as large, without fences.
        readable: whether its fences may be read.
        start: byte in `memory` where the fence in front ends.
        stop: byte in `memory` where the fence behind begins.
    """

    memory: Tensor
    snapshot: Tensor
    readable: bool
    start: int
    stop: int


class Rooms:
    """One room per argument, mapped on first use and again only to grow.

    Args:
        device: where.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._rooms: dict[int, Room] = {}

    def room(self, number: int, nbytes: int, *, readable: bool) -> Room:
        """Return the room of the argument with this number.

        Args:
            number: position of the argument.
            nbytes: least size.
            readable: whether its fences may be read.

        Raises:
            HarnessError: if this system cannot make it.
        """
        room = self._rooms.get(number)
        if (
            room is None
            or room.stop - room.start < nbytes
            or room.readable is not readable
        ):
            self._rooms.pop(number, None)  # before two take the place of one
            size = max(1 << (nbytes - 1).bit_length(), 4 * mmap.PAGESIZE)
            room = self._made(size, readable=readable)
            self._rooms[number] = room
        return room

    def _made(self, nbytes: int, *, readable: bool) -> Room:
        if self._device.type == "cpu":
            memory = pages.fenced_memory(nbytes, readable=readable)
            start, stop = 0, memory.numel()
        else:
            made = device_pages.fenced_memory(nbytes, self._device, readable=readable)
            memory, start, stop = made.memory, made.start, made.stop
        return Room(memory, torch.empty_like(memory), readable, start, stop)


def unavailable(device: torch.device) -> str:
    """Return why no fences can be made on a device, "" where they can."""
    if device.type == "cpu":
        return "" if pages.available() else "pages that fault cannot be made here"
    return device_pages.unavailable(device)
