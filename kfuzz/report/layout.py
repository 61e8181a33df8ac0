"""Pages as values, laid out as text or as Markdown: what is shown is decided once."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from kfuzz.report.text import one_line, plain

# Labels of facts stand in a column of this width.
LABEL: Final = 15
# Letters of a line of Markdown that a stranger wrote.
_MAX_LINE: Final = 2_000

Facts = Iterable[tuple[str, str]]
Rows = Sequence[Sequence[str]]


@dataclass(frozen=True)
class Section:
    """A part of a page; without content it is left out.

    Attributes:
        title: its heading.
        lines: one line each; several are a list.
        rows: a table below them, the header first; all of one length.
        prose: whether the lines are paragraphs, and no list.
        numbers: columns of the table aligned to the right.
    """

    title: str
    lines: Sequence[str] = ()
    rows: Rows = ()
    numbers: Sequence[int] = ()
    prose: bool = False

    def __bool__(self) -> bool:
        return bool(self.lines or len(self.rows) > 1)


def text_page(title: str, facts: Facts, sections: Iterable[Section]) -> list[str]:
    """Return a page for a terminal."""
    return [one_line(title), *fact_lines(facts), *section_lines(sections)]


def section_lines(sections: Iterable[Section]) -> list[str]:
    """Return sections for a terminal, a line left free before each."""
    lines = []
    for section in filter(None, sections):
        inner = list(section.lines)
        inner += table(section.rows, numbers=section.numbers) if section.rows else []
        lines += ["", one_line(section.title), *(f"  {plain(line)}" for line in inner)]
    return lines


def markdown_page(title: str, facts: Facts, sections: Iterable[Section]) -> list[str]:
    """Return a page of Markdown."""
    lines = [f"- {label}: {escaped(text)}" for label, text in facts]
    head = [f"# {escaped(title)}", *([""] if lines else [])]
    return [*head, *lines, *section_markdown(sections)]


def section_markdown(sections: Iterable[Section], *, level: int = 2) -> list[str]:
    """Return sections in Markdown, a line left free before each."""
    lines = []
    for section in filter(None, sections):
        lines += ["", f"{'#' * level} {escaped(section.title)}", ""]
        mark = "" if section.prose else "- "
        lines += [f"{mark}{escaped(line)}" for line in section.lines]
        if section.rows:
            lines += [""] if section.lines else []
            lines += markdown_table(section.rows, numbers=section.numbers)
    return lines


def fact_lines(facts: Facts) -> list[str]:
    """Return labels and texts in two columns."""
    return [f"  {label:<{LABEL}} {one_line(text)}" for label, text in facts]


def table(rows: Rows, *, numbers: Iterable[int] = ()) -> list[str]:
    """Return rows as aligned columns.

    Args:
        rows: the header first; all of one length.
        numbers: columns aligned to the right.
    """
    right = set(numbers)
    rows = [[plain(cell).replace("\n", " ") for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = (
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join(cells).rstrip())
    return lines


def markdown_table(rows: Rows, *, numbers: Iterable[int] = ()) -> list[str]:
    """Return the same as a table of Markdown; cells may hold its markup."""
    right, (head, *rest) = set(numbers), rows
    rule = ["--:" if i in right else "---" for i in range(len(head))]
    lines = (" | ".join(map(_cell, row)) for row in (head, rule, *rest))
    return [f"| {line} |" for line in lines]


def _cell(text: str) -> str:
    return escaped(text).replace("|", "\\|")


def escaped(text: str) -> str:
    """Return text on one line, without what Markdown takes for HTML, links or images.

    Other markup stays.
    """
    shown = one_line(text).replace("<", "&lt;")
    return re.sub(r"\](?=[(\[:])", "&#93;", shown)


def inert(text: str) -> str:
    """Return text that Markdown shows as it is, on one line, in a table too.

    What a stranger wrote makes no link, mention, heading or HTML of it.
    """
    shown = one_line(text)[:_MAX_LINE]
    shown = shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]{}#|~!@])", r"\\\1", shown)


def code(text: str) -> str:
    """Return text as code of Markdown, on one line, in a table too."""
    shown = one_line(text)[:_MAX_LINE].replace("|", "\\|")
    mark = fence(shown, least=1)
    room = " " if "`" in shown else ""
    return f"{mark}{room}{shown}{room}{mark}"


def fence(text: str, *, least: int = 3) -> str:
    """Return the backticks that enclose a text as code: more than it has in a row."""
    longest = max(map(len, re.findall(r"`+", text)), default=0)
    return "`" * max(longest + 1, least)
