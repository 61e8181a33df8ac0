"""Shrinking a stored finding again, further, or after its kernel changed."""

import threading
from collections.abc import Iterator
from dataclasses import replace

from kfuzz.core.errors import UsageError
from kfuzz.core.event import Event, FindingSaved, Notice
from kfuzz.core.finding import Finding
from kfuzz.core.verdict import State
from kfuzz.engine.config import ReplayConfig
from kfuzz.engine.confirm.lifecycle import process
from kfuzz.engine.replay.replayer import backend_for, locate, runner_for
from kfuzz.engine.workers.backend import Backend
from kfuzz.engine.workers.jobs import Stopped
from kfuzz.store.corpus import Corpus, Stored
from kfuzz.store.life import merged

# A person waits for this one finding; a run gives each less.
SHRINK_SECONDS = 300.0


def shrink(
    stored: Stored, config: ReplayConfig, *, stop: threading.Event
) -> Iterator[Event]:
    """Reduce and explain a finding, and store the result.

    Yields:
        `FindingSaved` as it shrinks, and a `Notice` where it does not fail.

    Raises:
        KfuzzError: if the entry's kernel cannot be loaded.
        UsageError: if what `config` gives in its place bears another name.
    """
    corpus = Corpus(config.corpus)
    finding = stored.finding
    loaded = locate(finding, config)
    if loaded.name != finding.signature.kernel:
        raise UsageError(
            f"the finding is of {finding.signature.kernel!r}, and is stored anew as it "
            "shrinks",
            where=f"--target {config.target}",
            fix="name the kernel of that name, where it lives now",
        )
    backends: dict[str, Backend] = {}
    try:
        backend = backend_for(finding, config, backends)
        runner = runner_for(loaded, backend, config, stop)
        last, path = finding, stored.path
        saved: list[Finding] = []

        def save(now: Finding) -> Finding:
            nonlocal last, path
            if now.state in (State.FLAKY, State.UNREPRODUCED):
                return now  # a stored minimum is not given up for that
            held = corpus.get(last)
            told = merged(held.finding if held else finding, now)
            kept = replace(now, state=told.state, history=told.history, mark=told.mark)
            path = corpus.replace(last, kept)
            last = kept
            saved.append(kept)
            return kept

        try:
            case = finding.case if finding.case.pinned else runner.pin(finding.case)
            final = process(
                runner,
                replace(finding, case=case),
                seconds=lambda: SHRINK_SECONDS,
                stopped=stop.is_set,
                save=save,
            )
        except Stopped:
            return
        finally:
            runner.close()
        node_id = loaded.node_id
        if not saved:
            text = f"{finding.id} does not fail any more: {final.state}"
            if changed := finding.fingerprint.differences(runner.fingerprint()):
                text += f"; the environment differs: {'; '.join(changed)}"
            yield Notice(node_id, text)
            return
        yield FindingSaved(node_id, last, str(path), False, "done")
    finally:
        for backend in backends.values():
            backend.close()
