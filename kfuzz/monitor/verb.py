"""kfuzz monitor-report: what monitors have counted in running programs."""

from pathlib import Path
from typing import Annotated

import typer

from kfuzz.cli.exit_codes import ExitCode
from kfuzz.cli.settings import FormatOption
from kfuzz.cli.streams import print_report
from kfuzz.monitor.counts import DEFAULT_PATH, read_counts, total


def monitor_report(
    path: Annotated[
        str,
        typer.Argument(
            metavar="[PATH]",
            help="The file that kfuzz.monitor.start(state=PATH) was given.",
        ),
    ] = DEFAULT_PATH,
    format: FormatOption = "text",
) -> int:
    """Show what became of the calls of monitored functions; exit 1 on violations."""
    from kfuzz.monitor import rendering

    processes = read_counts(Path(path))
    print_report(
        format,
        lambda: rendering.monitor_document(processes),
        lambda: rendering.monitor_lines(processes),
    )
    violated = any(counts.violations for counts in total(processes))
    return ExitCode.VIOLATION if violated else ExitCode.OK
