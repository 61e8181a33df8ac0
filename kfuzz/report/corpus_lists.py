"""What the verbs of the corpus say of it, as lines and as plain values for JSON."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from kfuzz.core.codec import encode
from kfuzz.report.json_report import summary_document
from kfuzz.report.layout import table
from kfuzz.report.text import one_line, shown_path
from kfuzz.store.corpus import Problem
from kfuzz.store.entry import Summary
from kfuzz.store.maintenance import Deed, Did

Document = dict[str, Any]
Listed = tuple[Path, Summary | Problem]


def corpus_lines(entries: Iterable[Listed]) -> list[str]:
    """Return one line per finding below a header; none where there is none."""
    rows: list[Sequence[str]] = []
    for _, entry in entries:
        if isinstance(entry, Problem):
            continue
        finding, mark = entry.finding, entry.finding.mark
        text = finding.failure.message
        if mark is not None and mark.reason:
            text += f" (known: {f'{mark.reason} {mark.link}'.strip()})"
        kernel = one_line(finding.target.node_id)
        count = str(entry.input_elements)
        rows.append((finding.id, str(finding.state), kernel, count, one_line(text)))
    if not rows:
        return []
    header = ("id", "state", "kernel", "elements", "message")
    return table([header, *rows], numbers=(3,))


def corpus_document(entries: Iterable[Listed]) -> Document:
    """Return the document of `kfuzz corpus list`."""
    findings, problems = [], []
    for path, entry in entries:
        if isinstance(entry, Problem):
            problems.append(problem_document(entry))
            continue
        found = entry.finding
        more = {"kernel": found.target.node_id, "mark": encode(found.mark)}
        findings.append(summary_document(entry, path) | more)
    return {"findings": findings, "problems": problems}


def problem_line(problem: Problem) -> str:
    """Return what is wrong with a place in the corpus."""
    return f"{problem.kind}: {one_line(problem.what)}"


def problem_document(entry: Problem) -> Document:
    """Return what is wrong with a place in the corpus."""
    kind, path = str(entry.kind), shown_path(entry.path)
    return {"path": path, "kind": kind, "message": entry.what}


def deed_line(deed: Deed, *, done: bool = True) -> str:
    """Return what was done with one entry, or what would be."""
    states = ""
    if deed.after is not None and deed.before is not deed.after:
        states = f" ({deed.before or 'not there'} -> {deed.after})"
    why = f": {one_line(deed.why)}" if deed.why else ""
    did = f"{deed.did}" if done else f"would be {deed.did}"
    return f"{did:<{max(map(len, Did))}}  {one_line(deed.id)}{states}{why}"


def deeds_line(deeds: Sequence[Deed]) -> str:
    """Return how many entries had what done to them."""
    counts = Counter(deed.did for deed in deeds)
    return ", ".join(f"{counts[d]} {d}" for d in Did if counts[d]) or "nothing to do"


def deeds_document(deeds: Iterable[Deed], *, done: bool = True) -> Document:
    """Return the document of `kfuzz corpus mark`, `merge` and `prune`."""
    return {
        "done": done,
        "entries": [
            {
                "id": deed.id,
                "did": str(deed.did),
                "before": deed.before and str(deed.before),
                "after": deed.after and str(deed.after),
                "why": deed.why,
            }
            for deed in deeds
        ],
    }
