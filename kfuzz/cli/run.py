"""kfuzz run: search for a violation."""

import os
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Final, TextIO

import typer

from kfuzz.cli.project import UNSAID, Effective, Project, open_project
from kfuzz.cli.settings import SETTINGS, as_plain, every_option, run_config
from kfuzz.cli.streams import (
    Outcome,
    code_of,
    consume,
    line_of,
    report_stream,
    stopping,
)
from kfuzz.core import errors
from kfuzz.core.event import Event, Exited, RunFinished
from kfuzz.core.features import hook
from kfuzz.engine.config import Engine, RunConfig
from kfuzz.engine.workers import zygotes
from kfuzz.engine.workers.jobs import LOOK_SECONDS
from kfuzz.engine.workers.zygotes import Home, home_of
from kfuzz.execution.device.backends import environment_for, guess
from kfuzz.execution.processes import forking
from kfuzz.execution.processes.child import OwnProcess, obey, work
from kfuzz.store.files import keep_run
from kfuzz.targets import load as imports
from kfuzz.targets.load import resolve

if TYPE_CHECKING:
    from kfuzz.report.files import ReportFiles


@every_option
def run(**given: Any) -> int:
    """Search for inputs on which a kernel breaks its contracts.

    Every option can stand in [tool.kfuzz] of pyproject.toml and in the environment,
    as KFUZZ_MAX_TIME does for --max-time; `kfuzz config` prints what holds.

    Exit codes: 0 nothing found, 1 a violation, 2 usage, 3 internal error,
    4 nothing to run, or no value of some kernel was compared, 5 device missing, or a
    kernel needs a GPU and there is none, 130 interrupted, violation or not
    (everything is saved).
    """
    started = time.monotonic()
    project = open_project(given["corpus"])
    settings = Effective(given, project.config)
    if not settings["quiet"]:
        for name, hint in settings.unknown_variables():
            typer.echo(f"kfuzz: {name} is set and is no setting: {hint}", err=True)
    config = run_config(
        settings.__getitem__,
        project.root,
        project.corpus,
        targets=project.targets(settings["targets"]),
        started=started,
    )
    if settings.chosen["max-time"].source != UNSAID:
        config = replace(config, import_seconds=config.budget.max_time)
    outcome = Outcome(fail_on_any=settings["fail-on"] == "any")
    repeat = _command(given["targets"] or [], settings)

    with report_stream() as out:
        _search(config, settings, project, outcome, repeat, out)
    return outcome.code()


def _search(
    config: RunConfig,
    settings: Effective,
    project: Project,
    outcome: Outcome,
    repeat: str,
    out: TextIO,
) -> None:
    from kfuzz.contracts.suite import select_classes
    from kfuzz.report import json_report
    from kfuzz.report.files import ReportFiles
    from kfuzz.report.tables import Gathered
    from kfuzz.report.terminal import TerminalReport

    as_json, quiet = settings["format"] == "json", settings["quiet"]
    if not quiet:
        typer.echo(f"kfuzz: importing {' '.join(config.targets)}", err=True)
    with ExitStack() as stack:
        stop = stack.enter_context(stopping())
        gathered = Gathered()
        folds: list[Callable[[Event], None]] = [outcome.feed, gathered.feed]
        if not (as_json and quiet):
            terminal = TerminalReport(
                sys.stderr if as_json else out,
                quiet=quiet,
                verbose=settings["verbose"],
                corpus=project.corpus_option,
                repeat=repeat,
            )
            folds.append(stack.enter_context(terminal).feed)

        def feed(event: Event) -> None:
            for fold in folds:
                fold(event)
            if isinstance(event, RunFinished) and gathered.started:
                seen = {name: k.errors for name, k in gathered.kernels.items()}
                keep_run(config.corpus, gathered.started.when, seen)

        # A mistyped glob is an error before a report is begun, and replaces another.
        select_classes(config.contracts, config.exclude_contracts)
        files = ReportFiles(
            settings["report"], root=config.root, options=project.options,
            corpus=config.corpus,
        )  # fmt: skip
        command = f"{repeat} --seed {config.seed}"

        def recorded() -> Iterator[Event]:
            for event in events(config, stop=stop):
                # First: they learn also of those that come while a run is being ended
                # because what reads its output has left.
                files.feed(event)
                yield event

        try:
            rejected: errors.StorageError | None = None
            try:
                consume(recorded(), feed, stop)
            except errors.StorageError as error:  # raised last: all events came before
                rejected = error
            if as_json:
                json_report.write(
                    json_report.run_document(gathered, project.options), out
                )
            if rejected is not None:
                raise rejected
        except BaseException as error:
            _finish(files, error, None, command)
            raise
        _finish(files, None, outcome.code(), command)


def _finish(
    files: "ReportFiles", error: BaseException | None, code: int | None, command: str
) -> None:
    """Write the reports, however the search ended.

    Raises:
        HarnessError: if a report could not be written and nothing else was raised.
    """
    if error is None:
        files.finish(Exited(code, "", command))
        files.require_written()
        return
    files.finish(Exited(code_of(error), line_of(error), command))
    for problem in files.problems:  # the error that is raised does not name them
        typer.echo(f"kfuzz: {problem}", err=True)


