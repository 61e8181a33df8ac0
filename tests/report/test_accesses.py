"""What people see of accesses at fault: in words."""

from dataclasses import replace
from typing import Any

import pytest

from kfuzz.core.finding import Finding
from kfuzz.core.verdict import Access, Failure, Kind
from kfuzz.report.finding_view import access_words, finding_page, view
from kfuzz.report.tables import Shown
from tests.helpers.findings import finding


def at(offset: int, where: str, access: str = "load", **changes: Any) -> Access:
    """Return an access to x at an offset from its first element."""
    made = Access(access, "x", "x", where, 1, offset, 1, (0, 0, 0), None, "sum.py:41")
    return replace(made, **changes)


@pytest.mark.parametrize(
    ("access", "words"),
    [
        (
            at(3, "after"),
            "load at sum.py:41, program (0, 0, 0): 1 element past the end of x",
        ),
        (
            at(-1, "before", "access", line="", program=None),
            "access: 1 element or more before the start of x",
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
    assert "actual" not in page_of(finding())
