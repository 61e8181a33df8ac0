"""kfuzz run: search for a violation."""

import shlex
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Annotated, Final, TextIO

import typer

from kfuzz.cli import options, reports
from kfuzz.cli.effective import Effective
from kfuzz.cli.outcome import Outcome
from kfuzz.cli.project import open_project
from kfuzz.cli.settings import FRESH, number
from kfuzz.cli.streams import consume, report_stream, stopping
from kfuzz.core.budget import Budget, Scale
from kfuzz.core.burst import MEMBERS
from kfuzz.core.errors import StorageError
from kfuzz.core.event import Event
from kfuzz.engine.config import Engine, RunConfig
from kfuzz.engine.search import learnt_store
from kfuzz.engine.search.profiles import PROFILES, described
from kfuzz.engine.workers import zygotes
from kfuzz.report.kinds import ReportFile

# The settings that a printed command repeats, so that it draws the same cases.
_REPEATED: Final = (
    "max-time", "max-cases", "max-findings", "profile", "replay", "burst", "engine",
    "contracts", "exclude-contracts", "device", "isolate", "corpus",
)  # fmt: skip


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
            help="For the whole run: 90, 90s, 10m, 1h, 1h30m. Default: the profile's; "
            "60s without one, and without limit if --max-cases is given.",
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
        str | None,
        typer.Option(
            "--seed",
            metavar="N|fresh",
            help="Default: a fresh one, printed.",
            show_default=False,
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            metavar="NAME",
            help=f"{'; '.join(map(described, PROFILES))}; or one of the project's "
            "own. `kfuzz config` prints what it comes to.",
            show_default=False,
        ),
    ] = None,
    replay: Annotated[
        bool | None,
        typer.Option(
            "--replay/--no-replay",
            help="Replay the findings stored for the targets first, in at most half "
            "of the time. Default: the profile's.",
            show_default=False,
        ),
    ] = None,
    burst: Annotated[
        int | None,
        typer.Option(
            "--burst",
            metavar="N",
            help="Most members of a burst, which share a structure and are held to "
            f"the contracts that are always on; 1 for no bursts. Default {MEMBERS}.",
            show_default=False,
        ),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            "--engine",
            metavar="hypothesis|atheris",
            help="What chooses the cases. atheris: libFuzzer, guided by the branches "
            "of the wrapper and, interpreted, of the kernel; needs atheris installed. "
            "Default hypothesis.",
            show_default=False,
        ),
    ] = None,
    jobs: options.JobsOption = None,
    learnt: Annotated[
        str | None,
        typer.Option(
            "--learnt",
            metavar="auto|none|last|ID",
            help="What of earlier runs to begin with: last, all that they learnt; ID, "
            "what the run began with that printed it. Default auto: last without "
            "--seed, none with it.",
            show_default=False,
        ),
    ] = None,
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
    calibration: Annotated[
        str | None,
        typer.Option(
            "--calibration",
            metavar="FILE",
            help="What `kfuzz calibrate --format json` printed here, to tell which "
            "contracts are uncalibrated. Default: what kfuzz ships.",
            show_default=False,
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            metavar="auto|cpu|cuda[:i]|interpret",
            help="Where kernels run. Default auto.",
            show_default=False,
        ),
    ] = None,
    isolate: Annotated[
        str | None,
        typer.Option(
            "--isolate",
            metavar="auto|process|none",
            help="Run kernels in processes of their own. Default auto.",
            show_default=False,
        ),
    ] = None,
    corpus: options.CorpusOption = None,
    fail_on: Annotated[
        str | None,
        typer.Option(
            "--fail-on",
            metavar="new|any",
            help="Exit 1 on new findings only, or on known ones too. Default new.",
            show_default=False,
        ),
    ] = None,
    report: reports.ReportOption = None,
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="text|json",
            help="What to print on stdout. Default text.",
            show_default=False,
        ),
    ] = None,
    quiet: Annotated[
        bool | None,
        typer.Option(
            "-q", "--quiet", help="No progress and no notes.", show_default=False
        ),
    ] = None,
    verbose: Annotated[
        bool | None,
        typer.Option("-v", "--verbose", help="Tracebacks, too.", show_default=False),
    ] = None,
) -> int:
    """Search for inputs on which a kernel breaks its contracts.

    Every option can stand in [tool.kfuzz] of pyproject.toml and in the environment,
    as KFUZZ_MAX_TIME does for --max-time; `kfuzz config` prints what holds.

    Exit codes: 0 nothing found, 1 a violation, 2 usage, 3 internal error,
    4 nothing to run, 5 device missing, or a kernel needs a GPU and there is none, 130
    interrupted, violation or not (everything is saved).
    """
    started = time.monotonic()
    project = open_project(corpus)
    settings = Effective(
        {
            "targets": targets or None,
            "max-time": max_time,
            "max-cases": max_cases,
            "max-findings": max_findings,
            "seed": None if seed is None else number(seed),
            "profile": profile,
            "replay": replay,
            "burst": burst,
            "engine": engine,
            "jobs": jobs,
            "learnt": learnt,
            "contracts": contracts or None,
            "exclude-contracts": exclude or None,
            "calibration": calibration,
            "device": device,
            "isolate": isolate,
            "corpus": corpus,
            "fail-on": fail_on,
            "report": report or None,
            "format": format,
            "quiet": quiet,
            "verbose": verbose,
        },
        project.config,
    )
    if not settings["quiet"]:
        for name, hint in settings.unknown_variables():
            typer.echo(f"kfuzz: {name} is set and is no setting: {hint}", err=True)
    limit = settings["max-time"]
    config = RunConfig(
        targets=project.targets(settings["targets"]),
        root=project.root,
        corpus=project.corpus,
        seed=options.seed(None if settings["seed"] == FRESH else settings["seed"]),
        budget=Budget(
            max_time=None if limit is None else options.duration(limit),
            max_cases=settings["max-cases"],
            max_findings=settings["max-findings"],
        ),
        started=started,
        device=settings["device"],
        isolate=settings["isolate"],
        contracts=settings["contracts"],
        exclude=settings["exclude-contracts"],
        scale=Scale(settings["scale"]),
        burst=settings["burst"],
        probes=settings["probes"],
        engine=Engine(settings["engine"]),
        jobs=settings["jobs"],
        replay=settings["replay"],
        calibration=settings["calibration"],
    )
    begun, learn = learnt_store.chosen(
        settings["learnt"],
        seeded=settings["seed"] != FRESH,
        root=project.root,
        where=settings.where("learnt"),
    )
    config = replace(config, learn=learn, learnt=begun)
    outcome = Outcome(fail_on_known=settings["fail-on"] == "any")
    if config.isolate != "none" and config.engine is Engine.HYPOTHESIS:
        zygotes.expect(config.device)  # it imports torch while this process does
    with report_stream() as out:
        _search(
            config,
            out,
            outcome,
            as_json=settings["format"] == "json",
            quiet=settings["quiet"],
            verbose=settings["verbose"],
            corpus=project.corpus_option,
            repeat=_command(targets or [], settings, begun),
            wanted=settings["report"],
        )
    return outcome.code()


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
    wanted: Sequence[ReportFile],
) -> None:
    from kfuzz.engine.search import campaign
    from kfuzz.fuzz.source import GUIDES
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
            events = reports.told(campaign.run(config, stop=stop, guides=GUIDES), files)
            refused: StorageError | None = None
            try:
                consume(events, feed, stop)
            except StorageError as error:  # raised last: all that was seen was told
                refused = error
            if document is not None:
                json_report.write(document.document(), out)
            if refused is not None:
                raise refused
            codes.append(outcome.code())


def _command(targets: list[str], settings: Effective, begun: str) -> str:
    """Return the command line of a run, without its seed.

    What a file says it says again; the time limit is told wherever it comes from.
    """
    words = ["kfuzz", "run", *targets]
    for key in _REPEATED:
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
    words += ["--learnt", begun] if begun else []
    return shlex.join(words)
