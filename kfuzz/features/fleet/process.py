"""The process of one unit: it gets what to do, and reports what comes of it."""

import os
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from kfuzz.cli import run
from kfuzz.core.event import FindingReplayed, FindingSaved
from kfuzz.core.finding import ATEN, Finding
from kfuzz.engine.config import RunConfig
from kfuzz.execution.device.backends import environment_for, guess, resolve
from kfuzz.execution.processes.child import end, obey, work
from kfuzz.features.fleet.worker import (
    CALIBRATION,
    Place,
    Search,
    Survey,
    Surveyed,
    Work,
)
from kfuzz.store.corpus import Corpus
from kfuzz.store.entry import read_entry


def unit(connection: Connection, stop: threading.Event) -> Iterator[Any]:
    """Do as the first message says, and yield what comes of it."""
    asked, root, folder = connection.recv()
    os.chdir(root)
    obey(connection, stop)
    yield from perform(asked, Path.cwd(), Path(folder), stop)


def perform(
    work: Work, root: Path, folder: Path, stop: threading.Event
) -> Iterator[Any]:
    """Yield what comes of a piece of work.

    Args:
        work: the work.
        root: the project, as it lies on this machine; the working folder.
        folder: an empty one, for this alone.
        stop: ends it soon, once set.
    """
    match work:
        case Survey():
            yield _survey(work, root)
        case Search():
            for event in run.events(_placed(work, root, folder), stop=stop):
                yield _happened(event)
        case str() as device:
            yield _tried(device)


def _survey(work: Survey, root: Path) -> Surveyed:
    config = work.config
    backend = guess(config.device)
    if backend is not None:  # Triton reads its variables as it is imported
        os.environ.update(environment_for(backend, os.environ))
    from kfuzz.engine.search.preconditions import named_apart
    from kfuzz.engine.search.schedule import outside_of
    from kfuzz.targets.load import load_all

    on, _ = resolve(config.device)
    loaded = named_apart(
        load_all(config.targets, root=root), lambda name: work.homes.get(name, ()), root
    )
    places = []
    for kernel in loaded:
        source, name = kernel.source, kernel.kernel.name
        if source.file is not None:
            target = f"{os.path.relpath(source.file, root)}::{name}"
        elif source.module.startswith(ATEN):
            target = source.module  # names its overloads together
        else:
            target = f"{source.module}:{name}"
        places.append(Place(kernel.node_id, target, name, kernel.alias))
    return Surveyed(on.name, tuple(places), outside_of(loaded))


def _placed(work: Search, root: Path, folder: Path) -> RunConfig:
    """Return the campaign's configuration, with folders of this machine."""
    corpus = Corpus(folder / "corpus")
    for finding in work.stored:
        corpus.save(finding)
    calibration = None
    if work.calibration is not None:
        calibration = folder / CALIBRATION
        calibration.write_bytes(work.calibration)
    return replace(
        work.config, root=root, corpus=corpus.root, calibration=calibration,
        started=None,
    )  # fmt: skip


def _happened(event: Any) -> tuple[Any, Finding | None]:
    """Return an event with the finding that it speaks of, as stored."""
    match event:
        case FindingSaved():
            return event, event.finding
        case FindingReplayed(path=path) if event.id:
            return event, read_entry(Path(path))
    return event, None


def _tried(device: str) -> tuple[str, str]:
    from kfuzz.engine.workers.runner import tried
    from kfuzz.engine.workers.zygotes import Backend

    with closing(Backend(device)) as backend:
        uuid, ailment, _ = tried(backend, backend.devices[0])
    return ailment, uuid


if __name__ == "__main__":
    work(unit, run.portable)
    end()  # what a library began is not waited for
