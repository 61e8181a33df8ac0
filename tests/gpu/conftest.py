"""What GPU tests leave for people to read: a table of what was falsified, and when."""

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
