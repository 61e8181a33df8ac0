"""Markdown: a run on one short page, such as the summary of a CI job."""

from html import escape
from pathlib import Path
from typing import Final

from kfuzz.core.event import KernelFinished
from kfuzz.core.verdict import State, Verdict
from kfuzz.report import tables
from kfuzz.report.finding_view import Depth, finding_lines, view
from kfuzz.report.json_report import replay_lines, replay_total
from kfuzz.report.kinds import ReportKind
from kfuzz.report.promises import proof_summaries
from kfuzz.report.tables import Gathered, Shown, headline
from kfuzz.report.text import code, fence, inert, rendered

MAX_BYTES: Final = 1_000_000
"""A job summary may have 1 MiB; what is longer is shown nowhere."""

# Room for the line that says what was left out.
_RESERVED: Final = 500
# Where the page may end; no text of a finding has it, for it is a control character.
_CUT: Final = "\f"
# Findings written out; of the others their line in the table says enough.
_WRITTEN_OUT: Final = 50
_TEMPLATE: Final = Path(__file__).parent / "run.md"


def document(run: Gathered, *, root: Path = Path(), options: str = "") -> str:
    """Return the document, of less than `MAX_BYTES` bytes."""
    found = [text for _, text in headline(run)]
    if run.findings and not run.findings[0].fails:  # those that fail come first
        unsettled = any(
            not (s.known or s.finding.state is State.FIXED) for s in run.findings
        )
        found.insert(0, "no violation confirmed" if unsettled else "no violation")
    content = dict(
        run=run,
        headline=", ".join(found),
        kernels=[_row(kernel) for kernel in run.kernels.values()],
        proofs=list(proof_summaries(run.kernels.values())),
        details=[
            _details(shown, root, options) for shown in run.findings[:_WRITTEN_OUT]
        ],
        replay_total=replay_total(run.replayed),
        replayed=[" ".join(replay_lines(r, options=options)) for r in run.replayed],
        cut=_CUT,
    )
    filters = {"text": inert, "code": code, "html": escape}
    whole = rendered(_TEMPLATE, content, html=False, filters=filters)
    text, size = "", 0
    for block in whole.split(_CUT):
        size += len(block.encode(errors="backslashreplace"))
        if size > MAX_BYTES - _RESERVED:
            text += "\nThe rest is left out here; `kfuzz corpus list` names all.\n"
            break
        text += block
    return text


def _row(kernel: KernelFinished) -> tuple[str, ...]:
    """Return the cells of a kernel in the table of all, its name first."""

    def having(*verdicts: Verdict) -> list[str]:
        return [n for n, t in kernel.contracts.items() if t.verdict in verdicts]

    conforming = str(len(having(Verdict.CONFORMS)))
    if few := tables.nothing_compared(kernel) or tables.barely(kernel.tried):
        conforming += f" ({few})"
    return (
        kernel.kernel,
        kernel.operator,
        ", ".join(having(Verdict.VIOLATES)) or "–",
        conforming,
        ", ".join(having(Verdict.UNDER_SPECIFIED, Verdict.ERROR)) or "–",
        str(len(kernel.findings)),
        str(kernel.cases),
        f"{kernel.cases_per_s:.1f}",
        f"{kernel.worst_ratio:.2g}",
        " · ".join(tables.searched(kernel)),
    )


def _details(shown: Shown, root: Path, options: str) -> tuple[str, str, str]:
    """Return a finding's heading and text, and the fence that encloses the text."""
    made = view(shown, options, root=root)
    body = "\n".join(finding_lines(made, Depth.MEDIUM))
    return f"{made.summary} ({made.title})", body, fence(body)


KIND: Final = ReportKind(document)
