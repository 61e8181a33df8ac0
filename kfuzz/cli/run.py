"""kfuzz run: search for a violation."""

import shlex
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Annotated, TextIO

import typer

from kfuzz.cli import options, reports
from kfuzz.cli.exit_codes import ExitCode
from kfuzz.cli.project import open_project
from kfuzz.cli.streams import consume, report_stream, stopping
from kfuzz.core.budget import Budget, Profile
from kfuzz.core.burst import MEMBERS
from kfuzz.core.errors import UsageError
from kfuzz.core.event import Event, KernelFinished, RunFinished
from kfuzz.core.verdict import CHARGED, FAILING, Verdict
from kfuzz.engine import zygotes
from kfuzz.engine.config import Engine, RunConfig
from kfuzz.report.kinds import ReportFile

DEFAULT_TIME = "60s"


def run(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TARGET",
            help="path.py, path.py::name, a folder, package.module or "
            "package.module:name; without any, targets of [tool.kfuzz].",
            show_default=False,
        ),
    ] = None,
    max_time: Annotated[
        str | None,
        typer.Option(
            "--max-time",
            metavar="TIME",
            help="For the whole run: 90, 90s, 10m, 1h, 1h30m. Default 60s; without "
            "limit if --max-cases is given.",
            show_default=False,
        ),
    ] = None,
    max_cases: Annotated[
        int | None,
        typer.Option("--max-cases", metavar="N", help="Cases for each kernel."),
    ] = None,
    max_findings: Annotated[
        int | None,
        typer.Option("--max-findings", metavar="N", help="Stop after N findings."),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", metavar="N", help="Default: a fresh one, printed."),
    ] = None,
    profile: Annotated[
        str,
        typer.Option(
            "--profile",
            metavar="quick|large",
            help="large: tensors above 2^31 elements, more than 65,535 rows, strides "
            "that span gigabytes; on a GPU only.",
        ),
    ] = "quick",
    burst: Annotated[
        int,
        typer.Option(
            "--burst",
            metavar="N",
            help="Most members of a burst, which share a structure and are held to "
            "the contracts that are always on; 1 for no bursts.",
        ),
    ] = MEMBERS,
    engine: Annotated[
        str,
        typer.Option(
            "--engine",
            metavar="hypothesis|atheris",
            help="What chooses the cases. atheris: libFuzzer, guided by the branches "
            "of the wrapper and, interpreted, of the kernel; needs atheris installed.",
        ),
    ] = "hypothesis",
    contracts: Annotated[
        list[str] | None,
        typer.Option(
            "--contracts",
            metavar="GLOB",
            help="Contracts to judge, e.g. 'C-PRC-*'; repeatable.",
            show_default=False,
        ),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(
            "--exclude-contracts",
            metavar="GLOB",
            help="Contracts to leave out; repeatable.",
            show_default=False,
        ),
    ] = None,
    device: options.DeviceOption = "auto",
    isolate: Annotated[
        str,
        typer.Option(
            "--isolate",
            metavar="auto|process|none",
            help="Run kernels in processes of their own.",
        ),
    ] = "auto",
    corpus: options.CorpusOption = None,
    fail_on: Annotated[
        str,
        typer.Option(
            "--fail-on",
            metavar="new|any",
            help="Exit 1 on new findings only, or on known ones too.",
        ),
    ] = "new",
    report: reports.ReportOption = None,
    format: options.FormatOption = "text",
    quiet: Annotated[
        bool, typer.Option("-q", "--quiet", help="No progress and no notes.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Tracebacks, too.")
    ] = False,
) -> int:
    """Search for inputs on which a kernel breaks its contracts.

    Exit codes: 0 nothing found, 1 a violation, 2 usage, 3 internal error,
    4 nothing to run, 5 device missing, 130 interrupted (everything is saved).
    """
    started = time.monotonic()
    as_json = options.choice(format, options.FORMATS, "--format") == "json"
    options.choice(fail_on, options.FAIL_ON, "--fail-on")
    if quiet and verbose:
        raise UsageError("-q and -v exclude each other", fix="give one of them")
    if max_time is None and max_cases is None:
        max_time = DEFAULT_TIME
    budget = Budget(
        max_time=None if max_time is None else options.duration(max_time),
        max_cases=options.count(max_cases, "--max-cases"),
        max_findings=options.count(max_findings, "--max-findings"),
    )
    device = options.device(device)
    options.choice(isolate, options.ISOLATION, "--isolate")
    options.choice(profile, options.PROFILES, "--profile")
    options.choice(engine, options.ENGINES, "--engine")
    seed = options.seed(seed)
    wanted = reports.wanted(report or ())
    project = open_project(corpus)
    config = RunConfig(
        targets=project.targets(targets),
        root=project.root,
        corpus=project.corpus,
        seed=seed,
        budget=budget,
        started=started,
        device=device,
        isolate=isolate,
        contracts=tuple(contracts or ()),
        exclude=tuple(exclude or ()),
        profile=Profile(profile),
        burst=options.count(burst, "--burst") or 1,
        engine=Engine(engine),
    )
    given = {
        "--max-time": max_time,
        "--max-cases": max_cases,
        "--max-findings": max_findings,
        "--profile": profile if profile != "quick" else None,
        "--burst": burst if burst != MEMBERS else None,
        "--engine": engine if engine != "hypothesis" else None,
        "--contracts": contracts,
        "--exclude-contracts": exclude,
        "--device": device if device != "auto" else None,
        "--isolate": isolate if isolate != "auto" else None,
        "--corpus": corpus,
    }
    outcome = Outcome(fail_on_known=fail_on == "any")
    if isolate != "none" and config.engine is Engine.HYPOTHESIS:
        zygotes.expect(device)  # it imports torch while this process does
    with report_stream() as out:
        _search(
            config,
            out,
            outcome,
            as_json=as_json,
            quiet=quiet,
            verbose=verbose,
            corpus=project.corpus_option,
            repeat=_command(targets or [], given),
            wanted=wanted,
        )
    return outcome.code()


