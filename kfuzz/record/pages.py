"""A comparison as text, and as one HTML page with a map by operator and class."""

from collections import Counter
from pathlib import Path
from typing import Final

from kfuzz.record.comparing import FAULTS, IDLE, Case, Compared, Told, causes
from kfuzz.report.layout import Section, text_page
from kfuzz.report.templates import page
from kfuzz.report.text import one_line

TITLE: Final = "Devices compared"
# Lines of a section for a terminal; the page and the JSON have more.
_MOST, _MOST_OF_PAGE = 50, 1_000
_TEMPLATE: Final = Path(__file__).parent / "page.html"
# Classes of the reports' style: a share of a row, and of it what is reported.
_SHARES: Final = ("w0", "w1", "w2", "w3")
_CHARGED: Final = ("x1", "x2", "x3")


def text(made: Compared) -> str:
    """Return the page for a terminal."""
    return "\n".join(text_page(TITLE, _facts(made), _sections(made, _MOST))) + "\n"


def html(made: Compared) -> str:
    """Return a self-contained page; it loads nothing and runs no script."""
    columns = list(dict.fromkeys(_column(c) for told in Told for c in made.of(told)))
    table: dict[str, Counter[str]] = {}
    for case in made.cases:
        table.setdefault(case.operator, Counter())[_column(case)] += 1
    told = {_column(c): c.told for c in made.cases}
    rows = [
        (
            one_line(operator),
            [(row[c], _level(row[c], row.total(), told[c])) for c in columns],
        )
        for operator, row in sorted(table.items())
    ]
    content = {
        "title": TITLE,
        "facts": [(label, one_line(told)) for label, told in _facts(made)],
        "columns": [one_line(column) for column in columns],
        "rows": rows,
        "sections": [s for s in _sections(made, _MOST_OF_PAGE) if s],
    }
    return page(_TEMPLATE, content)


def _facts(made: Compared) -> list[tuple[str, str]]:
    operators = len({c.operator for c in made.cases})
    counts = [(str(told), str(count)) for told, count in made.counts.items()]
    return [("cases", f"{len(made.cases)} over {operators} operators"), *counts]


def _sections(made: Compared, most: int) -> list[Section]:
    faults = [c for told in FAULTS for c in made.of(told)]
    idle = Counter(f"{c.told}: {c.why[:100]}" for told in IDLE for c in made.of(told))
    several = [
        ("causes of allowed differences", [f"{n} x {why}" for why, n in causes(made)]),
        ("faults", [f"{c.kernel} {c.key[:12]}: {c.told}: {c.why}" for c in faults]),
        ("rejected or not judged", [f"{n} x {why}" for why, n in idle.most_common()]),
        ("not in all recordings", list(made.unpaired)),
        ("declared differently, which is no disagreement", list(made.declared)),
        ("environment", list(made.environment)),
    ]
    return [
        Section("devices", list(map(one_line, made.devices))),
        *(Section(title, _cut(lines, most)) for title, lines in several),
    ]


def _cut(lines: list[str], most: int) -> list[str]:
    more = len(lines) - most
    rest = [f"… {more} more: `--format json` prints all"] if more > 0 else []
    return [one_line(line) for line in lines[:most]] + rest


def _column(case: Case) -> str:
    return f"{case.contract} {case.told}" if case.contract else str(case.told)


def _level(count: int, of: int, told: Told) -> str:
    """Return the class that colours a cell."""
    if not count:
        return ""
    if told in IDLE:
        return "u"
    levels = _CHARGED if told in FAULTS else _SHARES
    return levels[min(count * len(levels) // of, len(levels) - 1)]
