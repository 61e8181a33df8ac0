"""What a round has found, taken to its minimum and kept."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace

from kfuzz.core.codec import encode
from kfuzz.core.errors import StorageError
from kfuzz.core.event import Event, FindingSaved, Notice
from kfuzz.core.finding import Finding
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CaseReport, State
from kfuzz.engine.confirm.lifecycle import process
from kfuzz.engine.confirm.stored import FiledFinding
from kfuzz.engine.search.round import KernelTurns
from kfuzz.engine.workers.served import Stopped
from kfuzz.store.corpus import Corpus
from kfuzz.store.life import enter


def first_finding(
    kernel: KernelTurns, case: Case, report: CaseReport, *, seed: int
) -> Finding:
    """Return the finding of a case that fails, as it was found.

    Args:
        kernel: whose case it is.
        case: the case.
        report: what it taught, with a failure.
        seed: of the run.
    """
    assert report.failure is not None
    finding = Finding(
        signature=report.failure.signature(kernel.name),
        target=kernel.loaded.target,
        operator=kernel.loaded.kernel.operator.name_in_contracts,
        device=kernel.runner.place.backend,
        case=case,
        first=case,
        failure=report.failure,
        declaration=kernel.loaded.kernel.declaration,
        fingerprint=kernel.runner.fingerprint(),
        seed=seed,
        first_errors=report.failure.errors,
    )
    return enter(finding, State.NEW, "found")


def taken_to_minimum(
    kernel: KernelTurns,
    finding: Finding,
    corpus: Corpus,
    *,
    seconds: Callable[[], float],
    stopped: Callable[[], bool],
) -> Iterator[Event]:
    """Save, confirm, reduce, confirm, explain; what cannot be saved is told in words.

    Args:
        kernel: whose finding it is; gets it as it is stored in the end.
        finding: as found.
        corpus: where it is kept.
        seconds: how long it may be reduced and explained, asked once it is confirmed.
        stopped: whether the run is over.

    Raises:
        StorageError: if it cannot be kept; what was told as saved is still there.
    """
    kernel.seen.add(finding.signature)
    try:
        entry = FiledFinding(corpus, finding)
    except StorageError:
        kernel.findings[finding.id] = finding  # told at the end, with no path
        yield Notice(kernel.node_id, _unsaved(finding))
        raise
    path, is_new = str(entry.path), not entry.is_known
    yield FindingSaved(kernel.node_id, finding, path, is_new, "found")
    kernel.quiet = True
    try:
        pinned = replace(finding, case=kernel.runner.pin(finding.case))
        process(
            kernel.runner, pinned, seconds=seconds, stopped=stopped, save=entry.save
        )
    except Stopped:
        text = f"{entry.finding.id} is saved as it stood when the run ended"
        yield Notice(kernel.node_id, text)
    except Exception:
        kernel.keep(entry.finding, entry.path)  # it has been told
        raise
    finally:
        kernel.quiet = False
    final = entry.settle()
    kernel.seen.add(final.signature)
    is_new = entry.is_new and final.id not in kernel.findings
    kernel.keep(final, entry.path)
    yield FindingSaved(kernel.node_id, final, str(entry.path), is_new, "done")


def _unsaved(finding: Finding) -> str:
    """Return what is known of a finding that no disk holds: its case is a recipe."""
    what = f"{finding.signature.contract}: {finding.failure.message}"
    case = json.dumps(encode(finding.case))
    return f"found, and NOT SAVED: {what}; seed {finding.seed}, case {case}"
