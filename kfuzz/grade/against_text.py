"""A comparison of two conformance statements, as text and as a JSON document."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from kfuzz.grade.against import Comparison, Difference, Outcome
from kfuzz.report.layout import Section, markdown_page, text_page

_HEADINGS = {
    Outcome.DIFFER: "differ; a contract arbitrates",
    Outcome.UNDER_SPECIFIED: "under_specified: no clause covers the difference",
    Outcome.ERROR: "could not be judged",
    Outcome.APART: "bind one of them only: they declare different things",
}


def comparison_lines(made: Comparison, *, markdown: bool = False) -> list[str]:
    """Return a comparison for a terminal, or as a page of Markdown."""
    title = f"{made.here} against {made.there}"
    counts = (
        f"{made.agreed} contracts agree, {len(made.of(Outcome.DIFFER))} differ, "
        f"{len(made.of(Outcome.UNDER_SPECIFIED))} under_specified"
    )
    facts = [("kernels compared", str(made.kernels)), ("contracts", counts)]
    declared = [
        f"{d.kernel}: {d.keyword} is {d.here} here, {d.there} there"
        for d in made.declared
    ]
    sections = [
        *(
            Section(heading, [_line(d) for d in made.of(outcome)])
            for outcome, heading in _HEADINGS.items()
        ),
        Section("undecided on both", list(_open(made))),
        Section("declared differently, which is no disagreement", declared),
        Section("only in this statement", made.only_here),
        Section("only in the other", made.only_there),
        Section("environment", made.environment),
    ]
    if markdown:
        return markdown_page(f"Conformance: {title}", facts, sections)
    return text_page(title, facts, sections)


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
