"""The findings stored for a run's kernels, run again before anything is searched."""

import threading
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Final

from kfuzz.core.event import Event, FindingSaved, Notice
from kfuzz.engine.config import ReplayConfig, ReplayResult, RunConfig
from kfuzz.engine.replay import replay
from kfuzz.engine.search.round import KernelSearch
from kfuzz.engine.workers.zygotes import Backend
from kfuzz.store.corpus import Corpus, Problem, ProblemKind, Stored

SHARE: Final = 0.5
"""The part of a run's time that replaying may take."""


def replay_first(
    kernels: Sequence[KernelSearch],
    config: RunConfig,
    backend: Backend,
    *,
    classes: Collection[str],
    stop: threading.Event,
    end: float,
) -> Iterator[Event]:
    """Replay what is stored of kernels, and keep with each what still fails.

    Findings of another device are left to a run there. Where the time does not suffice
    for all, the seed says with which of them it begins, so that all have their night.

    Args:
        kernels: of the run.
        config: of the run.
        backend: where it runs.
        classes: ids of the contract classes in force.
        stop: set from outside to end after the current findings.
        end: `time.monotonic()` at which the search ends; infinite for no limit.

    Yields:
        An event for each finding replayed, one for each that is to be a finding of
        this run, and notices of what was left out.
    """
    corpus = Corpus(config.corpus)
    stored, elsewhere = _stored(kernels, corpus, classes, backend.name)
    if elsewhere:
        text = f"{_findings(elsewhere)} of other devices not replayed on {backend.name}"
        yield Notice("", text)
    first = config.seed % max(len(stored), 1)
    stored = stored[first:] + stored[:first]
    now = time.monotonic()
    asked = ReplayConfig(
        root=config.root,
        corpus=config.corpus,
        isolate=config.isolate,
        until=now + SHARE * max(end - now, 0.0),
    )
    owners = {entry.path: kernel for kernel, entry in stored}
    entries = [entry for _, entry in stored]
    done = 0
    loaded = {kernel.name: kernel.loaded for kernel in kernels}
    for result in replay(entries, asked, stop=stop, backend=backend, loaded=loaded):
        done += 1
        yield from _told(owners[result.path], result)
    if done < len(entries) and not stop.is_set():
        left = _findings(len(entries) - done)
        yield Notice("", f"{left} not replayed: that may take half of the time")


def _stored(
    kernels: Sequence[KernelSearch],
    corpus: Corpus,
    classes: Collection[str],
    device: str,
) -> tuple[list[tuple[KernelSearch, Stored | Problem]], int]:
    """Return what is stored of each kernel, and how much of it is of other devices."""
    found: list[tuple[KernelSearch, Stored | Problem]] = []
    elsewhere = 0
    for kernel in kernels:
        for entry in corpus.entries(kernel.name):
            if isinstance(entry, Stored):
                if entry.finding.target != kernel.loaded.target:
                    continue  # another kernel of this name
                if entry.finding.signature.contract not in classes:
                    continue
                if entry.finding.device != device:
                    elsewhere += 1
                    continue
            elif entry.kind is ProblemKind.FORMAT:
                continue  # another version's; `kfuzz corpus check` tells of it
            found.append((kernel, entry))
    return found, elsewhere


def _told(kernel: KernelSearch, result: ReplayResult) -> Iterator[Event]:
    """Yield what came of one finding; keep it with its kernel if it still fails."""
    finding, path = result.finding, str(result.path)
    yield replace(result.event(), kernel=kernel.node_id)
    if finding is not None:
        kernel.watch(finding.case)
    if finding is not None and result.reproduces and result.failures:
        kernel.stored.add(finding.id)
        kernel.keep(finding, result.path)
        yield FindingSaved(kernel.node_id, finding, path, is_new=False, stage="done")


def _findings(n: int) -> str:
    return "1 stored finding" if n == 1 else f"{n} stored findings"
