"""The arguments of a minimal case as grids of values, special ones marked."""

from collections import Counter
from dataclasses import dataclass
from typing import Final

from kfuzz.core.dtypes import DTYPES, bits_to_number, unpack_bits
from kfuzz.core.recipe import Case, TensorSpec, unravel
from kfuzz.report.text import (
    MAX_SCANNED,
    draw_scalar,
    draw_tensor,
    tensor_head,
    value_text,
)

# Rows and columns of a grid: what a screen shows without scrolling.
ROWS: Final = 16
COLUMNS: Final = 16

_WORDS: Final = {
    "nan": "NaN",
    "inf": "infinite",
    "sub": "subnormal",
    "zero": "zero",
    "": "ordinary",
}


@dataclass(frozen=True)
class Cell:
    """One cell of a table: what is printed, its class, and what it means.

    Attributes:
        text: what is printed.
        level: the class that colours it: of a value what is special about it.
        label: the same in words.
        link: where more of it is.
    """

    text: str
    level: str = ""
    label: str = ""
    link: str = ""


@dataclass(frozen=True)
class Grid:
    """One argument.

    Attributes:
        head: name, dtype, shape and layout; all of it on one line where there are no
            cells.
        rows: the cells, the last axis across; empty where they do not fit.
        places: the index of each row, "" where there is one row only.
        counts: how many elements are special, where there are no cells.
    """

    head: str
    rows: tuple[tuple[Cell, ...], ...] = ()
    places: tuple[str, ...] = ()
    counts: str = ""

    @property
    def lines(self) -> list[str]:
        """The rows as text, aligned."""
        width = max((len(c.text) for row in self.rows for c in row), default=0)
        return [
            " ".join((place, *(c.text.rjust(width) for c in row))).lstrip()
            for place, row in zip(self.places, self.rows, strict=True)
        ]


def grids(case: Case) -> tuple[Grid, ...]:
    """Return every argument of a case."""
    tensors = [grid_of(name, spec) for name, spec in case.tensors.items()]
    scalars = (Grid(draw_scalar(name, v)) for name, v in case.scalars.items())
    return (*tensors, *scalars)


def grid_of(name: str, spec: TensorSpec) -> Grid:
    """Return a tensor argument."""
    columns = spec.shape[-1] if spec.shape else 1
    rows = spec.numel // columns if columns else 0
    if spec.values is None or not 0 < rows <= ROWS or columns > COLUMNS:
        return Grid(draw_tensor(name, spec), counts=_counts(spec))
    patterns = unpack_bits(spec.values, spec.dtype)
    cells = [Cell(value_text(b, spec.dtype), mark_of(b, spec.dtype)) for b in patterns]
    lines = tuple(tuple(cells[i * columns : (i + 1) * columns]) for i in range(rows))
    places = tuple(_place(i, spec.shape[:-1]) for i in range(rows))
    return Grid(tensor_head(name, spec), lines, places)


def mark_of(bits: int, dtype: str) -> str:
    """Return what is special about the element that raw bits stand for."""
    d = DTYPES[dtype]
    if d.kind != "float":
        return "" if bits else "zero"
    value = bits_to_number(bits, dtype)
    if value != value:
        return "nan"
    if value in (float("inf"), float("-inf")):
        return "inf"
    if value == 0:
        return "zero"
    exponent = bits >> d.mantissa_bits & ((1 << d.exponent_bits) - 1)
    return "" if exponent else "sub"


def _counts(spec: TensorSpec) -> str:
    """Return how many elements are special, "" where the values are not pinned."""
    if spec.values is None or not spec.numel:
        return ""
    size = DTYPES[spec.dtype].itemsize
    patterns = unpack_bits(spec.values[: size * MAX_SCANNED], spec.dtype)
    marks: Counter[str] = Counter()
    for bits, times in Counter(patterns).items():
        marks[mark_of(bits, spec.dtype)] += times
    told = ", ".join(f"{marks[m]} {word}" for m, word in _WORDS.items() if marks[m])
    rest = spec.numel - len(patterns)
    return f"{told} of the first {len(patterns)}" if rest else told


def _place(row: int, shape: tuple[int, ...]) -> str:
    if shape == (1,) * len(shape):
        return ""
    return f"[{', '.join(map(str, unravel(row, shape)))}]"
