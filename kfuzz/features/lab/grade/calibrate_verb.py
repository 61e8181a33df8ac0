"""kfuzz calibrate: does each contract tell right kernels from wrong ones?"""

import sys
from contextlib import ExitStack
from typing import Annotated

import typer

from kfuzz.cli.settings import DeviceOption, FormatOption, shared
from kfuzz.cli.streams import ExitCode, consume, note, report_stream, stopping

_DEFAULT_CASES = 400


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
    ] = _DEFAULT_CASES,
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
    from kfuzz.core.codec import encode
    from kfuzz.core.statement import Calibration, Outcome
    from kfuzz.features.lab.grade import calibrating
    from kfuzz.report import json_report

    made: list[Calibration] = []
    faults: list[bool] = []
    with report_stream() as out, ExitStack() as stack:
        stop = stack.enter_context(stopping())

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
            notify=note,
        )
        consume(items, feed, stop)
        if format == "json":
            json_report.write({"calibration": encode(made[0])}, out)
        else:
            for line in calibrating.lines(made[0]):
                print(line, file=out)
    if made[0].unsearched:
        return ExitCode.INTERRUPTED
    return ExitCode.OK if made[0].is_sound else ExitCode.VIOLATION
