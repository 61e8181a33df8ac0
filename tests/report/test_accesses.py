"""What people see of accesses at fault: words, and the memory around an argument."""

from dataclasses import replace
from typing import Any

import pytest

from kfuzz.core.finding import Finding
from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.core.verdict import Access, Failure, Kind
from kfuzz.report.finding_view import access_words, draw_accesses, finding_page, view
from kfuzz.report.tables import Shown
from tests.helpers.findings import finding


def spec(*shape: int, strides: tuple[int, ...] | None = None, offset: int = 0) -> Any:
    axes = tuple("ABC"[: len(shape)])
    return TensorSpec(shape, axes, "float32", strides, offset, fill=Fill("randn"))


def at(offset: int, where: str, access: str = "load", **changes: Any) -> Access:
    """Return an access to x at an offset from its first element."""
    made = Access(access, "x", "x", where, 1, offset, 1, (0, 0, 0), None, "sum.py:41")
    return replace(made, **changes)


def drawn(view: TensorSpec, *accesses: Access) -> str:
    """Return the grid alone: without words and heading."""
    lines = draw_accesses(accesses, Case({"w": spec(7), "x": view}))
    return "\n".join(line.removeprefix("  ") for line in lines[1:])


GRIDS = {
    "tail over-read by one": (
        spec(1, 3), [at(3, "after")],
        "0 1 2 3\n"
        ". . . R\n"
        ". element   R offending load",
    ),
    "store past a padded view": (
        spec(2, 3, strides=(4, 1)), [at(8, "after", "store", distance=2)],
        "  +0 +1 +2 +3\n"
        "0  .  .  .  -\n"
        "4  .  .  .  _\n"
        "8  W\n"
        ". element   - gap between elements   _ outside   W offending store",
    ),
    "read before the start, by storage offset": (
        spec(3, offset=2), [at(-1, "before")],
        "1 2 3 4\n"
        "R . . .\n"
        ". element   R offending load",
    ),
    "int32 overflow": (
        spec(3, 1, strides=(2**30 + 1, 1)),
        [at(-(2**31) + 2, "before", distance=2**31 - 2)],
        "R <-- 2147483646 elements before the start\n"
        "           +0 …\n"
        "         0  . …\n"
        "1073741825  . …\n"
        "2147483650  .\n"
        ". element   R offending load",
    ),
    "race": (
        spec(1, 3), [at(1, "race", "store", other=(1, 0, 0))],
        "0 1 2\n"
        ". ! .\n"
        ". element   ! race",
    ),
    "what nothing wrote": (
        spec(3), [at(2, "unwritten")],
        "0 1 2\n"
        ". . U\n"
        ". element   U load of uninitialized memory",
    ),
    "nothing near": (
        spec(0, 3), [at(10**9, "after")],
        "R --> 1000000001 elements past the end\nR offending load",
    ),
    "a gap left out": (
        spec(2, 2, strides=(1000, 1)), [at(998, "slack", distance=2)],
        "     +0 +1 … +997 +998 +999\n"
        "   0  .  . …    -    R    -\n"
        "1000  .  .\n"
        ". element   - gap between elements   R offending load",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GRIDS)
def test_offending_cells_are_drawn_among_the_elements(name: str) -> None:
    view, accesses, grid = GRIDS[name]
    assert drawn(view, *accesses) == grid


@pytest.mark.parametrize("shape", [(500, 700), (100_000,), (1 << 20, 1 << 20)])
@pytest.mark.parametrize("side", ["before", "middle", "after"])
def test_a_large_view_is_elided_around_the_access(
    shape: tuple[int, ...], side: str
) -> None:
    strides = (shape[-1] + 9, 1)[-len(shape) :]
    view = spec(*shape, strides=strides, offset=50)
    offset = {"before": -1, "middle": view.span // 2, "after": view.span}[side]
    grid = drawn(view, at(offset, side)).splitlines()
    assert len(grid) < 20
    assert max(map(len, grid)) <= 90
    [row] = [line for line in grid[:-1] if "R" in line]
    start = int(row.split()[0])
    heads = grid[0][: row.index("R") + 1].split()
    assert start + int(heads[-1]) == 50 + offset
    assert any("…" in line for line in grid)


def test_cells_tell_elements_from_gaps() -> None:
    for shape, strides in [
        ((3, 2, 2), (2, 7, 1)), ((2, 2), (2, 3)), ((2, 3), (1, 5)), ((4,), (3,)),
    ]:  # fmt: skip
        view = spec(*shape, strides=strides)
        offsets = {0}
        for n, step in zip(shape, strides, strict=True):
            offsets = {o + i * step for o in offsets for i in range(n)}
        grid = drawn(view, at(view.span, "after")).splitlines()
        heads = 1 if "+" in grid[0] else 0
        cells = "".join("".join(row.split()[heads:]) for row in grid[1:-1])
        expected = "".join("." if o in offsets else "-" for o in range(view.span))
        assert cells == expected + "R"


@pytest.mark.parametrize(
    ("access", "words"),
    [
        (
            at(3, "after"),
            "load at sum.py:41, program (0, 0, 0): 1 element past the end of x",
        ),
        (
            at(9, "after", "store", distance=7, count=4),
            "store at sum.py:41, program (0, 0, 0): 7 elements past the end of x "
            "(4 elements in all)",
        ),
        (
            at(-1, "before", "access", line="", program=None),
            "access: 1 element or more before the start of x",
        ),
        (
            at(3, "slack", "atomic", line=""),
            "atomic in program (0, 0, 0): in a gap of x, 1 element from the nearest of "
            "its own",
        ),
        (
            at(5, "unwritten", argument="", memory="its own float32[4, 4]"),
            "load at sum.py:41, program (0, 0, 0): element at offset 5 of its own "
            "float32[4, 4], which is uninitialized",
        ),
        (
            at(0, "race", "store", argument="", memory="its own int8[1]",
               program=(1, 0, 0), other=(0, 0, 0)),
            "store at sum.py:41, program (1, 0, 0): element at offset 0 of its own "
            "int8[1], where program (0, 0, 0) stored another value",
        ),
        (
            at(0, "elsewhere", argument="", memory=""),
            "load at sum.py:41, program (0, 0, 0): memory that the launch was not "
            "given",
        ),
        (
            at(-9, "elsewhere", distance=9),
            "load at sum.py:41, program (0, 0, 0): memory that the launch was not "
            "given, 9 elements before the start of x",
        ),
    ],
)  # fmt: skip
def test_an_access_reads_as_a_sentence(access: Access, words: str) -> None:
    assert access_words(access) == words


def page_of(found: Finding) -> list[str]:
    return finding_page(view(Shown("k", found, "")))


def test_the_page_shows_them_and_strangers_cannot_drive_the_terminal() -> None:
    hostile = at(3, "after", line="a\x1b[31m\n.py:1", memory="x\x07")
    failure = Failure("K-MEM-01", Kind.READ_OUTSIDE, "loads", accesses=(hostile,))
    page = page_of(finding(failure=failure))
    start = page.index("actual")
    assert page[start + 1].startswith("  load at a\\x1b[31m .py:1, program (0, 0, 0)")
    start = page.index("memory")
    assert page[start + 1 : start + 4] == [
        "  x: float32[1, 3] contiguous", "    0 1 2 3", "    . . . R",
    ]  # fmt: skip
    assert "actual" not in page_of(finding())
