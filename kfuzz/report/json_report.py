"""One strict JSON document per verb; the shape of a run's is fixed (format 1).

Everything here returns plain values; `write` makes the document of them.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from kfuzz.contracts import glossary
from kfuzz.contracts.language import Contract
from kfuzz.core.codec import encode
from kfuzz.core.event import ContractTally, FindingReplayed, KernelFinished, KernelProof
from kfuzz.core.finding import Finding
from kfuzz.core.verdict import ReplayOutcome, State, Verdict
from kfuzz.engine.config import ReplayResult
from kfuzz.report.finding_view import (
    cause_lines,
    input_lines,
    line_lines,
    next_commands,
    patch_lines,
    target_option,
)
from kfuzz.report.promises import promise
from kfuzz.report.tables import Gathered
from kfuzz.report.text import counted, one_line, shown_path, table
from kfuzz.store import files
from kfuzz.store.corpus import Problem, Stored
from kfuzz.store.maintenance import Deed, Did

if TYPE_CHECKING:
    from kfuzz.engine.repair import Repair

FORMAT: Final = 1

Document = dict[str, Any]


def write(document: Document, out: TextIO) -> None:
    """Write a document, with its format number first, and nothing else.

    Raises:
        ValueError: if a number in it is not finite.
    """
    out.write(files.dumps({"format": FORMAT, **document}))


def run_document(run: Gathered, options: str = "") -> Document:
    """Return the document of `kfuzz run`, as far as events have come.

    Args:
        run: what came of it.
        options: what the commands in it need to find the corpus.
    """
    kernels = {n: _kernel(kernel, options) for n, kernel in run.kernels.items()}
    for shown in run.findings:
        if shown.kernel in run.kernels:
            continue
        # Its campaign was cut off: what was announced is still listed.
        entry = kernels.setdefault(
            shown.kernel,
            {"kernel": shown.kernel, "operator": shown.finding.operator}
            | {"cases": None, "cases_per_s": None, "worst_ratio": None}
            | {"contracts": {}, "refusals": [], "notes": [], "findings": []},
        )
        entry["findings"].append(finding_summary(shown.finding, shown.path, options))
    begun = run.started
    return {
        "seed": run.seed,
        "device": run.device,
        "elapsed_s": _rounded(run.elapsed_s),
        **({n: _rounded(s) for n, s in run.spent.items()} if run.finished else {}),
        # Until the campaign says that it came to its end, it did not.
        "interrupted": run.finished.interrupted if run.finished else True,
        **({"jobs": begun.jobs} if begun else {}),
        "replayed": [_replayed(event) for event in run.replayed],
        "kernels": list(kernels.values()),
        "notices": [encode(event) for event in run.notices],
    }


def proof_document(proof: KernelProof) -> Document:
    """Return what is proved of a kernel, with the premises."""
    made: Document = encode(proof)
    del made["kernel"]
    return {**made, "seconds": _rounded(proof.seconds)}


def finding_summary(finding: Finding, path: str | Path, options: str = "") -> Document:
    """Return a finding as lists have it."""
    return {
        "id": finding.id,
        "contract": finding.signature.contract,
        "kind": str(finding.signature.kind),
        "severity": finding.severity.words,
        "bucket": finding.bucket,
        "state": str(finding.state),
        "path": shown_path(path) if str(path) else "",
        "message": finding.failure.message,
        "ratio": _finite(finding.failure.ratio),
        "input_elements": finding.input_elements,
        "nonzero_elements": finding.nonzero_elements,
        "input": input_lines(finding),
        "cause": cause_lines(finding),
        "line": None if finding.line is None else asdict(finding.line),
        "patches": list(map(asdict, finding.patches)),
        "next": next_commands(finding, target_option(finding), options),
    }


def finding_document(stored: Stored) -> Document:
    """Return everything about one finding, as `kfuzz show` does."""
    finding = stored.finding
    return {
        **finding_summary(finding, stored.path),
        "kernel": finding.target.node_id,
        "finding": encode(finding),
    }


def repair_document(made: "Repair", *, applied: str) -> Document:
    """Return the document of `kfuzz repair`."""
    finding = made.stored.finding
    return {
        **finding_summary(finding, made.stored.path),
        "patches": list(map(asdict, finding.patches if made.drafts else ())),
        "rejected": list(map(asdict, made.rejected)),
        "why": made.why or None,
        "applied": applied or None,
    }


def repair_lines(made: "Repair", options: str, applied: str) -> list[str]:
    """Return what came of a repair.

    Args:
        made: what came of it.
        options: what the command printed needs to find the corpus.
        applied: the file that was written, "" where none was.
    """
    finding, count = made.stored.finding, len(made.drafts)
    lines = [f"{finding.id}: {one_line(finding.summary)}", *line_lines(finding.line)]
    for number, patch in enumerate(finding.patches if count else (), 1):
        head = f"patch {number} of {count}: " if count > 1 else "patch: "
        statement, *diff = patch_lines(patch)
        lines += ["", head + statement, *diff]
    if made.rejected:
        lines.append("")
    for patch in made.rejected:
        place = f"{one_line(patch.file)}:{patch.line}"
        lines.append(f"rejected: a change at {place}: {one_line(patch.statement)}")
    command = f"kfuzz repair {finding.id}{options} --apply"
    if applied:
        return [*lines, "", f"written to {one_line(applied)}"]
    if not count:
        return [*lines, "", f"no patch: {made.why}"]
    choice = " --choose N" if count > 1 else ""
    return [*lines, "", f"nothing was written; to do so: {command}{choice}"]


def replay_document(
    results: Iterable[ReplayResult], *, interrupted: bool = False
) -> Document:
    """Return the document of `kfuzz replay`."""
    return {
        "interrupted": interrupted,
        "results": [_replayed(r.event()) for r in results],
    }


def _replayed(event: FindingReplayed) -> Document:
    made: Document = encode(event)
    del made["by_chance"], made["reason"]
    named = {key: made[key] or None for key in ("id", "kernel", "contract")}
    return {**made, **named, "path": shown_path(event.path)}


def contract_document(contract: Contract) -> Document:
    """Return the eight parts of a contract, and its title."""
    parts: Document = asdict(contract)
    return {"identifier": parts.pop("identifier"), "title": promise(contract), **parts}


def contract_page(contract: Contract) -> Document:
    """Return the same with what its signs and probes mean, to stand alone."""
    return {
        **contract_document(contract),
        "glossary": {
            "signs": dict(glossary.signs(contract)),
            "probes": {str(p): text for p, text in glossary.probes(contract)},
            "confirmation": glossary.confirmation(contract),
            "drawing": glossary.drawing(),
        },
    }


def _kernel(event: KernelFinished, options: str) -> Document:
    tried: Document = {}
    if event.tried is not None:
        tried |= {
            "decided": event.tried.cases,
            "structures": event.tried.structures,
            "evidence": event.tried.evidence,
        }
    if event.searched:
        every = [
            encode(t) | {"seconds": _rounded(t.seconds), "worst": _finite(t.worst)}
            for t in event.searched
        ]
        tried |= {"searched": every, "largest": event.largest}
    return {
        "kernel": event.kernel,
        "operator": event.operator,
        "cases": event.cases,
        "cases_per_s": _rounded(event.cases_per_s),
        "screened": event.screened,
        "bursts": event.bursts,
        "worst_ratio": _finite(event.worst_ratio),
        **tried,
        "contracts": {name: _tally(t) for name, t in event.contracts.items()},
        "uncompared": event.uncompared or None,
        "refusals": [asdict(refusal) for refusal in event.refusals],
        "notes": [asdict(note) for note in event.notes],
        **({"proof": proof_document(event.proof)} if event.proof else {}),
        "findings": [
            finding_summary(f, event.paths.get(f.id, ""), options)
            for f in sorted(event.findings, key=lambda f: f.severity)
        ],
    }


def _tally(tally: ContractTally) -> Document:
    made: Document = encode(tally)
    if tally.verdict is Verdict.NOT_APPLICABLE:
        return {"verdict": made["verdict"]}
    if not tally.failed:
        del made["failed"]
    return made


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _rounded(value: float) -> float | None:
    return round(value, 3) if math.isfinite(value) else None


# Lists for people: replayed findings, contracts.


def replay_lines(result: FindingReplayed, *, options: str = "") -> list[str]:
    """Return the outcome of one finding, how the environment differs, what is next.

    Args:
        result: what came of it.
        options: what the command printed needs to find the corpus.
    """
    name = result.id or shown_path(result.path)
    width = max(map(len, ReplayOutcome))
    runs = f" ({result.failures} of {result.runs} runs fail)" if result.runs else ""
    text = f"{result.outcome:<{width}}  {one_line(name)}{runs}"
    if result.state is State.KNOWN:
        text += f": known, {one_line(result.reason)}" if result.reason else ": known"
    if result.excused:
        return [text]
    if result.message:
        text += f": {one_line(result.message)}"
    if result.outcome is ReplayOutcome.FIXED and result.by_chance:
        text += "; chance decides if it shows"
    lines = [text]
    if result.differences:
        lines.append(f"{' ' * width}  the environment differs from where it was found:")
    lines += [f"{' ' * width}    {one_line(d)}" for d in result.differences]
    return lines + _next(result, width, options)


def _next(result: FindingReplayed, width: int, options: str) -> list[str]:
    if not result.seems_fixed:
        return []
    command = f"kfuzz corpus mark {result.id} fixed{options}"
    return [f"{' ' * width}  seems fixed; if it is: {command}"]


def replay_total(results: Sequence[FindingReplayed]) -> str:
    """Return how many findings came out how."""
    counts = Counter(result.outcome for result in results)
    texts = [f"{counts[o]} {o}" for o in ReplayOutcome if counts[o]]
    if known := sum(result.excused for result in results):
        texts.append(f"{known} of them known")
    if not results:
        return "no finding replayed"
    return f"{counted(len(results), 'finding')} replayed: {', '.join(texts)}"


# What the verbs of the corpus say of it, as lines and as plain values for JSON.


def corpus_lines(entries: Iterable[Stored | Problem]) -> list[str]:
    """Return one line per finding below a header; none where there is none."""
    rows: list[Sequence[str]] = []
    for entry in entries:
        if isinstance(entry, Problem):
            continue
        finding, mark = entry.finding, entry.finding.mark
        text = finding.failure.message
        if mark is not None and mark.reason:
            text += f" (known: {f'{mark.reason} {mark.link}'.strip()})"
        kernel = one_line(finding.target.node_id)
        count = str(finding.input_elements)
        rows.append((finding.id, str(finding.state), kernel, count, one_line(text)))
    if not rows:
        return []
    header = ("id", "state", "kernel", "elements", "message")
    return table([header, *rows], numbers=(3,))


def corpus_document(entries: Iterable[Stored | Problem]) -> Document:
    """Return the document of `kfuzz corpus list`."""
    findings, problems = [], []
    for entry in entries:
        if isinstance(entry, Problem):
            problems.append(problem_document(entry))
            continue
        found = entry.finding
        more = {"kernel": found.target.node_id, "mark": encode(found.mark)}
        findings.append(finding_summary(found, entry.path) | more)
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
    return {"done": done, "entries": [encode(deed) for deed in deeds]}
