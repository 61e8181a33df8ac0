"""Accesses at fault, gathered per place in the source."""

import os
import sys
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kfuzz.core.verdict import Access
from kfuzz.execution.interpreter.reach import Region

Program = tuple[int, int, int]

_OWN: Final = str(Path(__file__).parents[1]) + os.sep


class AccessLog:
    """The accesses so far, one per line, kind of access, memory and place there."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str, str, str], Access] = {}
        self._triton = ""

    def accesses(self) -> tuple[Access, ...]:
        """Return them in the order of first occurrence."""
        return tuple(self._entries.values())

    def add(
        self,
        access: str,
        region: Region | None,
        where: str,
        offsets: NDArray[np.int64],
        *,
        program: Program | None = None,
        other: Program | None = None,
    ) -> None:
        """Record what one operation of the running kernel does to one region.

        Args:
            access: "load", "store" or "atomic".
            region: memory concerned; None where there is none.
            where: as `Access.where` says.
            offsets: byte offsets from the region's first byte, one per lane.
            program: the running program.
            other: the other party of a race.
        """
        count = int(np.unique(offsets).size)
        argument, memory, offset, distance = "", "memory it was not given", 0, 0
        if region is not None:
            argument, memory = region.argument, region.memory
            distances = _distances(region, where, offsets)
            nearest = int(distances.argmin())
            distance = int(distances[nearest])
            offset = int(offsets[nearest]) // region.itemsize
        line = self._line()
        key = (line, access, memory, where)
        known = self._entries.get(key)
        if known is None:
            self._entries[key] = Access(
                access, argument, memory, where, distance, offset, count, program,
                other, line,
            )  # fmt: skip
            return
        if distance < known.distance:
            known = replace(known, distance=distance, offset=offset)
        self._entries[key] = replace(known, count=known.count + count)

    def _line(self) -> str:
        """Return the line of the kernel that runs: the innermost of the user's."""
        if not self._triton:
            module = sys.modules.get("triton")
            place = getattr(module, "__file__", None)
            self._triton = str(Path(place).parent) + os.sep if place else _OWN
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            file = frame.f_code.co_filename
            if not file.startswith((_OWN, self._triton)):
                return f"{_shown(file)}:{frame.f_lineno}"
            frame = frame.f_back
        return ""


def _shown(file: str) -> str:
    """Return a source file below the working directory, else its name alone."""
    try:
        here = os.getcwd() + os.sep
    except OSError:  # it is gone
        return os.path.basename(file)
    if file.startswith(here):
        return file.removeprefix(here)
    return os.path.basename(file)


def _distances(
    region: Region, where: str, offsets: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return how many elements away the nearest legal one lies."""
    size, span = region.itemsize, region.high - region.low
    if where == "before":
        return -(offsets // size)
    if where == "after":
        return (np.maximum(offsets, span) - span) // size + 1
    if where == "slack":
        lies, touched = region.elements, offsets // size
        right = np.minimum(np.searchsorted(lies, touched), lies.size - 1)
        left = np.maximum(right - 1, 0)
        gaps: NDArray[np.int64] = np.minimum(
            abs(lies[right] - touched), abs(touched - lies[left])
        )
        return gaps
    return np.zeros(offsets.shape, np.int64)
