"""|error| / tolerance over an output, coarse enough to be stored with a finding."""

import base64
import binascii
import math
from dataclasses import dataclass
from typing import Final

MAX_CELLS: Final = 64
"""Cells along one side at most; a longer side has several elements in a cell."""

UNDECIDED: Final = 0
EXACT: Final = 1
WITHIN: Final = 128
"""The code of a ratio of 1; greater codes miss."""
UNBOUNDED: Final = 255
"""A miss without a ratio: of class (NaN, infinity), or where nothing but one value
is admitted."""
GREATEST: Final = UNBOUNDED - 1
"""The code of the greatest ratio, 2^31, and of all beyond."""
STEPS: Final = 4
"""Codes for a doubling of the ratio: neighbours differ by 19 %."""

_ADMITTED: Final = bytes(range(WITHIN + 1))


@dataclass(frozen=True)
class ErrorMap:
    """How far each part of one output lies from its reference.

    The output is seen as a matrix: its last axis across, all others down. A cell
    shows the worst of its elements.

    Attributes:
        output: name of the output.
        shape: its shape.
        rows: cells down.
        columns: cells across.
        cells: a code for each cell in C order, one byte each, in base64: 0 where
            nothing could be decided, 1 where the error is 0, 255 for a miss that has no
            ratio, else 128 + 4 log2(|error| / tolerance), above 128 for a miss and at
            most 128 for what is admitted.
    """

    output: str
    shape: tuple[int, ...]
    rows: int
    columns: int
    cells: str

    @property
    def matrix(self) -> tuple[int, int]:
        """Rows and columns of the output."""
        if not self.shape:
            return 1, 1
        return math.prod(self.shape[:-1]), self.shape[-1]

    @property
    def block(self) -> tuple[int, int]:
        """Elements down and across in one cell; those at the ends may have fewer."""
        rows, columns = self.matrix
        return block_of(rows), block_of(columns)

    @property
    def codes(self) -> bytes:
        """The codes, row by row."""
        return base64.b64decode(self.cells)

    @property
    def missing(self) -> int:
        """Cells in which an element misses."""
        return len(self.codes.translate(None, _ADMITTED))

    def problem(self) -> str | None:
        """Return why this map is impossible, or None."""
        if min(self.shape, default=1) < 1:
            return f"a map of an output of shape {self.shape}"
        wanted = tuple(-(-n // block_of(n)) for n in self.matrix)
        if (self.rows, self.columns) != wanted:
            return f"{self.rows} x {self.columns} cells for an output of {self.shape}"
        try:
            codes = base64.b64decode(self.cells, validate=True)
        except (binascii.Error, ValueError):
            return "cells are not base64"
        if len(codes) != self.rows * self.columns:
            return f"{len(codes)} codes for {self.rows} x {self.columns} cells"
        return None


def block_of(elements: int) -> int:
    """Return how many elements of a side lie in one cell."""
    return max(-(-elements // MAX_CELLS), 1)


def ratio_of(code: int) -> float:
    """Return |error| / tolerance of a code; NaN where it has none."""
    if code in (UNDECIDED, UNBOUNDED):
        return math.nan
    return 0.0 if code == EXACT else 2.0 ** ((code - WITHIN) / STEPS)
