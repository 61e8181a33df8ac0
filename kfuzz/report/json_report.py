"""One strict JSON document per verb; the shape of a run's is fixed (format 1).

Everything here returns plain values; `write` makes the document of them.
"""

import math
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, TextIO

from kfuzz.contracts import glossary
from kfuzz.contracts.language import Contract
from kfuzz.core.codec import encode
from kfuzz.core.event import ContractTally, FindingReplayed, KernelFinished
from kfuzz.core.finding import Finding
from kfuzz.core.proof import KernelProof
from kfuzz.core.verdict import Verdict
from kfuzz.engine.config import ReplayResult, Sanitized
from kfuzz.report.gathered import Gathered
from kfuzz.report.promises import promise
from kfuzz.report.text import shown_path
from kfuzz.store import strict_json
from kfuzz.store.corpus import Stored
from kfuzz.store.entry import Summary, summary_of

FORMAT: Final = 1

Document = dict[str, Any]


def write(document: Document, out: TextIO) -> None:
    """Write a document, with its format number first, and nothing else.

    Raises:
        ValueError: if a number in it is not finite.
    """
    out.write(strict_json.dumps({"format": FORMAT, **document}))


def run_document(run: Gathered) -> Document:
    """Return the document of `kfuzz run`, as far as events have come."""
    kernels = {node: _kernel(kernel) for node, kernel in run.kernels.items()}
    for shown in run.findings:
        if shown.kernel in run.kernels:
            continue
        # Its campaign was cut off: what was announced is still told.
        entry = kernels.setdefault(
            shown.kernel,
            {"kernel": shown.kernel, "operator": shown.finding.operator}
            | {"cases": None, "cases_per_s": None, "worst_ratio": None}
            | {"contracts": {}, "refusals": [], "notes": [], "findings": []},
        )
        entry["findings"].append(finding_summary(shown.finding, shown.path))
    begun = run.started
    return {
        "seed": run.seed,
        "device": run.device,
        "elapsed_s": _rounded(run.elapsed_s),
        **({"startup_s": _rounded(run.startup_s)} if run.finished else {}),
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


def finding_summary(finding: Finding, path: str | Path) -> Document:
    """Return what a list says about a finding."""
    return summary_document(summary_of(finding), path)


def summary_document(entry: Summary, path: str | Path) -> Document:
    """Return the same for one that was not read whole."""
    finding = entry.finding
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
        "input_elements": entry.input_elements,
        "nonzero_elements": entry.nonzero_elements,
    }


def finding_document(stored: Stored) -> Document:
    """Return everything about one finding, as `kfuzz show` does."""
    finding = stored.finding
    return {
        **finding_summary(finding, stored.path),
        "kernel": finding.target.node_id,
        "finding": encode(finding),
    }


def replay_document(
    results: Iterable[ReplayResult], *, interrupted: bool = False
) -> Document:
    """Return the document of `kfuzz replay`."""
    return {
        "interrupted": interrupted,
        "results": [_replayed(r.event()) for r in results],
    }


def _replayed(event: FindingReplayed) -> Document:
    return {
        "id": event.id or None,
        "kernel": event.kernel or None,
        "contract": event.contract or None,
        "outcome": str(event.outcome),
        "failures": event.failures,
        "runs": event.runs,
        "path": shown_path(event.path),
        "state": str(event.state) if event.state else None,
        "message": event.message,
        "seems_fixed": event.seems_fixed,
        "differences": list(event.differences),
    }


def sanitizer_document(
    tool: str, results: Iterable[Sanitized], *, interrupted: bool = False
) -> Document:
    """Return the document of `kfuzz replay --sanitizer`."""
    return {
        "interrupted": interrupted,
        "sanitizer": tool,
        "results": [
            {
                "id": r.finding.id if r.finding else None,
                "kernel": r.finding.target.node_id if r.finding else None,
                "path": shown_path(r.path),
                "problem": r.problem or None,
                "raised": r.raised or None,
                "errors": r.report.count if r.report else None,
                "warnings": r.report.warnings if r.report else None,
                "printed": [asdict(e) for e in r.report.errors] if r.report else [],
                "report": shown_path(r.file) if r.file else None,
            }
            for r in results
        ],
    }


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


def _kernel(event: KernelFinished) -> Document:
    return {
        "kernel": event.kernel,
        "operator": event.operator,
        "cases": event.cases,
        "cases_per_s": _rounded(event.cases_per_s),
        "screened": event.screened,
        "bursts": event.bursts,
        "worst_ratio": _finite(event.worst_ratio),
        **_tried(event),
        "contracts": {name: _tally(t) for name, t in event.contracts.items()},
        "uncompared": event.uncompared or None,
        "refusals": [asdict(refusal) for refusal in event.refusals],
        "notes": [asdict(note) for note in event.notes],
        **({"proof": proof_document(event.proof)} if event.proof else {}),
        "findings": [
            finding_summary(f, event.paths.get(f.id, ""))
            for f in sorted(event.findings, key=lambda f: f.severity)
        ],
    }


def _tried(event: KernelFinished) -> Document:
    """Return what the verdicts rest on, where that was told."""
    tried = event.tried
    if tried is None:
        return {}
    return {
        "decided": tried.cases,
        "structures": tried.structures,
        "evidence": str(tried.evidence),
    }


def _tally(tally: ContractTally) -> Document:
    if tally.verdict is Verdict.NOT_APPLICABLE:
        return {"verdict": str(tally.verdict)}
    return {
        "verdict": str(tally.verdict),
        "decided": tally.decided,
        "undecided": tally.undecided,
        **({"failed": tally.failed} if tally.failed else {}),
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _rounded(value: float) -> float | None:
    return round(value, 3) if math.isfinite(value) else None
