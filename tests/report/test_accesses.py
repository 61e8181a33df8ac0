"""What people see of accesses at fault: in words."""

from dataclasses import replace
from typing import Any

import pytest

from kfuzz.core.verdict import Access
from kfuzz.report.finding_view import access_words


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
