"""Error maps as pictures: small ones as a table of numbers, others as an image."""

import base64
import struct
import zlib
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
# Pixels of the page along a cell of an image, and along its shorter side at least.
PIXELS: Final = 5
LEAST_SIDE: Final = 25

LEVELS: Final = (
    ("u", "not decided", "?", (0xB4, 0xB4, 0xB4)),
    ("w0", "exact", "0", (0xF4, 0xF8, 0xFC)),
    ("w1", "up to 1/16 of the tolerance", "", (0xD3, 0xE4, 0xF3)),
    ("w2", "up to 1/4", "", (0xA3, 0xCC, 0xE9)),
    ("w3", "up to 1: within the tolerance", "", (0x5B, 0xA3, 0xD6)),
    ("x1", "misses by up to 4 times the tolerance", "✗", (0xFD, 0xB8, 0x63)),
    ("x2", "misses by up to 64 times", "✗", (0xE6, 0x61, 0x01)),
    ("x3", "misses by more", "✗", (0x8C, 0x2D, 0x04)),
    ("xn", "misses, without a number", "✗", (0x1A, 0x1A, 0x1A)),
)
"""Class, meaning, sign and colour of each level; the blues and the browns differ for
every kind of colour vision, and in brightness on paper."""

_INSIDE: Final = (1 / 16, 1 / 4)
_OUTSIDE: Final = (4.0, 64.0)
_PLACES: Final = {name: i for i, (name, *_) in enumerate(LEVELS)}


@dataclass(frozen=True)
class MapView:
    """A map as the page shows it.

    Attributes:
        caption: output, shape, and how many elements a cell stands for.
        summary: how many cells miss, for those who do not see it.
        rows: cells of a small map; empty for others.
        image: PNG as base64, "" for small maps.
        width: of the image in pixels of the page.
        height: likewise.
    """

    caption: str
    summary: str
    rows: tuple[tuple[Cell, ...], ...] = ()
    image: str = ""
    width: int = 0
    height: int = 0


def map_view(made: ErrorMap) -> MapView:
    """Return a map ready to be shown."""
    shape = ", ".join(map(str, made.shape))
    caption = f"{made.output}[{shape}]"
    down, across = made.block
    if (down, across) != (1, 1):
        caption += f", the worst of {down} × {across} elements in a cell"
    cells = made.rows * made.columns
    summary = f"{made.missing} of {cells} cells miss"
    codes = made.codes
    if max(made.rows, made.columns) <= NUMBERS:
        lines = (codes[i : i + made.columns] for i in range(0, cells, made.columns))
        rows = tuple(tuple(map(_cell, line)) for line in lines)
        return MapView(caption, summary, rows)
    image = base64.b64encode(_png(codes.translate(_LEVEL_OF), made.columns)).decode()
    width, height = (max(n * PIXELS, LEAST_SIDE) for n in (made.columns, made.rows))
    return MapView(caption, summary, (), image, width, height)


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


_LEVEL_OF: Final = bytes(_PLACES[level_of(code)] for code in range(256))


def _cell(code: int) -> Cell:
    level = level_of(code)
    sign = LEVELS[_PLACES[level]][2]
    number = "" if code in (UNDECIDED, EXACT, UNBOUNDED) else ratio_text(ratio_of(code))
    beyond = "≥" if code == GREATEST else ""
    return Cell(f"{sign}{beyond}{number}", level)


def _png(levels: bytes, width: int) -> bytes:
    """Return an image of one pixel per cell, of the colours of `LEVELS`."""
    palette = b"".join(bytes(rgb) for *_, rgb in LEVELS)
    lines = (levels[i : i + width] for i in range(0, len(levels), width))
    pixels = zlib.compress(b"".join(b"\0" + line for line in lines), 9)
    header = struct.pack(">IIBBBBB", width, len(levels) // width, 8, 3, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"PLTE", palette), (b"IDAT", pixels), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*chunk) for chunk in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    checksum = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)