def _command(targets: list[str], settings: Effective) -> str:
    """Return the command line of a run, without its seed.

    What a file sets it sets again; the time limit is named wherever it comes from.
    """
    words = ["kfuzz", "run", *targets]
    for key in (s.key for s in SETTINGS.values() if s.repeated):
        chosen = settings.chosen[key]
        value = as_plain(chosen.value)
        if value is None or (chosen.rank > 1 and key != "max-time"):
            continue
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, bool):
                words.append(f"--{key}" if item else f"--no-{key}")
            else:
                words += [f"--{key}", str(item)]
    return shlex.join(words)


# A search in a process of its own, seen from the command line.
#
# The command line imports no torch and no user's file: it has its first line out while
# the other process imports both, and is there to say what an import did that ended it.

_ENTRY: Final = "kfuzz.cli.run:searching"
# An import handles no signal; a search needs longer, and is waited for.
STOP_SECONDS: Final = 3.0
# From the last event to the end of the process.
END_SECONDS: Final = 10.0


class SearchError(errors.HarnessError):
    """What kfuzz did not expect in the other process; its traceback is a note."""


def events(config: RunConfig, *, stop: threading.Event) -> Iterator[Event]:
    """Yield the events of a search that another process makes.

    Args:
        config: of the search.
        stop: ends it cleanly, once set.

    Raises:
        KfuzzError: as `kfuzz.engine.search.campaign.run`; what ends that process.
        KeyboardInterrupt: if it is to stop while it imports.
    """
    imports.limit_to(config.import_seconds)
    if config.isolate == "none":
        # Triton reads its variables as it is imported, which nobody has done here yet.
        os.environ.update(_environment(config))
        from kfuzz.engine.search import campaign

        yield from campaign.run(config, stop=stop, prover=hook("prover"))
        return
    for target in config.targets:
        resolve(target)  # what is mistyped is an error at once
    # Ctrl-C is this process's to obey.
    with OwnProcess(_ENTRY, _environment(config), start_new_session=True) as process:
        process.send(config)
        yield from _heard(process, config, stop)
        process.ended(END_SECONDS)


def _environment(config: RunConfig) -> Mapping[str, str]:
    """Return that of children, of whom the process is to be the origin."""
    backend = guess(config.device)
    if backend is None:
        return os.environ
    return environment_for(backend, os.environ)


def _heard(
    process: OwnProcess, config: RunConfig, stop: threading.Event
) -> Iterator[Event]:
    """Yield the events as they come; raise what the process raised, or its end."""
    importing, target, began = True, "", time.monotonic()
    asked: float | None = None
    try:
        for message in process.messages(stop, LOOK_SECONDS):
            now = time.monotonic()
            if stop.is_set() and asked is None:
                asked = now
            match message:
                case ("item", event):
                    importing = False
                    yield event
                case ("importing", str(target)):
                    began = now
                case _ if importing and asked and now - asked > STOP_SECONDS:
                    raise KeyboardInterrupt
                case _ if target and now - began > imports.limit():
                    raise imports.overdue(target, imports.limit())
    except EOFError:
        how = process.ended(END_SECONDS)
        if importing:
            where = target or " ".join(config.targets)
            raise imports.ended(where, how) from None
        raise errors.HarnessError(
            f"the process that searches ended: {how}",
            fix="What was found is in the corpus, `kfuzz corpus list` shows it",
        ) from None


def searching(connection: Connection) -> None:
    """Be the process that searches."""
    work(connection, _searched, portable)


def _searched(connection: Connection, stop: threading.Event) -> Iterator[Event]:
    """Search as the first message says, and yield what happens."""
    config: RunConfig = connection.recv()

    def tell(target: str) -> None:
        with suppress(OSError):
            connection.send(("importing", target))

    imports.tell(tell)
    imports.limit_to(config.import_seconds)
    if config.engine is Engine.HYPOTHESIS:
        zygotes.begin_here(config.device, homes(config))
    else:
        forking.keep_bytecode()
    obey(connection, stop)
    from kfuzz.engine.search import campaign

    yield from campaign.run(config, stop=stop, prover=hook("prover"))


def homes(config: RunConfig) -> list[Home]:
    """Return what the targets of a run have children import, if it is at hand."""
    found: dict[Home, None] = {}
    for target in config.targets:
        with suppress(errors.KfuzzError):  # the run says so
            for source in resolve(target):
                found[home_of(source, config.root)] = None
    return list(found)


def portable(error: BaseException) -> Any:
    """Return an exception as it can travel from one process to another.

    The traceback of one that kfuzz did not expect goes with it as a note.
    """
    import pickle

    if not isinstance(error, errors.KfuzzError):
        error.add_note(errors.trace_text(error))
    with suppress(Exception):
        if type(pickle.loads(pickle.dumps(error))) is type(error):
            return error
    return SearchError(f"{errors.class_name(error)}: {errors.message_of(error)}")
