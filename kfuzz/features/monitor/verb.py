"""kfuzz monitor-report: what monitors have counted in running programs."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from kfuzz.cli.settings import FormatOption
from kfuzz.cli.streams import ExitCode, print_report
from kfuzz.features.monitor.counts import (
    DEFAULT_PATH,
    FORMAT,
    ProcessCounts,
    read_counts,
    total,
)
from kfuzz.report.text import one_line, table


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
    processes = read_counts(Path(path))
    document = {
        "format": FORMAT,
        "functions": [asdict(c) for c in total(processes)],
        "processes": [asdict(p) for p in processes],
    }
    print_report(format, lambda: document, lambda: monitor_lines(processes))
    violated = any(counts.violations for counts in total(processes))
    return ExitCode.VIOLATION if violated else ExitCode.OK


# Shown where some function has any; the others always.
_RARE = ("outliers", "skipped", "outside", "raised", "undecided", "errors")
_ALWAYS = ("seen", "sampled", "dropped", "checked", "violations")


def monitor_lines(processes: Sequence[ProcessCounts]) -> list[str]:
    """Return a table of counts per function, summed over processes."""
    functions = total(processes)
    if not functions:
        return ["no monitored function has been called"]
    rare = [n for n in _RARE if any(getattr(c, n) for c in functions)]
    columns = (*_ALWAYS, *rare)
    rows = [("function", *columns)]
    rows += [
        (one_line(c.function), *(str(getattr(c, name)) for name in columns))
        for c in functions
    ]
    noun = "process" if len(processes) == 1 else "processes"
    last = max(p.when for p in processes)
    return [*table(rows), f"{len(processes)} {noun}, last written {one_line(last)}"]
