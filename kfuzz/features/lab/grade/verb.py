"""kfuzz grade and kfuzz calibrate: what kernels, or contracts, are worth."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Final

import typer

from kfuzz.cli import settings, streams
from kfuzz.cli.project import open_project
from kfuzz.cli.settings import (
    CorpusOption,
    DeviceOption,
    FormatOption,
    JobsOption,
    QuietOption,
    TargetsArgument,
    option,
    shared,
)
from kfuzz.core.budget import Budget
from kfuzz.core.codec import encode
from kfuzz.core.errors import UsageError
from kfuzz.core.verdict import ATTRIBUTED, State, Verdict
from kfuzz.engine.config import RunConfig
from kfuzz.features.lab.grade.statement import (
    Calibration,
    Outcome,
    Statement,
    read_calibration,
    read_statement,
)
from kfuzz.store import files
from kfuzz.targets import load

DEFAULT_CASES: Final = 300
CALIBRATION_CASES: Final = 400


def grade(
    targets: TargetsArgument = None,
    platform: Annotated[
        bool, option("--platform", "Grade torch's own kernels on the device instead.")
    ] = False,
    statement: Annotated[
        Path | None,
        option(
            "--statement",
            "Take this JSON statement instead of making one; with --calibration "
            "it then rests on that.",
            metavar="FILE",
        ),
    ] = None,
    calibration: Annotated[
        Path | None,
        shared(
            "calibration",
            "What `kfuzz calibrate --format json` printed; uncalibrated contracts do "
            "not count. Default: what kfuzz ships.",
        ),
    ] = None,
    max_cases: Annotated[
        int | None,
        shared(
            "max-cases",
            f"Cases for each kernel; {DEFAULT_CASES} unless --max-time is given.",
        ),
    ] = None,
    max_time: Annotated[
        str | None,
        shared(
            "max-time",
            "For the whole run, from the first case on: 90, 90s, 10m, 1h, 1h30m.",
        ),
    ] = None,
    seed: Annotated[
        int | None, shared("seed", "Default: a fresh one, stated.", "N")
    ] = None,
    prove: Annotated[
        bool,
        shared("prove", "State what is proved of each kernel, too, with the premises."),
    ] = False,
    jobs: JobsOption = None,
    device: DeviceOption = "auto",
    corpus: CorpusOption = None,
    fail_on: Annotated[
        str,
        shared(
            "fail-on",
            "Exit 1 on new findings only, or on known ones and listed defects too.",
        ),
    ] = "new",
    format: Annotated[
        str, shared("format", kind=settings.one_of("text", "markdown", "json"))
    ] = "text",
    quiet: QuietOption = False,
) -> int:
    """Run the suite and write a conformance statement.

    Exit codes: 0 no violation, 1 a violation that is neither known nor a listed
    defect, 2 usage, 3 internal error, 4 nothing to run, or no value of some
    kernel was compared, 5 device missing, 130
    interrupted, violation or not (the statement says so).
    """
    from kfuzz.features.lab.grade.grading import Grading, resting_on

    started = time.monotonic()
    if bool(statement) + platform + bool(targets) > 1:
        raise UsageError("--statement, --platform and a target exclude each other")
    if max_time is None and max_cases is None:
        max_cases = DEFAULT_CASES
    budget = Budget(
        max_time=None if max_time is None else settings.duration(max_time),
        max_cases=max_cases,
    )
    load.limit_to(budget.max_time)
    # What cannot be read is said before the search, not after it.
    rests = None if calibration is None else read_calibration(calibration)
    with streams.report_stream() as out:
        if statement is not None:
            made = read_statement(statement)
            made = made if rests is None else resting_on(made, rests)
        else:
            project = open_project(corpus)
            config = RunConfig(
                targets=() if platform else project.targets(targets),
                root=project.root,
                corpus=project.corpus,
                seed=settings.drawn_seed(seed),
                budget=budget,
                started=started,
                device=device,
                jobs=jobs,
                prove=prove,
            )

            grading = Grading(config, platform=platform, calibration=rests)
            with streams.stopping() as stop:
                events = grading.events(stop=stop)
                streams.follow(events, stop, quiet=quiet, corpus=project.corpus_option)
            made = grading.statement()
        out.write(_rendered(made, format))
    return code_of(made, fail_on_known=fail_on == "any")


def code_of(statement: Statement, *, fail_on_known: bool) -> streams.ExitCode:
    """Return the exit code that a statement stands for.

    Args:
        statement: what was made or read.
        fail_on_known: whether known findings and listed defects fail it, too.
    """
    from kfuzz.features.lab.grade.statement_text import is_judged

    faults = [f for k in statement.kernels for f in k.findings if f.state in ATTRIBUTED]
    if not fail_on_known:
        faults = [f for f in faults if f.state is not State.KNOWN and not f.listed]
    graded = [g for k in statement.kernels for g in k.contracts.values()]
    return streams.code_of_search(
        interrupted=statement.interrupted,
        violated=bool(faults),
        failed=any(g.verdict is Verdict.ERROR for g in graded),
        ran=bool(statement.kernels) and all(map(is_judged, statement.kernels)),
    )


def _rendered(made: Statement, kind: str) -> str:
    """Return a statement as text."""
    from kfuzz.features.lab.grade import statement_text as pages

    if kind == "json":
        return files.dumps({"format": 1, **pages.statement_document(made)})
    lines = pages.statement_page(made, markdown=kind == "markdown")
    return "\n".join(lines) + "\n"


def calibrate(
    globs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="GLOB",
            help="Contracts, by class or identifier: 'C-PRC-*', '*/softmax', "
            "C-EXC-01/relu; all by default.",
        ),
    ] = None,
    max_cases: Annotated[
        int,
        shared(
            "max-cases",
            "Most cases for a violating witness; a conforming one gets a quarter, in "
            "Triton's interpreter a sixteenth.",
        ),
    ] = CALIBRATION_CASES,
    seed: Annotated[int, shared("seed", "Everything drawn depends on it.", "N")] = 0,
    device: DeviceOption = "auto",
    jobs: Annotated[
        int | None,
        shared(
            "jobs",
            "Witnesses searched at once; by default one for each processor, or for "
            "each GPU.",
        ),
    ] = None,
    format: FormatOption = "text",
) -> int:
    """Calibrate the contracts: search kernels known to be right and to be wrong.

    A contract is sound if it fails no conforming witness, and every witness that
    violates it passes the plain functional test and is falsified under it. Without
    such a pair it is uncalibrated, and does not count in a grade.

    Exit codes: 0 no pair is unsound, 1 one is or a trivial baseline is not rejected,
    2 usage, 3 internal error, 5 device missing, 130 interrupted (what was
    searched is printed).
    """
    from kfuzz.features.lab.grade import calibrating

    made: list[Calibration] = []
    faults: list[bool] = []
    with streams.report_stream(), streams.stopping() as stop:

        def feed(item: Outcome | Calibration) -> None:
            if isinstance(item, Calibration):
                made.append(item)
                return
            faults.append(bool(item.fault))
            if sys.stderr.isatty():
                count = f"{len(faults)} witnesses, {sum(faults)} contradict a contract"
                sys.stderr.write(f"\r{count} ")

        items = calibrating.calibrate(
            globs or (),
            cases=max_cases,
            seed=seed,
            device=device,
            jobs=jobs or 0,
            stop=stop,
        )
        streams.consume(items, feed, stop)
    streams.print_report(
        format,
        lambda: {"calibration": encode(made[0])},
        lambda: calibrating.lines(made[0]),
    )
    if made[0].unsearched:
        return streams.ExitCode.INTERRUPTED
    return streams.ExitCode.OK if made[0].is_sound else streams.ExitCode.VIOLATION
