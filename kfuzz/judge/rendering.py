"""A judgement for people and for programs."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from kfuzz.core.codec import encode
from kfuzz.core.verdict import Verdict
from kfuzz.judge.outcome import Coverage, Judgement
from kfuzz.report.finding_view import finding_lines, view
from kfuzz.report.gathered import Shown
from kfuzz.report.json_report import finding_summary
from kfuzz.report.text import counted, one_line

# Kernels are many in a deep candidate; all of them are in the JSON.
_SHOWN: Final = 12


def judgement_document(made: Judgement) -> dict[str, Any]:
    """Return a judgement as plain values; strict JSON's, format 1."""
    document: dict[str, Any] = encode(replace(made, findings=(), paths={}))
    del document["paths"], document["audit"]["modeless"]
    document["elapsed_s"] = round(made.elapsed_s, 3)
    document["coverage"]["elsewhere"] = made.coverage.elsewhere
    document["findings"] = [
        finding_summary(f, made.paths.get(f.id, "")) for f in made.findings
    ]
    return document


def judgement_lines(made: Judgement, *, options: str = "") -> list[str]:
    """Return a judgement as text, the verdict first.

    Args:
        made: the judgement.
        options: what a printed command needs besides, e.g. " --corpus DIR".
    """
    head = f"{made.verdict}: {one_line(made.candidate)}: {one_line(made.reason)}"
    lines = [head, f"  against {one_line(made.reference)}"]
    if made.on_finite is not None:
        cases = counted(made.coverage.finite, "case")
        lines.append(
            f"  on finite inputs: {made.on_finite} ({cases}); it breaks on NaN or "
            "infinities alone (--nonfinite undefined asks nothing of them)"
        )
    for finding in made.findings:
        path = made.paths.get(finding.id, "")
        found = view(Shown(made.candidate, finding, path), options)
        lines += [f"  {line}" for line in finding_lines(found)]
    lines += [f"  {label}: {one_line(text)}" for label, text in _facts(made)]
    where = f" ({made.device_name})" if made.device_name else ""
    stopped = ", interrupted" if made.interrupted else ""
    lines.append(
        f"  {made.elapsed_s:.1f} s on {made.device}{where}, seed {made.seed}{stopped}"
    )
    return lines


def _facts(made: Judgement) -> Iterator[tuple[str, str]]:
    """Yield what else there is to say, as label and text."""
    audit = made.audit
    yield from (("problem", text) for text in (*audit.faults[1:], *audit.notes))
    yield from (("inputs", text) for text in audit.inputs)
    if audit.inputs:
        yield "inputs", "all values that are tried keep to this"
    if audit.finite:
        yield (
            "inputs",
            "no NaN nor infinity: what meets a known zero need not reach the result",
        )
    if audit.domain:
        yield "domain", audit.domain
    yield from _coverage(made.coverage)
    decided = [
        f"{name} ({tally.decided})"
        for name, tally in made.contracts.items()
        if tally.verdict is Verdict.CONFORMS
    ]
    if decided:
        yield "kept, by cases that decided it", ", ".join(decided)
    for r in made.refusals:
        times = counted(r.cases, "case")
        yield f"raised on {one_line(r.reason)} ({times}), no violation", r.example
    for n in made.notes:
        yield "note", f"{n.note} ({counted(n.cases, 'case')})"
    yield from (("note", text) for text in made.notices)
    if made.weights:
        yield "weights", made.weights
    if made.operators:
        shown = ", ".join(made.operators[:_SHOWN])
        yield (
            "note",
            f"computes with torch's own operators, by its child's word: {shown}",
        )
    if made.launched:
        more = len(made.launched) - _SHOWN
        shown = ", ".join(made.launched[:_SHOWN])
        yield "launched", shown + (f" and {more} more" if more > 0 else "")
    if held := [m.name for m in made.containment if m.held]:
        yield "contained", ", ".join(held)
    for m in made.containment:
        if not m.held:
            yield "not contained", f"{m.name}: {m.text}"


def _coverage(made: Coverage) -> Iterator[tuple[str, str]]:
    cases, dtypes = counted(made.cases, "case"), ", ".join(made.dtypes) or "no dtype"
    yield (
        "tried",
        f"{cases}, {made.benchmarked} at the benchmarked shape and {made.elsewhere} "
        f"elsewhere; {len(made.families)} families of values, {made.shapes} shapes, "
        f"{dtypes}; up to {counted(made.calls, 'call')} of one process",
    )
    left = {
        "refused": made.refused,
        "on which the reference fails alike": made.beyond,
        "undecided": made.undecided,
    }
    if any(left.values()):
        yield (
            "besides, not counted",
            ", ".join(f"{n} {what}" for what, n in left.items() if n),
        )
