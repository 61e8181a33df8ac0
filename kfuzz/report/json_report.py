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
from kfuzz.core.event import (
    ContractTally,
    Event,
    FindingReplayed,
    FindingSaved,
    KernelFinished,
    Notice,
    RunFinished,
    RunStarted,
)
from kfuzz.core.finding import Finding
from kfuzz.core.verdict import Verdict
from kfuzz.engine.config import ReplayResult, Sanitized
from kfuzz.report.drawing import shown_path
from kfuzz.report.promises import promise
from kfuzz.store import strict_json
from kfuzz.store.corpus import Stored

FORMAT: Final = 1

Document = dict[str, Any]


def write(document: Document, out: TextIO) -> None:
    """Write a document, with its format number first, and nothing else.

    Raises:
        ValueError: if a number in it is not finite.
    """
    out.write(strict_json.dumps({"format": FORMAT, **document}))


class RunReport:
    """Folds a campaign's events to the document of `kfuzz run --format json`."""

    def __init__(self) -> None:
        self._run: Document = {"seed": None, "device": "", "elapsed_s": 0.0}
        self._begun: Document = {}
        self._kernels: dict[str, Document] = {}
        self._saved: dict[tuple[str, object], FindingSaved] = {}
        self._replayed: list[Document] = []
        self._notices: list[Document] = []
        # Until the campaign says that it came to its end, it did not.
        self._interrupted = True

    def feed(self, event: Event) -> None:
        """Take the next event."""
        match event:
            case RunStarted():
                self._run |= {"seed": event.seed, "device": event.device}
                self._begun = {"jobs": event.jobs, "learnt": event.learnt}
            case FindingSaved():
                key = (event.kernel, event.finding.signature.symptom)
                self._saved[key] = event
            case FindingReplayed():
                self._replayed.append(_replayed(event))
            case Notice():
                self._notices.append(encode(event))
            case KernelFinished():
                self._kernels[event.kernel] = _kernel(event)
            case RunFinished():
                self._interrupted = event.interrupted
                self._run = {
                    "seed": event.seed,
                    "device": event.device,
                    "elapsed_s": _rounded(event.elapsed_s),
                }
            case _:
                pass

    def document(self) -> Document:
        """Return the document as far as events have come."""
        kernels = dict(self._kernels)
        for event in self._saved.values():
            if event.kernel in self._kernels:
                continue
            # Its campaign was cut off: what was announced is still told.
            entry = kernels.setdefault(
                event.kernel,
                {"kernel": event.kernel, "operator": event.finding.operator}
                | {"cases": None, "cases_per_s": None, "worst_ratio": None}
                | {"contracts": {}, "refusals": [], "notes": [], "findings": []},
            )
            entry["findings"].append(finding_summary(event.finding, event.path))
        return {
            **self._run,
            "interrupted": self._interrupted,
            **self._begun,
            "replayed": self._replayed,
            "kernels": list(kernels.values()),
            "notices": self._notices,
        }


def finding_summary(finding: Finding, path: str | Path) -> Document:
    """Return what a list says about a finding."""
    return {
        "id": finding.id,
        "contract": finding.signature.contract,
        "kind": str(finding.signature.kind),
        "bucket": finding.bucket,
        "state": str(finding.state),
        "path": shown_path(path) if str(path) else "",
        "message": finding.failure.message,
        "ratio": _finite(finding.failure.ratio),
        "input_elements": finding.input_elements,
        "nonzero_elements": finding.nonzero_elements,
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
        "contracts": {name: _tally(t) for name, t in event.contracts.items()},
        "refusals": [asdict(refusal) for refusal in event.refusals],
        "notes": [asdict(note) for note in event.notes],
        "findings": [
            finding_summary(f, event.paths.get(f.id, "")) for f in event.findings
        ],
    }


def _tally(tally: ContractTally) -> Document:
    if tally.verdict is Verdict.NOT_APPLICABLE:
        return {"verdict": str(tally.verdict)}
    return {
        "verdict": str(tally.verdict),
        "decided": tally.decided,
        "undecided": tally.undecided,
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _rounded(value: float) -> float | None:
    return round(value, 3) if math.isfinite(value) else None
