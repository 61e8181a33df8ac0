"""kfuzz judge: a machine-written candidate against a reference."""

import shlex
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Final

import typer

from kfuzz.cli import options
from kfuzz.cli.exit_codes import ExitCode, code_of_search
from kfuzz.cli.project import open_project
from kfuzz.cli.streams import consume, report_stream, stopping
from kfuzz.core.budget import Budget
from kfuzz.core.errors import UsageError
from kfuzz.core.event import Event
from kfuzz.core.verdict import Verdict
from kfuzz.judge.judgement import Judgement

DEFAULT_TIME: Final = "50s"
_SHAPES: Final = ("all", "benchmarked")
_NONFINITE: Final = ("propagate", "undefined")


def judge(
    reference: Annotated[
        str,
        typer.Argument(
            metavar="REFERENCE.py",
            help="Model, get_inputs and get_init_inputs; trusted, and imported.",
            show_default=False,
        ),
    ],
    candidate: Annotated[
        str,
        typer.Argument(
            metavar="CANDIDATE.py",
            help="ModelNew; never imported here, it runs in a contained child.",
            show_default=False,
        ),
    ],
    max_time: Annotated[
        str,
        typer.Option("--max-time", metavar="TIME", help="90, 90s, 10m, 1h, 1h30m."),
    ] = DEFAULT_TIME,
    max_cases: Annotated[
        int | None,
        typer.Option("--max-cases", metavar="N", help="Most cases that are drawn."),
    ] = None,
    max_findings: Annotated[
        int,
        typer.Option(
            "--max-findings", metavar="N", help="Stop after N confirmed findings."
        ),
    ] = 1,
    shapes: Annotated[
        str,
        typer.Option(
            "--shapes",
            metavar="all|benchmarked",
            help="benchmarked: no shape but that of get_inputs.",
        ),
    ] = "all",
    nonfinite: Annotated[
        str,
        typer.Option(
            "--nonfinite",
            metavar="propagate|undefined",
            help="undefined: nothing is asked of NaN and infinities in the inputs, as "
            "in KernelBench's own test. propagate: they have to reach the result as in "
            "torch; the report tells what breaks on them alone.",
        ),
    ] = "propagate",
    own_kernels_only: Annotated[
        bool,
        typer.Option(
            "--own-kernels-only",
            help="A library's kernel in place of an own one is a violation, not a "
            "note.",
        ),
    ] = False,
    seed: Annotated[
        int | None,
        typer.Option("--seed", metavar="N", help="Default: a fresh one, printed."),
    ] = None,
    device: options.DeviceOption = "auto",
    corpus: options.CorpusOption = None,
    format: options.FormatOption = "text",
    quiet: Annotated[
        bool, typer.Option("-q", "--quiet", help="No progress; the verdict alone.")
    ] = False,
) -> int:
    """Judge a candidate in KernelBench's form against its reference.

    The problem is audited first; then the candidate is tried on the file's own values
    at the benchmarked shape, on other values, and at other shapes that the reference
    takes. What all draws of get_inputs have in common, such as a triangle of zeros, is
    told, and all values keep to it.

    Exit codes: 0 conforms, 1 violates, 2 usage or under_specified (the problem decides
    nothing, or the candidate raised on most values), 3 error (the candidate cannot be
    built, or kfuzz failed), 5 device missing, 130 interrupted, violation or not (the
    verdict is printed).
    """
    started = time.monotonic()
    as_json = options.choice(format, options.FORMATS, "--format") == "json"
    options.choice(shapes, _SHAPES, "--shapes")
    options.choice(nonfinite, _NONFINITE, "--nonfinite")
    budget = Budget(
        max_time=options.duration(max_time),
        max_cases=options.count(max_cases, "--max-cases"),
        max_findings=options.count(max_findings, "--max-findings"),
    )
    device, seed = options.device(device), options.seed(seed)
    for path in (reference, candidate):
        if not Path(path).is_file():
            raise UsageError("no such file", where=path, fix="check the path")
    project = open_project(corpus)
    files = Path(reference).resolve(), Path(candidate).resolve()
    inside = all(path.is_relative_to(project.root) for path in files)
    outside = "" if inside else f"{reference}::{candidate}"  # what --target takes

    from kfuzz.judge.judging import JudgeConfig, Judging

    judging = Judging(
        JudgeConfig(
            reference=Path(reference),
            candidate=Path(candidate),
            root=project.root,
            corpus=project.corpus,
            seed=seed,
            budget=budget,
            device=device,
            benchmarked_only=shapes == "benchmarked",
            nonfinite=nonfinite,
            own_kernels_only=own_kernels_only,
            started=started,
        )
    )
    with report_stream() as out, stopping() as stop:
        with ExitStack() as stack:
            feed = _ignored
            if not quiet:
                from kfuzz.report.terminal import TerminalReport

                report = TerminalReport(
                    sys.stderr, corpus=project.corpus_option, summary=False,
                    target=outside,
                )  # fmt: skip
                feed = stack.enter_context(report).feed
            consume(judging.events(stop=stop), feed, stop)
        made = judging.judgement()
        if as_json:
            from kfuzz.judge.rendering import judgement_document
            from kfuzz.report import json_report

            json_report.write(judgement_document(made), out)
        else:
            from kfuzz.judge.rendering import judgement_lines

            named = f" --target {shlex.quote(outside)}" if outside else ""
            for line in judgement_lines(made, options=f"{named}{project.options}"):
                print(line, file=out)
    return code_of(made)


def code_of(made: Judgement) -> ExitCode:
    """Return the exit code that a judgement stands for."""
    code = code_of_search(
        interrupted=made.interrupted,
        violated=made.verdict is Verdict.VIOLATES,
        failed=made.verdict is Verdict.ERROR,
        ran=True,
    )
    undecided = made.verdict is Verdict.UNDER_SPECIFIED
    return ExitCode.USAGE if undecided and code is ExitCode.OK else code


def _ignored(event: Event) -> None:
    pass
