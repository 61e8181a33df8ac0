"""A share of the processors for each worker, and a table of what was falsified."""

import os

import pytest

FALSIFIED = "falsified"
HEADER = (
    "fault",
    "form",
    "kernel",
    "found as",
    "cases",
    "found s",
    "minimal s",
    "minimum",
)

# Processors that a worker's runs may use: kfuzz has as many kernels side by side as it
# sees processors for, and eight workers that all do so leave none to search on.
SHARE = 4


def pytest_configure() -> None:
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if worker and hasattr(os, "sched_setaffinity"):
        free = sorted(os.sched_getaffinity(0))
        first = 2 * int(worker.removeprefix("gw"))
        share = {free[(first + i) % len(free)] for i in range(SHARE)}
        os.sched_setaffinity(0, share)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    rows = [
        value
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", "") == "call"
        for name, value in report.user_properties
        if name == FALSIFIED
    ]
    if not rows:
        return
    terminalreporter.section("planted faults")
    terminalreporter.line(f"| {' | '.join(HEADER)} |")
    terminalreporter.line("|---" * len(HEADER) + "|")
    for row in sorted(rows):
        terminalreporter.line(row)
