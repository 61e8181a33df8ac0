"""The end of a run as text: a table of kernels, then each one's contracts."""

from collections.abc import Collection, Iterator, Mapping, Sequence

from kfuzz.core.event import ContractTally, KernelFinished, Note, Refusal
from kfuzz.core.statement import Graded
from kfuzz.core.verdict import CHARGED, Evidence, Tried, Verdict
from kfuzz.report.layout import table
from kfuzz.report.text import counted, one_line


def overview(kernels: Sequence[KernelFinished]) -> list[str]:
    """Return one line per kernel below a header."""
    header = ("kernel", "operator", "cases", "cases/s", "findings", "worst ratio")
    rows: list[Sequence[str]] = [header]
    for k in kernels:
        name, operator = one_line(k.kernel), one_line(k.operator)
        counts = (str(k.cases), f"{k.cases_per_s:.1f}", str(len(k.findings)))
        rows.append((name, operator, *counts, f"{k.worst_ratio:.2g}"))
    return table(rows, numbers=range(2, len(header)))


def kernel_lines(kernel: KernelFinished) -> list[str]:
    """Return a kernel's verdicts, each with its contracts, its refusals and notes."""
    lines = [one_line(kernel.kernel)]
    unsettled = (f for f in kernel.findings if f.state not in CHARGED)
    open_ = {finding.signature.contract for finding in unsettled}
    verdicts = verdict_lines(kernel.contracts, open_, tried=kernel.tried)
    lines += [f"  {line}" for line in verdicts]
    if not any(t.decided for t in kernel.contracts.values()):
        lines.append("  nothing was decided: this run says nothing about this kernel")
    if kernel.bursts:
        lines.append(
            f"  {kernel.screened} of {counted(kernel.cases, 'case')} ran in bursts of "
            f"{counted(kernel.bursts, 'structure')}, held to what is always on"
        )
    return lines + [f"  {remark}" for remark in remarks(kernel)]


def verdict_lines(
    contracts: Mapping[str, ContractTally | Graded],
    unsettled: Collection[str] = (),
    *,
    tried: Tried | None = None,
) -> Iterator[str]:
    """Yield each verdict with its contracts, and how many cases decided them.

    Args:
        contracts: by their classes.
        unsettled: those of which a failure was seen, and not confirmed.
        tried: what the verdicts rest on, where it is known.
    """
    width = max(map(len, Verdict))
    for verdict in Verdict:
        chosen = {n: t for n, t in contracts.items() if t.verdict is verdict}
        if chosen:
            texts = (_tally(n, t, n in unsettled) for n, t in chosen.items())
            few = barely(tried) if verdict is Verdict.CONFORMS else ""
            head = f"{verdict} ({few})" if few else verdict
            yield f"{head:<{width}}  {', '.join(texts)}"


def barely(tried: Tried | None) -> str:
    """Return how little a kernel was tried, "" where that is enough or unknown."""
    if tried is None or tried.evidence is Evidence.ENOUGH:
        return ""
    text = f"barely tried: {counted(tried.cases, 'case')}"
    if tried.few_cases:
        return text
    return f"{text} of {counted(tried.structures, 'structure')}"


def remarks(kernel: KernelFinished) -> list[str]:
    """Return a kernel's refusals and notes, one line each."""
    return [*map(_refusal, kernel.refusals), *map(_note, kernel.notes)]


def _tally(name: str, tally: ContractTally | Graded, is_open: bool) -> str:
    if tally.verdict is Verdict.NOT_APPLICABLE:
        return name
    text = f"{tally.decided} decided"
    if tally.undecided:
        text += f", {tally.undecided} undecided"
    if is_open and tally.verdict is Verdict.UNDER_SPECIFIED:
        text += "; a failure was not confirmed"
    return f"{name} ({text})"


def _refusal(refusal: Refusal) -> str:
    text = f"refuses {one_line(refusal.reason)} ({counted(refusal.cases, 'case')})"
    if refusal.remedy:
        text += f"; to make it explicit declare {one_line(refusal.remedy)}"
    if refusal.example:
        text += f"; it raised {one_line(refusal.example)}"
    return text


def _note(note: Note) -> str:
    return f"note: {one_line(note.note)} ({counted(note.cases, 'case')})"
