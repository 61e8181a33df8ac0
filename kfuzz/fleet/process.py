"""The process of one unit: it is told what to do, and tells what comes of it."""

import contextlib
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from kfuzz.cli import apart
from kfuzz.core.event import FindingReplayed, FindingSaved, Notice
from kfuzz.core.finding import ATEN, Target
from kfuzz.engine.config import RunConfig
from kfuzz.execution.device.backends import environment_for, guess
from kfuzz.execution.processes.own import end, obey, served
from kfuzz.fleet.work import (
    CALIBRATION,
    Grade,
    Happened,
    Place,
    Replay,
    Search,
    Survey,
    Surveyed,
    Trial,
    Witnesses,
    Work,
)
from kfuzz.store.corpus import Corpus, Stored
from kfuzz.store.entry import read_entry


def main() -> None:
    """Do as the first message says, and tell what comes of it."""
    connection = served()
    os.set_inheritable(connection.fileno(), False)
    work, root, folder = connection.recv()
    os.chdir(root)
    stop = threading.Event()
    obey(connection, stop)
    try:
        for item in perform(work, Path.cwd(), Path(folder), stop):
            connection.send(("item", item))
        told: object = ("done", None)
    except Exception as error:
        told = ("raised", apart.portable(error))
    with contextlib.suppress(OSError):
        connection.send(told)


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
            config = _placed(work, root, folder)
            for event in apart.events(config, stop=stop):
                yield _told(event)
        case Replay():
            yield from _replayed(work, root, folder, stop)
        case Grade():
            yield from _graded(work, root, folder, stop)
        case Witnesses():
            yield from _witnessed(work, stop)
        case Trial():
            yield _tried(work)


class _Homes:
    """Where the driver's corpus says that kernels live."""

    def __init__(self, work: Survey) -> None:
        self._homes = work.homes

    def homes(self, kernel: str) -> list[Target]:
        return list(self._homes.get(kernel, ()))


def _survey(work: Survey, root: Path) -> Surveyed:
    backend = guess(work.config.device)
    if backend is not None:  # Triton reads its variables as it is imported
        os.environ.update(environment_for(backend, os.environ))
    from kfuzz.engine.search.preconditions import named_apart
    from kfuzz.engine.search.progress import outside_of
    from kfuzz.execution.device.backends import resolve
    from kfuzz.targets.load import load_all

    config = work.config
    if work.platform:
        from kfuzz.grade.grading import platform_config

        config = platform_config(config)
    on, _ = resolve(config.device)
    loaded = named_apart(load_all(config.targets, root=root), _Homes(work), root)
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


def _told(event: Any) -> Happened:
    match event:
        case FindingSaved():
            return Happened(event, event.finding)
        case FindingReplayed(path=path) if event.id:
            return Happened(event, read_entry(Path(path)))
    return Happened(event)


def _replayed(
    work: Replay, root: Path, folder: Path, stop: threading.Event
) -> Iterator[Any]:
    from kfuzz.engine.replay.replayer import replay

    corpus = Corpus(folder / "corpus")
    for mark in work.marks:
        corpus.save(mark)
    entry = Stored(work.finding, corpus.save(work.finding))
    config = replace(work.config, root=root, corpus=corpus.root)
    yield from replay([entry], config, stop=stop)


def _graded(
    work: Grade, root: Path, folder: Path, stop: threading.Event
) -> Iterator[Any]:
    from kfuzz.grade.grading import Grading
    from kfuzz.store.statements import read_calibration

    config = _placed(work.search, root, folder)
    made = config.calibration
    rests = None if made is None else read_calibration(made)
    grading = Grading(config, platform=work.platform, calibration=rests)
    for event in grading.events(stop=stop):
        if not isinstance(event, Notice):  # the statement holds them
            yield _told(event)
    yield grading.statement()


def _witnessed(work: Witnesses, stop: threading.Event) -> Iterator[Any]:
    from kfuzz.contracts.witnesses.roster import Entry
    from kfuzz.core.codec import decode
    from kfuzz.grade.calibrating import place_of
    from kfuzz.grade.witness_pool import Pool

    place = place_of(work.device)
    yield place
    entries = [decode(Entry, entry, "entry") for entry in work.entries]
    if entries:
        with Pool([place.device], cases=work.cases, seed=work.seed, jobs=1) as pool:
            yield from pool.search(entries, stop)


def _tried(work: Trial) -> tuple[str, str]:
    from kfuzz.engine.workers.backend import Backend
    from kfuzz.engine.workers.canaries import tried

    backend = Backend(work.device)
    try:
        one = tried(backend, backend.devices[0])
    finally:
        backend.close()
    return one.ailment, one.uuid


if __name__ == "__main__":
    main()
    end()  # what a library began is not waited for
