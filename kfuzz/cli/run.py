"""kfuzz run: search for a violation."""

import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO

import typer

from kfuzz.cli.config import UNSAID, Effective
from kfuzz.cli.exit_codes import Outcome, code_of, line_of
from kfuzz.cli.project import Project, open_project
from kfuzz.cli.settings import SETTINGS, every_option, run_config
from kfuzz.cli.standard_streams import consume, report_stream, stopping
from kfuzz.cli.values import FRESH
from kfuzz.cli.wiring import wiring_of
from kfuzz.core.errors import StorageError
from kfuzz.core.event import Event, Exited, KernelFinished
from kfuzz.core.finding import ATEN
from kfuzz.engine.config import RunConfig
from kfuzz.store.proofs import keep_proof

if TYPE_CHECKING:  # it loads the contracts
    from kfuzz.report.files import ReportFiles


@every_option
def run(context: typer.Context, **given: Any) -> int:
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
        targets=_targets(given["targets"], settings, project),
        started=started,
        keep_inputs=settings["seed"] == FRESH,
    )
    if settings.chosen["max-time"].source != UNSAID:
        config = replace(config, import_seconds=config.budget.max_time)
    outcome = Outcome(fail_on_any=settings["fail-on"] == "any")
    repeat = _command(given["targets"] or [], settings)
    from kfuzz.cli import apart

    search: Callable[..., Iterator[Event]] = apart.events
    if settings["on"] is not None:
        search = partial(wiring_of(context).search_on, settings["on"])
    with report_stream() as out:
        _search(search, config, settings, project, outcome, repeat, out)
    return outcome.code()


def _targets(
    given: list[str] | None, settings: Effective, project: Project
) -> tuple[str, ...]:
    """Return the targets, packages of --aten among them.

    Those of the project are meant where the command line names neither.
    """
    packages = tuple(f"{ATEN}{name}" for name in settings["aten"])
    if packages and not given:
        return packages
    return (*project.targets(settings["targets"]), *packages)


def _search(
    search: Callable[..., Iterator[Event]],
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
    from kfuzz.report.gathered import Gathered
    from kfuzz.report.terminal import TerminalReport

    as_json, quiet = settings["format"] == "json", settings["quiet"]
    if not quiet:
        typer.echo(f"kfuzz: importing {' '.join(config.targets)}", err=True)
    with ExitStack() as stack:
        stop = stack.enter_context(stopping())
        document = Gathered() if as_json else None
        folds: list[Callable[[Event], None]] = [outcome.feed]
        if document is not None:
            folds.append(document.feed)
        if document is None or not quiet:
            terminal = TerminalReport(
                sys.stderr if as_json else out,
                quiet=quiet,
                verbose=settings["verbose"],
                corpus=project.corpus_option,
                repeat=repeat,
            )
            folds.append(stack.enter_context(terminal).feed)

        def feed(event: Event) -> None:
            if isinstance(event, KernelFinished) and event.proof is not None:
                keep_proof(config.corpus, event.proof)
            for fold in folds:
                fold(event)

        # A mistyped glob is said before a report is begun, which would replace another.
        select_classes(config.contracts, config.exclude_contracts)
        wanted, files = settings["report"], None
        if wanted:
            files = ReportFiles(wanted, root=config.root, options=project.options)
        with _ending(files, f"{repeat} --seed {config.seed}") as codes:
            events = _told(search(config, stop=stop), files)
            refused: StorageError | None = None
            try:
                consume(events, feed, stop)
            except StorageError as error:  # raised last: all that was seen was told
                refused = error
            if document is not None:
                json_report.write(json_report.run_document(document), out)
            if refused is not None:
                raise refused
            codes.append(outcome.code())


@contextmanager
def _ending(files: "ReportFiles | None", command: str) -> Iterator[list[int]]:
    """Write the reports when the block ends, however it does.

    Args:
        files: the reports; None if none are asked for.
        command: the command line that repeats the run.

    Yields:
        A list to which the block adds its exit code.

    Raises:
        HarnessError: if a report could not be written and nothing else was raised.
    """
    codes: list[int] = []
    if files is None:
        yield codes
        return
    try:
        yield codes
    except BaseException as error:
        files.finish(Exited(code_of(error), line_of(error), command))
        for problem in files.problems:  # the error that is raised says nothing of them
            typer.echo(f"kfuzz: {problem}", err=True)
        raise
    files.finish(Exited(codes[-1] if codes else None, "", command))
    files.require_written()


def _told(events: Iterable[Event], files: "ReportFiles | None") -> Iterator[Event]:
    """Yield the events, each told to the reports first.

    So they learn also of those that come while a run is being ended because what
    reads its output has left.
    """
    for event in events:
        if files is not None:
            files.feed(event)
        yield event


def _command(targets: list[str], settings: Effective) -> str:
    """Return the command line of a run, without its seed.

    What a file says it says again; the time limit is told wherever it comes from.
    """
    words = ["kfuzz", "run", *targets]
    for key in (s.key for s in SETTINGS.values() if s.repeated):
        chosen = settings.chosen[key]
        said = chosen.said
        if key == "max-time" and chosen.value is not None:
            said = chosen.value
        if said is None:
            continue
        for item in said if isinstance(said, list) else [said]:
            if isinstance(item, bool):
                words.append(f"--{key}" if item else f"--no-{key}")
            else:
                words += [f"--{key}", str(item)]
    return shlex.join(words)
