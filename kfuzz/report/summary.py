"""The end of a run as text: a table of kernels, then each one's contracts."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from kfuzz.core.event import ContractTally, KernelFinished, Note, Refusal
from kfuzz.core.statement import Graded
from kfuzz.core.verdict import CHARGED, Evidence, Tried, Verdict
from kfuzz.report.layout import table
from kfuzz.report.promises import titled
from kfuzz.report.proofs import proof_summary
from kfuzz.report.text import counted, one_line

# The verdicts that are printed by themselves, in order, each with its word.
_NAMED: Final = {
    Verdict.VIOLATES: "violates",
    Verdict.ERROR: "error",
    Verdict.UNDER_SPECIFIED: "undecided",
}


def overview(kernels: Sequence[KernelFinished]) -> list[str]:
    """Return one line per kernel below a header."""
    header = ("kernel", "operator", "cases", "cases/s", "findings", "worst ratio")
    rows: list[Sequence[str]] = [header]
    for k in kernels:
        name, operator = one_line(k.kernel), one_line(k.operator)
        counts = (str(k.cases), f"{k.cases_per_s:.1f}", str(len(k.findings)))
        rows.append((name, operator, *counts, f"{k.worst_ratio:.2g}"))
    return table(rows, numbers=range(2, len(header)))


def kernel_lines(kernel: KernelFinished, *, verbose: bool = False) -> list[str]:
    """Return a kernel's verdicts, its rejections and its notes.

    Args:
        kernel: the kernel.
        verbose: whether contracts that hold, or do not apply, are named, too.
    """
    lines = [one_line(kernel.kernel)]
    unsettled = (f for f in kernel.findings if f.state not in CHARGED)
    open_ = {finding.signature.contract for finding in unsettled}
    if verbose:
        verdicts = verdict_lines(kernel.contracts, open_, tried=kernel.tried)
    else:
        verdicts = verdict_block(kernel, open_)
    if kernel.uncompared:
        lines.append(f"  {nothing_compared(kernel)}")
    lines += [f"  {line}" for line in verdicts]
    if kernel.bursts:
        lines.append(
            f"  {kernel.screened} of {counted(kernel.cases, 'case')} ran in batches of "
            f"{counted(kernel.bursts, 'structure')}, with the checks that are always on"
        )
    return lines + [f"  {remark}" for remark in remarks(kernel)]


def verdict_block(
    kernel: KernelFinished, unsettled: Collection[str] = ()
) -> Iterator[str]:
    """Yield a line for each contract that is violated, open or wrong; count the rest.

    Args:
        kernel: the kernel.
        unsettled: the classes of which a failure was seen, and not confirmed.
    """
    tallies = kernel.contracts
    width = max(map(len, _NAMED.values()))
    for verdict, word in _NAMED.items():
        for name, tally in tallies.items():
            if tally.verdict is not verdict:
                continue
            is_open = name in unsettled or verdict is not Verdict.UNDER_SPECIFIED
            if is_open or not kernel.uncompared:  # else all are, for one reason
                counts = _counts(tally, name in unsettled)
                if tally.decided and not is_open:
                    counts += "; there was no time to attribute a failure"
                yield f"{word:<{width}}  {titled(name)}" + (
                    f" ({counts})" if counts else ""
                )
    held = sum(t.verdict is Verdict.CONFORMS for t in tallies.values())
    off = sum(t.verdict is Verdict.NOT_APPLICABLE for t in tallies.values())
    texts = []
    if held:
        few = barely(kernel.tried)
        texts.append(
            f"{counted(held, 'contract')} hold{'s' * (held == 1)}"
            + (f" ({few})" if few else "")
        )
    if off:
        of = "" if held else counted(off, "contract").removeprefix(f"{off}")
        texts.append(f"{off}{of} do{'es' * (off == 1)} not apply")
    if texts:
        yield f"{', '.join(texts)} (-v lists them)"


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


def nothing_compared(kernel: KernelFinished) -> str:
    """Return that no value of a kernel was compared, and why; "" if one was."""
    why = one_line(kernel.uncompared)
    return f"no value was compared: {why}" if why else ""


def barely(tried: Tried | None) -> str:
    """Return how little a kernel was tried, "" where that is enough or unknown."""
    if tried is None or tried.evidence is Evidence.ENOUGH:
        return ""
    text = f"barely tried: {counted(tried.cases, 'case')}"
    if tried.few_cases:
        return text
    return f"{text} of {counted(tried.structures, 'structure')}"


def remarks(kernel: KernelFinished) -> list[str]:
    """Return what is proved of a kernel, its refusals and notes, one line each."""
    proved = [] if kernel.proof is None else [f"proof: {proof_summary(kernel.proof)}"]
    return [*proved, *map(_refusal, kernel.refusals), *map(_note, kernel.notes)]


def _tally(name: str, tally: ContractTally | Graded, is_open: bool) -> str:
    if tally.verdict is Verdict.NOT_APPLICABLE:
        return name
    return f"{name} ({_counts(tally, is_open) or '0 decided'})"


def _counts(tally: ContractTally | Graded, is_open: bool) -> str:
    """Return how many failed of how many decided, "" where nothing was counted."""
    failed = tally.failed if isinstance(tally, ContractTally) else 0
    texts = []
    if failed:
        texts.append(f"{failed} of {tally.decided} decided cases failed")
    elif tally.decided:
        texts.append(f"{tally.decided} decided")
    if tally.undecided:
        texts.append(f"{tally.undecided} undecided")
    text = ", ".join(texts)
    if is_open and tally.verdict is Verdict.UNDER_SPECIFIED:
        text += "; a failure was not confirmed"
    return text.removeprefix("; ")


def _refusal(refusal: Refusal) -> str:
    text = f"rejects {one_line(refusal.reason)} ({counted(refusal.cases, 'case')})"
    if refusal.remedy:
        text += f"; to make it explicit, declare {one_line(refusal.remedy)}"
    if refusal.example:
        text += f"; it raised {one_line(refusal.example)}"
    return text


def _note(note: Note) -> str:
    return f"note: {one_line(note.note)} ({counted(note.cases, 'case')})"
