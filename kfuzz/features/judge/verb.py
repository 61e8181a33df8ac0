"""kfuzz judge: a machine-written candidate against a reference."""

import math
import os
import secrets
import shlex
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from kfuzz.cli import settings
from kfuzz.cli.project import open_project
from kfuzz.cli.settings import CorpusOption, DeviceOption, FormatOption, option, shared
from kfuzz.cli.streams import ExitCode, code_of_search, follow, report_stream, stopping
from kfuzz.core.budget import Budget
from kfuzz.core.codec import encode
from kfuzz.core.errors import UsageError
from kfuzz.core.verdict import Verdict
from kfuzz.features.judge.outcome import Coverage, Judgement
from kfuzz.report.finding_view import finding_lines, view
from kfuzz.report.json_report import finding_summary
from kfuzz.report.tables import Shown
from kfuzz.report.text import counted, one_line
from kfuzz.targets import load

DEFAULT_TIME: Final = "50s"
DEFAULT_CASES: Final = 256
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
        int | None,
        shared(
            "max-cases",
            f"Most cases that are drawn. Default: {DEFAULT_CASES} where --max-time is "
            "not given.",
        ),
    ] = None,
    max_findings: Annotated[
        int, shared("max-findings", "Stop after N confirmed findings.")
    ] = 1,
    shapes: Annotated[
        str,
        option(
            "--shapes",
            "benchmarked: no shape but that of get_inputs.",
            settings.one_of("all", "benchmarked"),
        ),
    ] = "all",
    nonfinite: Annotated[
        str,
        option(
            "--nonfinite",
            "undefined: nothing is asked of NaN and infinities in the inputs, as "
            "in KernelBench's own test. propagate: they have to reach the result as in "
            "torch; the report names what breaks on them alone.",
            settings.one_of("propagate", "undefined"),
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
            settings.one_of("run_to_run", "none"),
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
        int, option("--jobs", "With --serve: judgements at once.", settings.COUNT)
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
    claims = {
        "nonfinite": nonfinite,
        "own_kernels_only": own_kernels_only,
        "determinism": determinism,
    }
    if serve is not None:
        if candidate is not None:
            raise UsageError("candidates are sent", where=str(candidate))
        return _serve(
            serve, reference, jobs=jobs, max_time=max_time or DEFAULT_SERVED,
            max_cases=max_cases, device=device, corpus=corpus,
            benchmarked_only=shapes == "benchmarked", **claims,
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

    from kfuzz.features.judge.procedure import JudgeConfig, Judging, reuse_memory
    from kfuzz.features.judge.sandbox.contain import Limits
    from kfuzz.report import json_report

    limits, building = Limits(), math.inf
    if max_time is not None:
        # What is built as the file is imported is start-up, but no longer than asked.
        load.limit_to(settings.duration(max_time))
        building = max(settings.duration(max_time), load.LEAST_SECONDS)
    elif max_cases is None:
        max_cases = DEFAULT_CASES

    reuse_memory()
    judging = Judging(
        JudgeConfig(
            reference=reference,
            candidate=candidate,
            root=project.root,
            corpus=project.corpus,
            seed=settings.drawn_seed(seed),
            budget=Budget(
                settings.duration(max_time or DEFAULT_TIME), max_cases, max_findings
            ),
            device=device,
            benchmarked_only=shapes == "benchmarked",
            claims=claims,
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
            json_report.write(judgement_document(made), out)
        else:
            named = f" --target {shlex.quote(outside)}" if outside else ""
            options = f"{named}{project.options}"
            for line in judgement_lines(made, options=options):
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
    from kfuzz.features.judge.sandbox.contain import close_to_others
    from kfuzz.features.judge.service.judge import Judge
    from kfuzz.features.judge.service.server import serving

    close_to_others()  # the token lies in this process's memory
    # Nor does it lie in the environment of the processes that are begun.
    given = os.environ.pop(TOKEN, "")
    token = given or secrets.token_urlsafe(24)
    judge = Judge(
        reference, max_time=settings.duration(max_time), corpus=corpus, **options
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


# A judgement for people and for programs.

# Kernels are many in a deep candidate; all of them are in the JSON.
_SHOWN: Final = 12


def judgement_document(made: Judgement) -> dict[str, Any]:
    """Return a judgement as plain values; strict JSON's, format 1."""
    document: dict[str, Any] = encode(
        replace(made, findings=(), paths={}, coverage=Coverage())
    )
    del document["paths"], document["audit"]["modeless"]
    document["no_line"] = made.no_line or None
    document["elapsed_s"] = round(made.elapsed_s, 3)
    document["coverage"] = made.coverage.document
    document["findings"] = [
        finding_summary(f, made.paths.get(f.id, "")) for f in made.findings
    ]
    return document


def judgement_lines(made: Judgement, *, options: str = "") -> list[str]:
    """Return a judgement as text, the verdict first.

    Args:
        made: the judgement.
        options: what a printed command needs besides, e.g. " --corpus DIR".
    """
    head = f"{made.verdict}: {one_line(made.candidate)}: {one_line(made.reason)}"
    lines = [head, f"  against {one_line(made.reference)}"]
    if made.on_finite is not None:
        cases = counted(made.coverage.finite, "case")
        lines.append(
            f"  on finite inputs: {made.on_finite} ({cases}); it breaks on NaN or "
            "infinities alone (--nonfinite undefined asks nothing of them)"
        )
    for finding in made.findings:
        path = made.paths.get(finding.id, "")
        found = view(Shown(made.candidate, finding, path), options)
        lines += [f"  {line}" for line in finding_lines(found)]
    lines += [f"  {label}: {one_line(text)}" for label, text in _facts(made)]
    where = f" ({made.device_name})" if made.device_name else ""
    stopped = ", interrupted" if made.interrupted else ""
    lines.append(
        f"  {made.elapsed_s:.1f} s on {made.device}{where}, seed {made.seed}{stopped}"
    )
    return lines


def _facts(made: Judgement) -> Iterator[tuple[str, str]]:
    """Yield what else there is to say, as label and text."""
    audit = made.audit
    if made.no_line:
        yield "no line", made.no_line
    yield from (("problem", text) for text in (*audit.faults[1:], *audit.notes))
    yield from (("inputs", text) for text in audit.inputs)
    if audit.inputs:
        yield "inputs", "all values that are tried keep to this"
    if audit.finite:
        yield (
            "inputs",
            "no NaN nor infinity: what meets a known zero need not reach the result",
        )
    if audit.domain:
        yield "domain", audit.domain
    yield from _coverage(made.coverage)
    decided = [
        f"{name} ({tally.decided})"
        for name, tally in made.contracts.items()
        if tally.verdict is Verdict.CONFORMS
    ]
    if decided:
        yield "kept, by cases that decided it", ", ".join(decided)
    for r in made.refusals:
        times = counted(r.cases, "case")
        yield f"raised on {one_line(r.reason)} ({times}), no violation", r.example
    for n in made.notes:
        yield "note", f"{n.note} ({counted(n.cases, 'case')})"
    yield from (("note", text) for text in made.notices)
    if made.weights:
        yield "weights", made.weights
    if made.operators:
        shown = ", ".join(made.operators[:_SHOWN])
        yield (
            "note",
            f"computes with torch's own operators, by its child's word: {shown}",
        )
    if made.launched:
        more = len(made.launched) - _SHOWN
        shown = ", ".join(made.launched[:_SHOWN])
        yield "launched", shown + (f" and {more} more" if more > 0 else "")
    if held := [m.name for m in made.containment if m.held]:
        yield "contained", ", ".join(held)
    for m in made.containment:
        if not m.held:
            yield "not contained", f"{m.name}: {m.text}"


def _coverage(made: Coverage) -> Iterator[tuple[str, str]]:
    cases, dtypes = counted(made.cases, "case"), ", ".join(made.dtypes) or "no dtype"
    yield (
        "tried",
        f"{cases}, {made.benchmarked} at the benchmarked shape and {made.elsewhere} "
        f"elsewhere; {len(made.families)} families of values, {made.shapes} shapes, "
        f"{dtypes}",
    )
    left = {
        "refused": made.refused,
        "on which the reference fails alike": made.beyond,
        "undecided": made.undecided,
    }
    if any(left.values()):
        yield (
            "besides, not counted",
            ", ".join(f"{n} {what}" for what, n in left.items() if n),
        )
