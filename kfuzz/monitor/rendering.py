"""What monitors have counted, for people and as a document."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from kfuzz.monitor.counts import FORMAT, Counts, ProcessCounts, total
from kfuzz.report.drawing import one_line
from kfuzz.report.layout import table

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
    rows += [(one_line(c.function), *_numbers(c, columns)) for c in functions]
    noun = "process" if len(processes) == 1 else "processes"
    last = max(p.when for p in processes)
    return [*table(rows), f"{len(processes)} {noun}, last written {one_line(last)}"]


def _numbers(counts: Counts, columns: Sequence[str]) -> tuple[str, ...]:
    return tuple(str(getattr(counts, name)) for name in columns)


def monitor_document(processes: Sequence[ProcessCounts]) -> dict[str, Any]:
    """Return the counts per function, summed and of each process."""
    return {
        "format": FORMAT,
        "functions": [asdict(c) for c in total(processes)],
        "processes": [
            {
                "process": p.process,
                "when": p.when,
                "functions": [asdict(c) for c in p.functions],
            }
            for p in processes
        ],
    }
