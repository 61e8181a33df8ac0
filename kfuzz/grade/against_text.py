"""A comparison of two conformance statements, as text and as a JSON document."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from kfuzz.grade.against import Comparison, Difference, Outcome
from kfuzz.report.drawing import one_line

_HEADINGS = {
    Outcome.DIFFER: "differ; a contract arbitrates",
    Outcome.UNDER_SPECIFIED: "under_specified: no clause covers the difference",
    Outcome.ERROR: "could not be judged",
    Outcome.APART: "bind one of them only: they declare different things",
}


def comparison_lines(made: Comparison, *, markdown: bool = False) -> list[str]:
    """Return a comparison for a terminal, or as a page of Markdown."""
    title = f"{made.here} against {made.there}"
    lines = [f"# Conformance: {title}" if markdown else title, ""]
    lines.append(
        f"{made.kernels} kernels compared: {made.agreed} contracts agree, "
        f"{len(made.of(Outcome.DIFFER))} differ, "
        f"{len(made.of(Outcome.UNDER_SPECIFIED))} under_specified"
    )
    for outcome, heading in _HEADINGS.items():
        texts = (_line(d) for d in made.of(outcome))
        lines += _section(heading, texts, markdown)
    lines += _section("undecided on both", _open(made), markdown)
    declared = (
        f"{d.kernel}: {d.keyword} is {d.here} here, {d.there} there"
        for d in made.declared
    )
    lines += _section("declared differently, which is no disagreement", declared,
                      markdown)  # fmt: skip
    lines += _section("only in this statement", iter(made.only_here), markdown)
    lines += _section("only in the other", iter(made.only_there), markdown)
    return lines + _section("environment", iter(made.environment), markdown)


def comparison_document(made: Comparison) -> dict[str, Any]:
    """Return the JSON form of a comparison."""
    document = asdict(made)
    document["differences"] = [
        {**asdict(d), "outcome": str(d.outcome)} for d in made.differences
    ]
    return document


def _open(made: Comparison) -> Iterator[str]:
    """Yield one line per class: whole platforms have such in common."""
    groups: dict[str, list[str]] = {}
    for d in made.of(Outcome.OPEN):
        groups.setdefault(d.contract.partition("/")[0], []).append(d.kernel)
    for name, kernels in groups.items():
        yield f"{name} of {', '.join(kernels)}"


def _line(d: Difference) -> str:
    return f"{d.contract} of {d.kernel}: {d.here} here, {d.there} there; {d.why}"


def _section(title: str, texts: Iterator[str], markdown: bool) -> list[str]:
    shown = [one_line(text) for text in texts]
    if not shown:
        return []
    if markdown:
        return ["", f"## {title}", "", *(f"- {t.replace('<', '&lt;')}" for t in shown)]
    return ["", title, *(f"  {text}" for text in shown)]
