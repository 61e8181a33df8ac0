"""kfuzz replay and kfuzz shrink: stored findings run again."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from kfuzz.cli import options
from kfuzz.cli.exit_codes import ExitCode
from kfuzz.cli.project import open_project
from kfuzz.cli.select import chosen
from kfuzz.cli.streams import consume, report_stream, stopping
from kfuzz.core.errors import DecodeError, UsageError
from kfuzz.core.verdict import ReplayOutcome
from kfuzz.engine.config import (
    ReplayConfig,
    ReplayResult,
    Sanitized,
)
from kfuzz.engine.workers.processors import processors
from kfuzz.execution.device.sanitizer import TOOLS
from kfuzz.store.corpus import Problem, Stored

MOST_JOBS: Final = 8

_DeviceOption = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="auto|cpu|cuda[:i]|interpret",
        help="Default: where each finding was found.",
        show_default=False,
    ),
]


def replay(
    context: typer.Context,
    findings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ID|FILE|DIR",
            help="Ids, finding.json files, folders of findings; all of the corpus "
            "by default.",
            show_default=False,
        ),
    ] = None,
    times: Annotated[
        int, typer.Option("--times", metavar="N", help="Runs of each finding.")
    ] = 3,
    device: _DeviceOption = None,
    corpus: options.CorpusOption = None,
    target: Annotated[
        str,
        typer.Option(
            "--target",
            metavar="TARGET",
            help="Run this kernel in place of the stored one: path.py::name, a module "
            "or package.module:name; without a name the one of the stored name.",
            show_default=False,
        ),
    ] = "",
    script: Annotated[
        str | None,
        typer.Option(
            "--script",
            metavar="OUT.py",
            help="Write a self-contained script of one finding, and run nothing.",
            show_default=False,
        ),
    ] = None,
    sanitizer: Annotated[
        str | None,
        typer.Option(
            "--sanitizer",
            metavar="memcheck|racecheck|initcheck|synccheck",
            help="Call the kernel once under compute-sanitizer instead, on a GPU; the "
            "report is stored with the finding.",
            show_default=False,
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            metavar="N",
            help="Findings side by side. Default: one for two processors, at most 8; "
            "one where any was found, or is replayed, on a GPU.",
            show_default=False,
        ),
    ] = None,
    fail_on: Annotated[
        str,
        typer.Option(
            "--fail-on",
            metavar="new|any",
            help="Exit 1 on findings that are not known only, or on known ones too.",
        ),
    ] = "new",
    format: options.FormatOption = "text",
) -> int:
    """Run stored findings again: FIXED, FAILS, FLAKY or ERROR for each.

    A known finding that fails is told and fails nothing; one marked fixed that fails
    becomes regressed. Where one passes, what differs from the environment in which it
    was found is printed.

    Exit codes: 0 all fixed or known, 1 some fail or are flaky, 3 some could not be
    judged, 4 nothing to replay, 5 the machine has no such --device, 130 interrupted.
    With --sanitizer: 0 no errors, 1 some, 3 the tool or the kernel did not run, 5 there
    is no such tool or device.
    """
    as_json = options.choice(format, options.FORMATS, "--format") == "json"
    options.count(times, "--times")
    options.choice(fail_on, options.FAIL_ON, "--fail-on")
    options.count(jobs, "--jobs")
    if device is not None:
        device = options.device(device)
    project = open_project(corpus)
    entries = chosen(findings or [], project)
    if sanitizer is not None:
        options.choice(sanitizer, TOOLS, "--sanitizer")
        if script is not None:
            fix = "give one of them"
            raise UsageError("--sanitizer and --script exclude each other", fix=fix)
    if script is not None:
        return _write_script(entries, script, target, as_json=as_json)
    config = ReplayConfig(
        root=project.root,
        corpus=project.corpus,
        times=times,
        device=device,
        target=target,
        jobs=jobs or _jobs_for(entries, device),
        opener=context.obj,
    )
    if sanitizer is not None:
        return _sanitize(entries, sanitizer, config, as_json=as_json)
    failing = fail_on == "any"
    return _replay(
        entries, config, as_json=as_json, on_known=failing, options=project.options
    )


def shrink(
    context: typer.Context,
    id: Annotated[str, typer.Argument(metavar="ID", help="The finding.")],
    device: _DeviceOption = None,
    corpus: options.CorpusOption = None,
    target: Annotated[
        str,
        typer.Option(
            "--target",
            metavar="TARGET",
            help="Where the kernel lives now, if it moved or the finding does not say: "
            "path.py::name.",
            show_default=False,
        ),
    ] = "",
) -> int:
    """Reduce a stored finding further and explain it anew."""
    if device is not None:
        device = options.device(device)
    project = open_project(corpus)
    stored = project.store().find(id)
    config = ReplayConfig(
        root=project.root,
        corpus=project.corpus,
        device=device,
        target=target,
        opener=context.obj,
    )

    from kfuzz.engine.reduce import shrink as engine
    from kfuzz.report.terminal import TerminalReport

    with (
        report_stream() as out,
        stopping() as stop,
        TerminalReport(out, corpus=project.corpus_option, target=target) as report,
    ):
        consume(engine.shrink(stored, config, stop=stop), report.feed, stop)
        return ExitCode.INTERRUPTED if stop.is_set() else ExitCode.OK


def _jobs_for(entries: Sequence[Stored | Problem], device: str | None) -> int:
    """Return how many findings are replayed side by side where nobody says."""
    used = {device or e.finding.device for e in entries if isinstance(e, Stored)}
    if any(name.startswith(("cuda", "auto")) for name in used):
        return 1  # what else a GPU does may change what shows
    return min(max(processors() // 2, 1), MOST_JOBS, len(entries))


def _replay(
    entries: Sequence[Stored | Problem],
    config: ReplayConfig,
    *,
    as_json: bool,
    on_known: bool,
    options: str,
) -> ExitCode:
    from kfuzz.engine.replay import replayer as engine
    from kfuzz.report import json_report
    from kfuzz.report.lists import replay_lines, replay_total

    results: list[ReplayResult] = []
    with report_stream() as out, stopping() as stop:

        def feed(result: ReplayResult) -> None:
            results.append(result)
            if not as_json:
                for line in replay_lines(result.event(), options=options):
                    print(line, file=out)

        consume(engine.replay(entries, config, stop=stop), feed, stop)
        interrupted = stop.is_set() and len(results) < len(entries)
        if as_json:
            document = json_report.replay_document(results, interrupted=interrupted)
            json_report.write(document, out)
        else:
            print(replay_total([r.event() for r in results]), file=out)
    if interrupted:
        return ExitCode.INTERRUPTED
    outcomes = {result.outcome for result in results}
    if ReplayOutcome.ERROR in outcomes or len(results) < len(entries):
        return ExitCode.INTERNAL
    failing = any(r.reproduces and (on_known or not r.is_excused) for r in results)
    return ExitCode.VIOLATION if failing else ExitCode.OK


def _sanitize(
    entries: Sequence[Stored | Problem],
    tool: str,
    config: ReplayConfig,
    *,
    as_json: bool,
) -> ExitCode:
    from kfuzz.engine.replay import sanitize as engine
    from kfuzz.report import json_report
    from kfuzz.report.lists import sanitized_lines

    results: list[Sanitized] = []
    with report_stream() as out, stopping() as stop:

        def feed(result: Sanitized) -> None:
            results.append(result)
            if not as_json:
                for line in sanitized_lines(result):
                    print(line, file=out)

        consume(engine.sanitize(entries, tool, config, stop=stop), feed, stop)
        interrupted = stop.is_set() and len(results) < len(entries)
        if as_json:
            document = json_report.sanitizer_document(
                tool, results, interrupted=interrupted
            )
            json_report.write(document, out)
    if interrupted:
        return ExitCode.INTERRUPTED
    if any(result.report is None for result in results):
        return ExitCode.INTERNAL
    found = any(r.report.count for r in results if r.report)
    return ExitCode.VIOLATION if found else ExitCode.OK


def _write_script(
    entries: Sequence[Stored | Problem], name: str, target: str, *, as_json: bool
) -> ExitCode:
    from kfuzz.engine.script.script import script
    from kfuzz.report import json_report
    from kfuzz.report.writing import write_new

    if len(entries) != 1:
        raise UsageError(
            f"a script holds one finding, {len(entries)} are chosen",
            where="--script",
            fix="give one id; `kfuzz corpus list` names them",
        )
    stored = entries[0]
    if isinstance(stored, Problem):
        raise DecodeError(stored.what)
    text = script(stored.finding, target)
    path = Path(name)
    try:
        # Never over what is there: one slip would cost a kernel's source.
        write_new(path, text)
    except FileExistsError:
        raise UsageError(
            "is there already",
            where=f"--script {name}",
            fix="remove it or choose another name",
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"cannot be written: {reason}", where=f"--script {name}"
        ) from None
    with report_stream() as out:
        if as_json:
            done = {"id": stored.finding.id, "script": str(path)}
            json_report.write(done, out)
        else:
            print(f"wrote {path}: run it with `python {path}`", file=out)
    return ExitCode.OK
