"""Markdown: a run on one short page, such as the summary of a CI job."""

import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Final

from kfuzz.core.event import KernelFinished
from kfuzz.core.verdict import State, Verdict
from kfuzz.report.drawing import one_line
from kfuzz.report.finding_view import Depth, finding_lines, view
from kfuzz.report.gathered import Gathered, Shown
from kfuzz.report.kinds import ReportKind
from kfuzz.report.lists import replay_lines, replay_total

MAX_BYTES: Final = 1_000_000
"""A job summary may have 1 MiB; what is longer is shown nowhere."""

# Room for the line that says what was left out.
_RESERVED: Final = 500
_MAX_LINE: Final = 2_000
# Findings written out; of the others their line in the table says enough.
_WRITTEN_OUT: Final = 50


def document(run: Gathered, *, root: Path = Path(), options: str = "") -> str:
    """Return the document, of less than `MAX_BYTES` bytes."""
    text, size = "", 0
    for block in _blocks(run, options):
        encoded = len(block.encode(errors="backslashreplace"))
        if size + encoded > MAX_BYTES - _RESERVED:
            text += "\nThe rest is left out here; `kfuzz corpus list` names all.\n"
            break
        text, size = text + block, size + encoded
    return text


def _blocks(run: Gathered, options: str) -> Iterator[str]:
    findings = run.findings
    failing = [s for s in findings if s.fails]
    yield f"## kfuzz: {_headline(failing, findings)}\n\n"
    if run.ending:
        yield f"**The run was {_text(run.ending)}.**\n\n"
    if run.started or run.finished:
        yield (
            f"{run.cases} cases in {run.elapsed_s:.1f} s on {_text(run.device)}, "
            f"seed {run.seed}\n\n"
        )
    if run.kernels:
        yield from _table(run)
    if findings:
        yield "### Findings\n\n| state | contract | kernel | finding |\n"
        yield "|---|---|---|---|\n"
        for shown in findings:
            yield _row(shown)
        yield "\n"
    for shown in findings[:_WRITTEN_OUT]:  # those that fail come first
        yield _details(shown, options)
    if run.replayed:
        yield f"### Stored findings\n\n{replay_total(run.replayed)}\n\n"
        for replayed in run.replayed:
            lines = replay_lines(replayed, options=options)
            yield f"- {_text(' '.join(line.strip() for line in lines))}\n"
        yield "\n"
    if run.notices:
        yield "### Notes\n\n"
        for notice in run.notices:
            place = f"{_code(notice.kernel)}: " if notice.kernel else ""
            yield f"- {place}{_text(notice.message)}\n"
    if run.exited and run.exited.command:
        yield f"\nRepeat: {_code(run.exited.command)}\n"


def _headline(failing: list[Shown], findings: list[Shown]) -> str:
    known = sum(s.known for s in findings)
    rest = [
        s
        for s in findings
        if not s.fails and not s.known and s.finding.state is not State.FIXED
    ]
    words = [f"{len(failing)} violation{'s' if len(failing) != 1 else ''}"]
    none = "no violation confirmed" if rest else "no violation"
    words = words if failing else [none]
    words += [f"{known} known"] if known else []
    words += [f"{len(rest)} not confirmed"] if rest else []
    return ", ".join(words)


def _table(run: Gathered) -> Iterator[str]:
    yield "| kernel | operator | violates | conforms | undecided | "
    yield "findings | cases | cases/s | worst ratio |\n"
    yield "|---|---|---|---|---|--:|--:|--:|--:|\n"
    for node, kernel in run.kernels.items():
        counts = [
            str(len(kernel.findings)), str(kernel.cases), f"{kernel.cases_per_s:.1f}",
            f"{kernel.worst_ratio:.2g}",
        ]  # fmt: skip
        cells = [
            _code(node),
            _text(kernel.operator),
            _named(kernel, Verdict.VIOLATES),
            str(len(_with(kernel, Verdict.CONFORMS))),
            _named(kernel, Verdict.UNDER_SPECIFIED, Verdict.ERROR),
            *counts,
        ]
        yield f"| {' | '.join(cells)} |\n"
    yield "\n"


def _with(kernel: KernelFinished, *verdicts: Verdict) -> list[str]:
    return [n for n, tally in kernel.contracts.items() if tally.verdict in verdicts]


def _named(kernel: KernelFinished, *verdicts: Verdict) -> str:
    return ", ".join(map(_text, _with(kernel, *verdicts))) or "–"


def _row(shown: Shown) -> str:
    finding = shown.finding
    state = f"{finding.state}" + (" (new)" if shown.is_new and shown.fails else "")
    if shown.known and shown.reason:
        state += f": {_text(shown.reason)}"
    contract = _text(finding.signature.contract)
    return f"| {state} | {contract} | {_code(shown.kernel)} | {_code(finding.id)} |\n"


def _details(shown: Shown, options: str) -> str:
    made = view(shown, options)
    body = "\n".join(finding_lines(made, Depth.MEDIUM))
    fence = _fence(body)
    head = escape(f"{made.kernel}: {made.title}")
    return (
        f"<details><summary>{head}</summary>\n\n{fence}text\n{body}\n{fence}\n\n"
        "</details>\n\n"
    )


def _text(text: str) -> str:
    """Return text that Markdown shows as it is, on one line, in a table too."""
    shown = one_line(text)[:_MAX_LINE]
    shown = shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]{}#|~!@])", r"\\\1", shown)


def _code(text: str) -> str:
    """Return text as code, on one line, in a table too."""
    shown = one_line(text)[:_MAX_LINE].replace("|", "\\|")
    fence = _fence(shown, least=1)
    room = " " if "`" in shown else ""
    return f"{fence}{room}{shown}{room}{fence}"


def _fence(text: str, *, least: int = 3) -> str:
    longest = max(map(len, re.findall(r"`+", text)), default=0)
    return "`" * max(longest + 1, least)


KIND: Final = ReportKind(document)
