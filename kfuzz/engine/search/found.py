"""What a round has found, taken to its minimum and kept."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

from kfuzz.core.codec import encode
from kfuzz.core.errors import StorageError
from kfuzz.core.event import Event, FindingSaved, Notice
from kfuzz.core.finding import Finding
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CaseReport, State
from kfuzz.engine.confirm.lifecycle import further, process
from kfuzz.engine.confirm.recorded import recorded
from kfuzz.engine.search.filed import FiledFinding
from kfuzz.engine.search.round import KernelSearch
from kfuzz.engine.workers.jobs import Stopped
from kfuzz.store.corpus import Corpus
from kfuzz.store.life import enter


def first_finding(
    kernel: KernelSearch, case: Case, report: CaseReport, *, seed: int
) -> Finding:
    """Return the finding of a case that fails, as it was found."""
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
    kernel: KernelSearch,
    finding: Finding,
    corpus: Corpus,
    *,
    seconds: Callable[[], float],
    stopped: Callable[[], bool],
    wait: Callable[[FiledFinding], None] | None = None,
) -> Iterator[Event]:
    """Save, confirm, reduce, confirm, explain; what cannot be saved is told in words.

    Args:
        kernel: whose finding it is; gets it as it is stored in the end.
        finding: as found.
        corpus: where it is kept.
        seconds: how long it may be reduced and explained, asked once it is confirmed.
        stopped: whether the run is over.
        wait: takes the finding as it came to be stored, to be taken further where time
            has stopped it; None where that is its end.

    Raises:
        StorageError: if it cannot be kept; what was told as saved is still there.
    """
    if kernel.has_seen(finding.signature.symptom):
        # Its class was told apart from that of another finding that shows alike.
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
            kernel.runner, pinned, seconds=seconds, stopped=stopped, save=entry.save,
            later=wait is not None,
        )  # fmt: skip
    except Stopped:
        told = entry.finding
        if told.state is State.NEW and kernel.runner.records_count:
            entry.save(recorded(told) or told)
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
    if wait is not None and not stopped():
        wait(entry)


def taken_further(
    kernel: KernelSearch,
    entry: FiledFinding,
    *,
    seconds: float,
    stopped: Callable[[], bool],
) -> Iterator[Event]:
    """Go on with a finding that was short of time; it stays as it is until it is done.

    Args:
        kernel: whose finding it is; gets it as it is stored in the end.
        entry: where it is stored.
        seconds: how long it may be reduced and explained.
        stopped: whether the run is over.

    Raises:
        StorageError: if it cannot be kept; what was stored is still there.
    """
    before = entry.finding
    kernel.quiet = True
    try:
        with suppress(Stopped):  # it is as far as it was stored by then
            further(
                kernel.runner, before, seconds=seconds, stopped=stopped, save=entry.save
            )
    finally:
        kernel.quiet = False
    final = entry.settle()
    if (final.id, final.case) == (before.id, before.case):
        kernel.keep(final, entry.path)
        return
    is_new = entry.is_new and final.id not in kernel.findings.keys() - {before.id}
    kernel.forget(before)
    kernel.keep(final, entry.path)
    path = str(entry.path)
    yield FindingSaved(kernel.node_id, final, path, is_new, "done", before.id)


def _unsaved(finding: Finding) -> str:
    """Return what is known of a finding that no disk holds: its case is a recipe."""
    what = f"{finding.signature.contract}: {finding.failure.message}"
    case = json.dumps(encode(finding.case))
    return f"found, and NOT SAVED: {what}; seed {finding.seed}, case {case}"
