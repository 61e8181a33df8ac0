"""kfuzz judge: a machine-written candidate against a reference."""

import math
import os
import secrets
import shlex
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from kfuzz.cli import values
from kfuzz.cli.exit_codes import ExitCode, code_of_search
from kfuzz.cli.project import open_project
from kfuzz.cli.settings import CorpusOption, DeviceOption, FormatOption, option, shared
from kfuzz.cli.standard_streams import follow, report_stream, stopping
from kfuzz.core.budget import Budget
from kfuzz.core.errors import UsageError
from kfuzz.core.verdict import Verdict
from kfuzz.judge.outcome import Judgement
from kfuzz.targets import importing

DEFAULT_TIME: Final = "50s"
DEFAULT_SERVED: Final = "10s"
TOKEN: Final = "KFUZZ_JUDGE_TOKEN"
"""The variable with the token that requests to a server have to bear."""


def judge(
    reference: Annotated[
        Path | None,
        typer.Argument(
            metavar="REFERENCE.py",
            help="Model, get_inputs and get_init_inputs; trusted, and imported.",
            show_default=False,
        ),
    ] = None,
    candidate: Annotated[
        Path | None,
        typer.Argument(
            metavar="CANDIDATE.py",
            help="ModelNew; never imported here, it runs in a contained child.",
            show_default=False,
        ),
    ] = None,
    max_time: Annotated[
        str | None,
        shared(
            "max-time",
            f"90, 90s, 10m, 1h, 1h30m. Default: {DEFAULT_TIME}, with --serve "
            f"{DEFAULT_SERVED}.",
        ),
    ] = None,
    max_cases: Annotated[
        int | None, shared("max-cases", "Most cases that are drawn.")
    ] = None,
    max_findings: Annotated[
        int, shared("max-findings", "Stop after N confirmed findings.")
    ] = 1,
    shapes: Annotated[
        str,
        option(
            "--shapes",
            "benchmarked: no shape but that of get_inputs.",
            values.one_of("all", "benchmarked"),
        ),
    ] = "all",
    nonfinite: Annotated[
        str,
        option(
            "--nonfinite",
            "undefined: nothing is asked of NaN and infinities in the inputs, as "
            "in KernelBench's own test. propagate: they have to reach the result as in "
            "torch; the report names what breaks on them alone.",
            values.one_of("propagate", "undefined"),
        ),
    ] = "propagate",
    own_kernels_only: Annotated[
        bool,
        option(
            "--own-kernels-only",
            "A library's kernel in place of an own one is a violation, not a note.",
        ),
    ] = False,
    determinism: Annotated[
        str,
        option(
            "--determinism",
            "none: the candidate draws random numbers of its own; its results may "
            "follow them within the allowed range.",
            values.one_of("run_to_run", "none"),
        ),
    ] = "run_to_run",
    seed: Annotated[
        int | None, shared("seed", "Default: a fresh one, printed.", "N")
    ] = None,
    device: DeviceOption = "auto",
    corpus: CorpusOption = None,
    format: FormatOption = "text",
    quiet: Annotated[bool, shared("quiet", "No progress; the verdict alone.")] = False,
    serve: Annotated[
        str | None,
        option(
            "--serve",
            "Judge what is sent to unix:PATH, 127.0.0.1:PORT or PORT (0: any that is "
            "free): POST /judge with a candidate's source, and a problem unless "
            "REFERENCE.py is one for all. Requests bear the token of "
            f"{TOKEN}, or else one that is printed.",
            metavar="ADDRESS",
        ),
    ] = None,
    jobs: Annotated[
        int, option("--jobs", "With --serve: judgements at once.", values.COUNT)
    ] = 1,
) -> int:
    """Judge a candidate in KernelBench's form against its reference, or serve verdicts.

    The problem is audited first; then the candidate is tried on the file's own values
    at the benchmarked shape, on other values, and at other shapes that the reference
    takes. What all draws of get_inputs have in common, such as a triangle of zeros, is
    printed, and all values keep to it.

    Exit codes: 0 conforms, 1 violates, 2 usage or under_specified (the problem decides
    nothing, or the candidate raised on most values), 3 error (the candidate cannot be
    built, or kfuzz failed), 5 device missing, 130 interrupted, violation or not (the
    verdict is printed).
    """
    started = time.monotonic()
    if serve is not None:
        if candidate is not None:
            raise UsageError("candidates are sent", where=str(candidate))
        return _serve(
            serve, reference, jobs=jobs, max_time=max_time or DEFAULT_SERVED,
            max_cases=max_cases, device=device, corpus=corpus, nonfinite=nonfinite,
            own_kernels_only=own_kernels_only, determinism=determinism,
            benchmarked_only=shapes == "benchmarked",
        )  # fmt: skip
    if reference is None or candidate is None:
        fix = "kfuzz judge REFERENCE.py CANDIDATE.py"
        raise UsageError("a reference and a candidate are wanted", fix=fix)
    for path in (reference, candidate):
        if not os.path.isfile(path):
            raise UsageError("no such file", where=str(path), fix="check the path")
    project = open_project(corpus)
    files = reference.resolve(), candidate.resolve()
    inside = all(path.is_relative_to(project.root) for path in files)
    outside = "" if inside else f"{reference}::{candidate}"  # what --target takes

    from kfuzz.judge import rendering
    from kfuzz.judge.procedure import JudgeConfig, Judging
    from kfuzz.judge.sandbox.limits import Limits
    from kfuzz.report import json_report

    limits, building = Limits(), math.inf
    if max_time is not None:
        # What is built as the file is imported is start-up, but no longer than asked.
        importing.limit_to(values.duration(max_time))
        building = max(values.duration(max_time), importing.LEAST_SECONDS)

    judging = Judging(
        JudgeConfig(
            reference=reference,
            candidate=candidate,
            root=project.root,
            corpus=project.corpus,
            seed=values.drawn_seed(seed),
            budget=Budget(
                values.duration(max_time or DEFAULT_TIME), max_cases, max_findings
            ),
            device=device,
            benchmarked_only=shapes == "benchmarked",
            nonfinite=nonfinite,
            own_kernels_only=own_kernels_only,
            determinism=determinism,
            started=started,
            limits=replace(limits, open_seconds=min(limits.open_seconds, building)),
        )
    )
    with report_stream() as out, stopping() as stop:
        events = judging.events(stop=stop)
        told = {"corpus": project.corpus_option, "target": outside}
        follow(events, stop, quiet=quiet, **told)
        made = judging.judgement()
        if format == "json":
            json_report.write(rendering.judgement_document(made), out)
        else:
            named = f" --target {shlex.quote(outside)}" if outside else ""
            options = f"{named}{project.options}"
            for line in rendering.judgement_lines(made, options=options):
                print(line, file=out)
    return code_of(made)


def _serve(
    address: str,
    reference: Path | None,
    *,
    max_time: str,
    corpus: str | None,
    **options: Any,
) -> int:
    """Serve verdicts until a signal comes."""
    from kfuzz.judge.sandbox.contain import close_to_others
    from kfuzz.judge.service.judge import Judge
    from kfuzz.judge.service.server import serving

    close_to_others()  # the token lies in this process's memory
    # Nor does it lie in the environment of the processes that are begun.
    given = os.environ.pop(TOKEN, "")
    token = given or secrets.token_urlsafe(24)
    judge = Judge(
        reference, max_time=values.duration(max_time), corpus=corpus, **options
    )
    with (
        report_stream() as out,
        stopping() as stop,
        judge,
        serving(address, judge, token) as place,
    ):
        print(f"serving at {place}", file=out)
        if not given:
            print(f"{TOKEN}={token}", file=out)
        out.flush()
        stop.wait()
    return ExitCode.OK


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