class Outcome:
    """Folds a campaign's events to its exit code.

    Args:
        fail_on_known: whether findings marked known fail the run, too.
    """

    def __init__(self, *, fail_on_known: bool) -> None:
        self._failing = CHARGED if fail_on_known else FAILING
        self._violated = self._interrupted = False
        self._error = False
        self._cases = 0

    def feed(self, event: Event) -> None:
        """Take the next event."""
        match event:
            case KernelFinished():
                states = {finding.state for finding in event.findings}
                self._violated |= bool(states & self._failing)
                self._cases += event.cases
                tallies = event.contracts.values()
                self._error |= any(t.verdict is Verdict.ERROR for t in tallies)
            case RunFinished():
                self._interrupted = event.interrupted
            case _:
                pass

    def code(self) -> ExitCode:
        """Return the exit code; a run in which nothing ran is not a success."""
        if self._interrupted:
            return ExitCode.INTERRUPTED
        if self._violated:
            return ExitCode.VIOLATION
        if self._error:
            return ExitCode.INTERNAL
        return ExitCode.OK if self._cases else ExitCode.NOTHING_TO_RUN


def _search(
    config: RunConfig,
    out: TextIO,
    outcome: Outcome,
    *,
    as_json: bool,
    quiet: bool,
    verbose: bool,
    corpus: str,
    repeat: str,
    wanted: list[ReportFile],
) -> None:
    from kfuzz.engine import campaign
    from kfuzz.report import json_report
    from kfuzz.report.files import ReportFiles
    from kfuzz.report.terminal import TerminalReport

    with ExitStack() as stack:
        stop = stack.enter_context(stopping())
        document = json_report.RunReport() if as_json else None
        folds: list[Callable[[Event], None]] = [outcome.feed]
        if document is not None:
            folds.append(document.feed)
        if document is None or not quiet:
            terminal = TerminalReport(
                sys.stderr if as_json else out,
                quiet=quiet,
                verbose=verbose,
                corpus=corpus,
                repeat=repeat,
            )
            folds.append(stack.enter_context(terminal).feed)

        def feed(event: Event) -> None:
            for fold in folds:
                fold(event)

        files = None
        if wanted:
            found = f" --corpus {shlex.quote(corpus)}" if corpus else ""
            files = ReportFiles(wanted, root=config.root, options=found)
        with reports.ending(files, f"{repeat} --seed {config.seed}") as codes:
            events = reports.told(campaign.run(config, stop=stop), files)
            consume(events, feed, stop)
            if document is not None:
                json_report.write(document.document(), out)
            codes.append(outcome.code())


def _command(targets: list[str], given: dict[str, str | int | list[str] | None]) -> str:
    """Return the command line of a run, without its seed."""
    words = ["kfuzz", "run", *targets]
    for option, value in given.items():
        values = value if isinstance(value, list) else [value]
        for item in values:
            words += [] if item is None else [option, str(item)]
    return shlex.join(words)
