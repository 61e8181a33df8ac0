"""Error maps as tables of coloured cells, small ones with numbers."""

from dataclasses import dataclass
from typing import Final

from kfuzz.core.verdict import (
    EXACT,
    GREATEST,
    UNBOUNDED,
    UNDECIDED,
    WITHIN,
    ErrorMap,
    ratio_of,
)
from kfuzz.report.finding_view import Cell

# Cells along a side of which numbers can be read.
NUMBERS: Final = 12

LEVELS: Final = (
    ("u", "not decided", "?"),
    ("w0", "exact", "0"),
    ("w1", "up to 1/16 of the tolerance", ""),
    ("w2", "up to 1/4", ""),
    ("w3", "up to 1: within the tolerance", ""),
    ("x1", "misses by up to 4 times the tolerance", "✗"),
    ("x2", "misses by up to 64 times", "✗"),
    ("x3", "misses by more", "✗"),
    ("xn", "misses, without a number", "✗"),
)
"""Class, meaning and sign of each level."""

_INSIDE: Final = (1 / 16, 1 / 4)
_OUTSIDE: Final = (4.0, 64.0)
_PLACES: Final = {name: i for i, (name, *_) in enumerate(LEVELS)}


@dataclass(frozen=True)
class MapView:
    """A map as the page shows it.

    Attributes:
        caption: output, shape, and how many elements a cell stands for.
        summary: how many cells miss, for those who do not see it.
        rows: its cells.
    """

    caption: str
    summary: str
    rows: tuple[tuple[Cell, ...], ...]


def map_view(made: ErrorMap) -> MapView:
    """Return a map ready to be shown."""
    shape = ", ".join(map(str, made.shape))
    caption = f"{made.output}[{shape}]"
    down, across = made.block
    if (down, across) != (1, 1):
        caption += f", the worst of {down} × {across} elements in a cell"
    cells = made.rows * made.columns
    summary = f"{made.missing} of {cells} cells miss"
    numbered = max(made.rows, made.columns) <= NUMBERS
    cell = _cell if numbered else (lambda code: Cell("", level_of(code)))
    lines = (made.codes[i : i + made.columns] for i in range(0, cells, made.columns))
    return MapView(caption, summary, tuple(tuple(map(cell, line)) for line in lines))


def level_of(code: int) -> str:
    """Return the class of a code's level."""
    if code in (UNDECIDED, EXACT, UNBOUNDED):
        return {UNDECIDED: "u", EXACT: "w0", UNBOUNDED: "xn"}[code]
    return ratio_level(ratio_of(code), misses=code > WITHIN)


def ratio_level(ratio: float, *, misses: bool) -> str:
    """Return the class of the level of an |error| / tolerance."""
    if misses:
        return f"x{1 + sum(ratio > limit for limit in _OUTSIDE)}"
    return f"w{1 + sum(ratio > limit for limit in _INSIDE)}" if ratio else "w0"


def ratio_text(ratio: float) -> str:
    """Return an |error| / tolerance in two digits."""
    return f"{ratio:.2g}" if ratio < 100 or ratio >= 1e4 else f"{ratio:.0f}"


def _cell(code: int) -> Cell:
    level = level_of(code)
    sign = LEVELS[_PLACES[level]][2]
    number = "" if code in (UNDECIDED, EXACT, UNBOUNDED) else ratio_text(ratio_of(code))
    beyond = "≥" if code == GREATEST else ""
    return Cell(f"{sign}{beyond}{number}", level)
