"""Accesses at fault: each in words, and the memory around an argument as a grid."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kfuzz.core.recipe import Case, TensorSpec
from kfuzz.core.verdict import Access
from kfuzz.report.text import counted, one_line, tensor_head, tuple_text

# Rows and columns of a grid, marks of omission not counted; fewer columns where
# their heads would take more letters than this: it fits a terminal of 80 columns.
ROWS: Final = 12
COLUMNS: Final = 16
HEADS: Final = 64
# A view up to this long is drawn on one line, with room for what lies beside it.
LINE: Final = 12
# Elements outside the view beyond which an arrow says more than cells do.
FAR: Final = 1 << 16
# Accesses put into words; they come one per line of source and place.
MAX_ACCESSES: Final = 12

OVERFLOW: Final = " (32-bit offset overflow)"
_GAP: Final = "…"
_NOTHING: Final = ""
_ELEMENT: Final = "."
_SLACK: Final = "-"
_BEYOND: Final = "_"
_ACCESSED: Final = {"load": "R", "store": "W", "atomic": "A"}
_MEANINGS: Final = {
    _ELEMENT: "element",
    _SLACK: "gap between elements",
    _BEYOND: "outside",
    # Of several in one cell the last of these is drawn.
    "U": "load of uninitialized memory",
    "X": "offending access",
    "R": "offending load",
    "A": "offending atomic",
    "W": "offending store",
    "!": "race",
}


def accesses_words(accesses: Sequence[Access], case: Case) -> list[str]:
    """Return each access in words, as many as are worth reading."""
    lines = [
        access_words(access) + (OVERFLOW if _overflows(access, case) else "")
        for access in accesses[:MAX_ACCESSES]
    ]
    more = len(accesses) - MAX_ACCESSES
    return [*lines, f"{_GAP} and {more} more"] if more > 0 else lines


def _overflows(access: Access, case: Case) -> bool:
    """Whether the offset, taken for one of 32 bits that wrapped, is within the view."""
    if access.argument not in (*case.tensors, *case.destinations):
        return False
    return 0 <= access.offset + (1 << 32) < case.memory(access.argument).span


def draw_accesses(accesses: Sequence[Access], case: Case) -> list[str]:
    """Return one grid per argument concerned, below its name.

    A grid shows the argument's elements, the gaps of its strides and what lies
    around it, cell by cell in storage order. A cell's storage offset, in
    elements, is its row's head plus its column's.
    """
    lines = []
    for name in (*case.tensors, *case.destinations):
        spec = case.memory(name)
        here = [access for access in accesses if access.argument == name]
        if here:
            grid = _draw_memory(spec, here)
            lines += [tensor_head(name, spec), *(f"  {row}" for row in grid)]
    return lines


def access_words(access: Access) -> str:
    """Return one access as a sentence: what, where in the source, which memory."""
    place = access_place(access)
    head = one_line(access.access) + (f" {place}" if place else "")
    return f"{head}: {_memory(access)}"


def access_place(access: Access) -> str:
    """Return "at file.py:41, program (0, 0, 0)"; "" for native code."""
    line = f"at {one_line(access.line)}" if access.line else ""
    if access.program is None:
        return line
    link = f"{line}, program" if line else "in program"
    return f"{link} {tuple_text(access.program)}"


def _memory(access: Access) -> str:
    name = one_line(access.memory or access.argument) or "unknown memory"
    away = counted(abs(access.distance), "element")
    if access.program is None:
        away += " or more"  # a page that faults shows the least distance
    match access.where:
        case "after":
            text = f"{away} past the end of {name}"
        case "before":
            text = f"{away} before the start of {name}"
        case "slack":
            text = f"in a gap of {name}, {away} from the nearest of its own"
        case "unwritten":
            text = (
                f"element at offset {access.offset} of {name}, which is uninitialized"
            )
        case "race":
            text = f"element at offset {access.offset} of {name}"
            text += ", where another program"
            if access.other is not None:
                text = f"{text.removesuffix('another program')}program "
                text += tuple_text(access.other)
            text += " stored another value"
        case _:
            text = "memory that the launch was not given"
            if access.argument:
                side = "before the start" if access.offset < 0 else "past the end"
                text += f", {away} {side} of {name}"
    if access.count > 1:
        text += f" ({access.count} elements in all)"
    return text


@dataclass(frozen=True)
class _View:
    """The memory of a view, as far as a grid needs it; offsets from its start.

    Attributes:
        axes: stride and size of the axes that take memory, slowest first.
        span: elements from the first to the last addressed one, inclusive.
        pitch: elements from one row of the grid to the next; 0 for one line.
        width: elements at the start of a row that hold what is not slack.
    """

    axes: tuple[tuple[int, int], ...]
    span: int
    pitch: int
    width: int

    @classmethod
    def of(cls, spec: TensorSpec) -> "_View":
        steps = zip(spec.element_strides, spec.shape, strict=True)
        axes = tuple(sorted(((s, n) for s, n in steps if s and n > 1), reverse=True))
        if spec.span <= LINE and len(axes) < 2:
            return cls(axes, spec.span, 0, spec.span)
        if len(axes) < 2:
            step = axes[0][0]
            pitch, width = (step, 1) if step > 1 else (COLUMNS, COLUMNS)
            return cls(axes, spec.span, pitch, width)
        # Slow axes that continue each other are one axis of rows.
        row = 0
        while row + 2 < len(axes) and axes[row][0] == _product(axes[row + 1]):
            row += 1
        pitch = axes[row][0]
        inner = 1 + sum((n - 1) * s for s, n in axes[row + 1 :])
        return cls(axes, spec.span, pitch, min(pitch, inner))

    def kind_of(self, offset: int) -> str:
        if not 0 <= offset < self.span:
            return _BEYOND
        return _ELEMENT if _holds(self.axes, offset) else _SLACK


def _holds(axes: Sequence[tuple[int, int]], offset: int) -> bool:
    """Tell whether some index of these axes addresses an offset."""
    if not axes:
        return offset == 0
    (step, n), rest = axes[0], axes[1:]
    reach = sum((m - 1) * s for s, m in rest)
    first = max(0, -((reach - offset) // step))
    return any(
        _holds(rest, offset - i * step)
        for i in range(first, min(n - 1, offset // step) + 1)
    )


def _draw_memory(spec: TensorSpec, accesses: Sequence[Access]) -> list[str]:
    view = _View.of(spec)
    marks: dict[int, str] = {}
    order = list(_MEANINGS)
    before, after = [], []
    for access in accesses:
        mark = _mark(access)
        if access.offset < -FAR:
            before.append(
                f"{mark} <-- {counted(-access.offset, 'element')} before the start"
            )
        elif access.offset >= view.span + FAR:
            past = access.offset - view.span + 1
            after.append(f"{mark} --> {counted(past, 'element')} past the end")
        else:
            old = marks.get(access.offset, _ELEMENT)
            marks[access.offset] = max(mark, old, key=order.index)
    cells = _cells(view, marks, spec.offset)
    used = {text for row in cells[1:] for text in row[1:]}
    used |= {_mark(access) for access in accesses}
    legend = "   ".join(f"{s} {_MEANINGS[s]}" for s in order if s in used)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    rows = [
        " ".join(text.rjust(w) for text, w in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
    if len(cells[0]) == 1:
        rows = []  # nothing near an empty view
    elif not any(row[0] for row in cells):
        rows = [row[1:] for row in rows]  # one line has no row heads
    return [*dict.fromkeys(before), *rows, *dict.fromkeys(after), legend]


def _cells(view: _View, marks: Mapping[int, str], origin: int) -> list[list[str]]:
    """Return the grid: a row of column heads, then rows that begin with a head.

    Args:
        view: what is drawn.
        marks: symbol of each offending cell by its offset from the view's start.
        origin: storage offset of the view's start.
    """
    low, high = min([0, *marks]), max([view.span - 1, *marks])
    if view.pitch:
        places = [divmod(offset, view.pitch) for offset in marks]
        rows = _shown(range((view.span - 1) // view.pitch + 1), [r for r, _ in places])
        width = view.pitch if view.pitch <= COLUMNS else view.width
        used = [c for _, c in places]
        letters = len(f"+{max([width - 1, *used])} ")
        limit = min(COLUMNS, 1 + HEADS // letters)
        columns = _shown(range(width), used, limit=limit)
        if columns[-1] == view.pitch - 2:
            columns.append(view.pitch - 1)
        elif columns[-1] != view.pitch - 1:
            columns.append(None)
    else:
        rows, columns = [0], _shown(range(view.span), list(marks), limit=COLUMNS)
    head = 0 if view.pitch else origin
    plus = "+" if view.pitch else ""
    heads = [_GAP if c is None else f"{plus}{c + head}" for c in columns]
    grid = [["", *heads]]
    for row in rows:
        if row is None:
            grid.append([_GAP, *(_NOTHING for _ in columns)])
            continue
        start = row * view.pitch
        cells = [str(origin + start) if view.pitch else ""]
        for i, column in enumerate(columns):
            if column is None:
                hidden = start + (columns[i - 1] or 0) + 1
                follows = columns[i + 1] if i + 1 < len(columns) else view.pitch
                some = hidden <= high and start + (follows or 0) > low
                cells.append(_GAP if some else _NOTHING)
            elif low <= start + column <= high:
                offset = start + column
                cells.append(marks.get(offset) or view.kind_of(offset))
            else:
                cells.append(_NOTHING)
        grid.append(cells)
    return grid


def _shown(inside: range, focus: Sequence[int], limit: int = ROWS) -> list[int | None]:
    """Choose places of one axis to draw; None stands for those left out between.

    Args:
        inside: the places that hold elements, from 0.
        focus: the places that must be seen.
        limit: about how many to choose.
    """
    low, high = min([inside.start, *focus]), max([inside.stop - 1, *focus])
    if high - low < limit:
        return list(range(low, high + 1))
    wanted = dict.fromkeys(sorted(focus)[:limit])
    wanted.update(dict.fromkeys((inside.start, inside.stop - 1)))
    wanted.update(dict.fromkeys(f + side for f in list(focus) for side in (-1, 1)))
    # What remains goes to elements, those nearest to the first focus before others.
    near = min(max(min(focus, default=0), 0), inside.stop - 1)
    around = (near + side * step for step in range(limit) for side in (-1, 1))
    wanted.update(dict.fromkeys(place for place in around if place in inside))
    kept: list[int] = []
    for place in wanted:
        if len(kept) < limit and low <= place <= high and place not in kept:
            kept.append(place)
    shown: list[int | None] = []
    for place in sorted(kept):
        last = shown[-1] if shown else None
        if last is not None and place == last + 2:
            shown.append(last + 1)  # a mark of omission would take as much room
        elif last is not None and place > last + 1:
            shown.append(None)
        shown.append(place)
    return shown


def _mark(access: Access) -> str:
    special = {"race": "!", "unwritten": "U"}.get(access.where)
    return special or _ACCESSED.get(access.access, "X")


def _product(axis: tuple[int, int]) -> int:
    return axis[0] * axis[1]
