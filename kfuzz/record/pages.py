"""A comparison as text, and as one HTML page with a map by operator and class."""

from collections import Counter
from html import escape
from typing import Final

from kfuzz.record.comparing import FAULTS, Compared, Told, causes
from kfuzz.report.layout import Section, text_page
from kfuzz.report.text import one_line

_MOST: Final = 50
_STYLE: Final = (
    "body{font:14px sans-serif;margin:2em}td,th{padding:.2em .6em;text-align:right}"
    "td:first-child,th:first-child{text-align:left}"
)


def text(made: Compared) -> str:
    """Return the page for a terminal."""
    faults = [c for c in made.cases if c.told in FAULTS]
    lines = [f"{c.kernel} {c.key[:12]}: {c.told}: {c.why}" for c in faults]
    more = [f"… {len(lines) - _MOST} more, see --format json"] * (len(lines) > _MOST)
    operators = len({c.operator for c in made.cases})
    refused = Counter(
        f"{c.told}: {c.why[:100]}"
        for c in made.cases
        if c.told in (Told.REFUSED, Told.UNJUDGED)
    )
    facts = [
        ("cases", f"{len(made.cases)} over {operators} operators"),
        *((str(told), str(count)) for told, count in made.counts.items()),
    ]
    sections = [
        Section("devices", made.devices),
        Section("causes of admitted differences", [
            f"{count} x {why}" for why, count in causes(made)
        ]),
        Section("faults", lines[:_MOST] + more),
        Section("refused or not judged", [
            f"{n} x {why}" for why, n in refused.most_common(_MOST)
        ]),
        Section("not in all recordings", made.unpaired[:_MOST]),
        Section("environment", made.environment),
    ]  # fmt: skip
    return "\n".join(text_page("Devices compared", facts, sections)) + "\n"


def html(made: Compared) -> str:
    """Return a self-contained page; it loads nothing and runs no script."""
    columns = [
        *(str(t) for t in Told if t not in (Told.OUTSIDE, Told.ALL_OUTSIDE)),
        *sorted({_column(c.contract, c.told) for c in made.cases if c.contract}),
    ]
    table: dict[str, Counter[str]] = {}
    for c in made.cases:
        row = table.setdefault(c.operator, Counter())
        row[_column(c.contract, c.told) if c.contract else str(c.told)] += 1
    head = "".join(f"<th>{_safe(c)}</th>" for c in ("operator", *columns))
    rows = "".join(
        f"<tr><td>{_safe(name)}</td>"
        + "".join(_cell(row[c], sum(row.values()), c) for c in columns)
        + "</tr>"
        for name, row in sorted(table.items())
    )
    devices = "".join(f"<li>{_safe(d)}</li>" for d in made.devices)
    lines = "".join(
        f"<li>{_safe(c.kernel)} {c.key[:12]}: {_safe(str(c.told))}: {_safe(c.why)}</li>"
        for c in made.cases
        if c.told in FAULTS
    )
    found = "".join(f"<li>{n} &times; {_safe(why)}</li>" for why, n in causes(made))
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>Devices compared</title><style>{_STYLE}</style>"
        f"<h1>Devices compared</h1><ul>{devices}</ul>"
        f"<h2>Causes of admitted differences</h2><ul>{found}</ul>"
        f"<h2>Cases by operator</h2><table><tr>{head}</tr>{rows}</table>"
        f"<h2>Faults</h2><ul>{lines}</ul></html>\n"
    )


def _column(contract: str, told: Told) -> str:
    return f"{contract} {told}"


def _cell(count: int, of: int, column: str) -> str:
    if not count:
        return "<td></td>"
    hue = 130 if column == Told.EQUAL else 50 if column == Told.ALLOWED else 0
    light = 95 - round(45 * count / of)
    return f'<td style="background:hsl({hue} 70% {light}%)">{count}</td>'


def _safe(text: str) -> str:
    return escape(one_line(text))
