"""kfuzz record and kfuzz compare."""

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from kfuzz.cli.project import open_project
from kfuzz.cli.settings import (
    DeviceOption,
    FormatOption,
    QuietOption,
    option,
    shared,
    targets_argument,
)
from kfuzz.cli.streams import ExitCode, print_report, stopping
from kfuzz.core.errors import NothingToRunError, UsageError
from kfuzz.report.text import one_line

DEFAULT_CASES: Final = 100


def record(
    out: Annotated[
        Path, option("--out", "Folder of the recording, new or begun.", metavar="DIR")
    ],
    targets: Annotated[
        list[str] | None, targets_argument("As for `kfuzz run`.")
    ] = None,
    platform: Annotated[
        bool, option("--platform", "Record torch's own kernels instead.")
    ] = False,
    like: Annotated[
        Path | None,
        option(
            "--like",
            "Run the cases of this recording instead of drawing some: of other "
            "versions the same seed may draw others.",
            metavar="DIR",
        ),
    ] = None,
    probe: Annotated[
        bool, option("--probe", "Probe the arithmetic, too: it explains differences.")
    ] = False,
    max_cases: Annotated[
        int | None,
        shared("max-cases", f"Cases for each kernel; {DEFAULT_CASES} by default."),
    ] = None,
    seed: Annotated[int, shared("seed", "Of the drawn cases.", "N")] = 0,
    part: Annotated[
        str,
        option(
            "--part",
            "Record each N-th kernel from the I-th on: processes side by side share "
            "one --out.",
            metavar="I/N",
        ),
    ] = "1/1",
    device: DeviceOption = "auto",
    quiet: QuietOption = False,
) -> int:
    """Record what kernels compute on a device, case by case, for `kfuzz compare`.

    Begun again after an interruption, it goes on with the kernels that are lacking, or
    of which cases are.

    Exit codes: 0 recorded, whatever was seen; 2 usage, or the folder holds something
    else; 3 internal error, or cases of some kernel are lacking, 4 no kernel, 5 device
    missing, 130 interrupted.
    """
    if platform and targets:
        raise UsageError("--platform and a target exclude each other")
    if like is not None and max_cases is not None:
        raise UsageError(
            "--like and --max-cases exclude each other",
            fix="all cases of the other recording are run",
        )
    first, every = _part(part)
    project = open_project(None)
    from kfuzz.core.finding import host_fingerprint
    from kfuzz.engine.config import RunConfig
    from kfuzz.engine.workers.jobs import Stopped
    from kfuzz.engine.workers.zygotes import Backend
    from kfuzz.features.lab.grade.grading import platform_config
    from kfuzz.features.lab.record import recording as files
    from kfuzz.targets.load import load_all

    config = RunConfig(
        targets=() if platform else project.targets(targets),
        root=project.root, corpus=project.corpus, seed=seed, device=device,
    )  # fmt: skip
    config = platform_config(config) if platform else config
    source = None if like is None else files.read(like)
    backend = Backend(config.device)
    backend.quiet = True  # what ends a child is recorded
    try:
        on, driver = backend.on.describe(backend.devices[0])
        loaded = load_all(config.targets, root=config.root)
        count = DEFAULT_CASES if max_cases is None else max_cases
        kernels = [
            (name, one, cases)
            for name, one in zip(files.names_of(loaded), loaded, strict=True)
            if (cases := files.cases_of(one.kernel, name, count, seed, source))
        ]
        if not kernels:
            raise NothingToRunError("no kernel to record")
        made_on = host_fingerprint(device=on, driver=driver, flags=backend.on.flags())
        header = files.Header(
            backend.name, made_on, seed, count if source is None else 0,
            ("--platform",) if platform else tuple(map(str, config.targets)), probe,
            "" if source is None else files.digest(source),
        )  # fmt: skip
        files.open_folder(out, header)
        problems = 0
        with stopping() as stop:
            some = kernels[first::every]
            for number, (name, one, cases) in enumerate(some, 1):
                if files.is_recorded(out, one.kernel.operator.name, name):
                    continue
                try:
                    made = files.recorded(
                        one, backend, cases,
                        name=name, root=config.root, probe=probe, stopped=stop.is_set,
                    )  # fmt: skip
                except Stopped:
                    return ExitCode.INTERRUPTED
                files.write_kernel(out, made)
                problems += bool(made.problem)
                if made.problem:
                    print(f"kfuzz: {name}: {one_line(made.problem)}", file=sys.stderr)
                if not quiet:
                    done = f"{number}/{len(some)} {one_line(name)}"
                    print(f"{done}: {len(made.entries)} cases", file=sys.stderr)
    finally:
        backend.close()
    return ExitCode.INTERNAL if problems else ExitCode.OK


def _part(text: str) -> tuple[int, int]:
    """Return the first kernel of a part, counted from 0, and the step."""
    first, _, every = text.partition("/")
    digits = first.isdecimal() and every.isdecimal()
    if not digits or not 1 <= int(first) <= int(every):
        raise UsageError(f"{text!r} is no part", where="--part", fix="such as 2/8")
    return int(first) - 1, int(every)


def compare(
    recordings: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Recordings, two or more.")
    ],
    format: FormatOption = "text",
) -> int:
    """Compare recordings of devices: equal, both allowed, or who broke which clause.

    A difference alone attributes nothing to a device: a broken contract does.

    Exit codes: 0 every difference is allowed, 1 a device or all are outside, 2 usage or
    an unreadable recording, 3 internal error, 4 no case in common that could be
    compared.
    """
    if len(recordings) < 2:
        raise UsageError("one recording is nothing to compare", fix="give two or more")
    from kfuzz.features.lab.record import comparing
    from kfuzz.features.lab.record.recording import read

    made = comparing.compare([read(folder) for folder in recordings])
    print_report(
        format, lambda: comparing.document(made), lambda: comparing.lines(made)
    )
    if any(c.told in comparing.FAULTS for c in made.cases):
        return ExitCode.VIOLATION
    if all(c.told in comparing.IDLE for c in made.cases):
        return ExitCode.NOTHING_TO_RUN
    return ExitCode.OK
