"""kfuzz monitor-report: what monitors have counted in running programs."""

from pathlib import Path
from typing import Annotated

import typer

from kfuzz.cli import options
from kfuzz.cli.exit_codes import ExitCode
from kfuzz.cli.streams import report_stream
from kfuzz.monitor.counts import DEFAULT_PATH, read_counts, total


def monitor_report(
    path: Annotated[
        str,
        typer.Argument(
            metavar="[PATH]",
            help="The file that kfuzz.monitor.start(state=PATH) was given.",
        ),
    ] = DEFAULT_PATH,
    format: options.FormatOption = "text",
) -> int:
    """Show what became of the calls of monitored functions; exit 1 on violations."""
    from kfuzz.monitor import rendering as monitoring
    from kfuzz.report import json_report

    as_json = options.choice(format, options.FORMATS, "--format") == "json"
    processes = read_counts(Path(path))
    with report_stream() as out:
        if as_json:
            json_report.write(monitoring.monitor_document(processes), out)
        else:
            for line in monitoring.monitor_lines(processes):
                print(line, file=out)
    violated = any(counts.violations for counts in total(processes))
    return ExitCode.VIOLATION if violated else ExitCode.OK
