"""A judgement for people and for programs."""

from dataclasses import asdict
from typing import Any, Final

from kfuzz.core.verdict import Verdict
from kfuzz.judge.judgement import Coverage, Judgement
from kfuzz.report.drawing import draw_case, one_line, shown_path
from kfuzz.report.json_report import finding_summary

# Kernels are many in a deep candidate; all of them are in the JSON.
_SHOWN: Final = 12


def judgement_document(made: Judgement) -> dict[str, Any]:
    """Return a judgement as plain values; strict JSON's, format 1."""
    coverage = made.coverage
    return {
        "verdict": str(made.verdict),
        "reason": made.reason,
        "reference": made.reference,
        "candidate": made.candidate,
        "device": made.device,
        "device_name": made.device_name,
        "seed": made.seed,
        "elapsed_s": round(made.elapsed_s, 3),
        "interrupted": made.interrupted,
        "audit": {
            "faults": list(made.audit.faults),
            "notes": list(made.audit.notes),
            "accumulator": made.audit.accumulator,
            "domain": made.audit.domain,
            "inputs": list(made.audit.inputs),
            "finite": made.audit.finite,
        },
        "coverage": {
            **asdict(coverage),
            "dtypes": list(coverage.dtypes),
            "elsewhere": coverage.elsewhere,
        },
        "findings": [
            finding_summary(f, made.paths.get(f.id, "")) for f in made.findings
        ],
        "contracts": {
            name: {
                "verdict": str(tally.verdict),
                "decided": tally.decided,
                "undecided": tally.undecided,
            }
            for name, tally in made.contracts.items()
        },
        "refusals": [asdict(refusal) for refusal in made.refusals],
        "notes": [asdict(note) for note in made.notes],
        "notices": list(made.notices),
        "containment": [asdict(measure) for measure in made.containment],
        "launched": list(made.launched),
        "operators": list(made.operators),
        "weights": made.weights,
        "on_finite": None if made.on_finite is None else str(made.on_finite),
    }


def judgement_lines(made: Judgement, *, options: str = "") -> list[str]:
    """Return a judgement as text, the verdict first.

    Args:
        made: the judgement.
        options: what a printed command needs besides, e.g. " --corpus DIR".
    """
    lines = [f"{made.verdict}: {one_line(made.candidate)}: {one_line(made.reason)}"]
    lines.append(f"  against {one_line(made.reference)}")
    if made.on_finite is not None:
        breaks = "; it breaks on NaN or infinities alone (--nonfinite undefined asks "
        lines.append(
            f"  on finite inputs: {made.on_finite} "
            f"({_cases(made.coverage.finite)}){breaks}nothing of them)"
        )
    for finding in made.findings:
        path = made.paths.get(finding.id, "")
        lines.append(f"  finding: {finding.signature.contract} ({finding.state})")
        lines.append(f"    {one_line(finding.failure.message)}")
        lines += [f"    {one_line(line)}" for line in draw_case(finding.case)]
        if path:
            lines.append(f"    stored: {one_line(shown_path(path))}")
        lines.append(f"    replay: kfuzz replay {finding.id}{options}")
    lines += [f"  problem: {one_line(text)}" for text in made.audit.faults[1:]]
    lines += [f"  problem: {one_line(text)}" for text in made.audit.notes]
    lines += [f"  inputs: {one_line(text)}" for text in made.audit.inputs]
    if made.audit.inputs:
        lines.append("  inputs: all values that are tried keep to this")
    if made.audit.finite:
        lines.append(
            "  inputs: no NaN nor infinity: what meets a known zero need not reach the "
            "result"
        )
    if made.audit.domain:
        lines.append(f"  domain: {one_line(made.audit.domain)}")
    lines += [f"  {line}" for line in _coverage(made.coverage)]
    decided = [
        f"{name} ({tally.decided})"
        for name, tally in made.contracts.items()
        if tally.verdict is Verdict.CONFORMS
    ]
    if decided:
        lines.append(f"  kept, by cases that decided it: {', '.join(decided)}")
    for refusal in made.refusals:
        lines.append(
            f"  raised on {one_line(refusal.reason)} ({_cases(refusal.cases)}), no "
            f"violation: {one_line(refusal.example)}"
        )
    lines += [f"  note: {one_line(n.note)} ({_cases(n.cases)})" for n in made.notes]
    lines += [f"  note: {one_line(text)}" for text in made.notices]
    if made.weights:
        lines.append(f"  weights: {one_line(made.weights)}")
    if made.operators:
        shown = ", ".join(one_line(name) for name in made.operators[:_SHOWN])
        lines.append(
            f"  note: computes with torch's own operators, by its child's word: {shown}"
        )
    if made.launched:
        shown = ", ".join(one_line(name) for name in made.launched[:_SHOWN])
        more = len(made.launched) - _SHOWN
        lines.append(f"  launched: {shown}" + (f" and {more} more" if more > 0 else ""))
    lines += [f"  {line}" for line in _containment(made)]
    where = f" ({made.device_name})" if made.device_name else ""
    stopped = ", interrupted" if made.interrupted else ""
    lines.append(
        f"  {made.elapsed_s:.1f} s on {made.device}{where}, seed {made.seed}{stopped}"
    )
    return lines


def _coverage(made: Coverage) -> list[str]:
    lines = [
        f"tried: {_cases(made.cases)}, {made.benchmarked} at the benchmarked shape and "
        f"{made.elsewhere} elsewhere; {len(made.families)} families of values, "
        f"{made.shapes} shapes, {', '.join(made.dtypes) or 'no dtype'}"
    ]
    left = []
    if made.refused:
        left.append(f"{made.refused} refused")
    if made.beyond:
        left.append(f"{made.beyond} on which the reference fails alike")
    if made.undecided:
        left.append(f"{made.undecided} undecided")
    if left:
        lines.append(f"besides, not counted: {', '.join(left)}")
    return lines


def _containment(made: Judgement) -> list[str]:
    held = [m.name for m in made.containment if m.held]
    lines = []
    if held:
        lines.append(f"contained: {', '.join(held)}")
    lines += [
        f"not contained: {m.name}: {one_line(m.text)}"
        for m in made.containment
        if not m.held
    ]
    return lines


def _cases(n: int) -> str:
    return "1 case" if n == 1 else f"{n} cases"
