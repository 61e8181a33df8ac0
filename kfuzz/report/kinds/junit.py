"""JUnit XML: one test case per kernel and contract, for what shows test results.

The elements and attributes are those that Jenkins' xUnit schema and pytest's `xunit2`
share. A kernel is a suite; a violated contract is a failure, a known one is skipped
with its reason, and so is what could not be decided.
"""

import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kfuzz.core.event import ContractTally, KernelFinished
from kfuzz.core.verdict import State, Verdict
from kfuzz.report.finding_view import Depth, finding_lines, view
from kfuzz.report.kinds import ReportKind
from kfuzz.report.promises import proof_summaries
from kfuzz.report.tables import Gathered, Shown, matrix, nothing_compared
from kfuzz.report.text import one_line

_RUN = "kfuzz"


# Of one test case "failure", "error", "skipped", or "" where it passed; one line; and
# what else there is to print.
_Result = tuple[str, str, str]


def document(run: Gathered, *, root: Path = Path(), options: str = "") -> str:
    """Return the document."""
    suites = ET.Element("testsuites", name=_RUN)
    for node, kernel, contracts in matrix(run):
        results = {
            contract: _result(tally, shown, root, options)
            for contract, (tally, shown) in contracts.items()
        }
        if kernel is None and run.started and node in run.started.kernels:
            ending = one_line(run.ending) or "cut off"
            text = f"nothing is known of it as a whole: the run was {ending}"
            results["kfuzz"] = "error", text, ""
        if kernel is not None and (text := nothing_compared(kernel)):
            results["kfuzz"] = "error", text, ""
        _suite(suites, one_line(node), results, run, kernel)
    if run.exited and run.exited.error:
        error = "error", one_line(run.exited.error), ""
        _suite(suites, _RUN, {"run": error}, run, None)
    for name in ("tests", "failures", "errors"):
        suites.set(name, str(sum(int(suite.get(name, "0")) for suite in suites)))
    suites.set("time", f"{run.elapsed_s:.3f}")
    ET.indent(suites)
    text = ET.tostring(suites, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'


def _suite(
    suites: ET.Element,
    name: str,
    results: dict[str, _Result],
    run: Gathered,
    kernel: KernelFinished | None,
) -> None:
    counts = Counter(tag for tag, _, _ in results.values())
    suite = ET.SubElement(
        suites,
        "testsuite",
        name=name,
        tests=str(len(results)),
        failures=str(counts["failure"]),
        errors=str(counts["error"]),
        skipped=str(counts["skipped"]),
        time=f"{_seconds(kernel):.3f}",
    )
    if run.started and run.started.when:
        suite.set("timestamp", one_line(run.started.when).removesuffix("Z"))
    for _, proved in proof_summaries([kernel] if kernel else []):
        properties = ET.SubElement(suite, "properties")
        ET.SubElement(properties, "property", name="proof", value=proved)
    for contract, (tag, message, body) in results.items():
        case = ET.SubElement(
            suite, "testcase", classname=name, name=one_line(contract), time="0"
        )
        if tag:
            made = ET.SubElement(case, tag, message=message)
            if tag != "skipped":
                made.set("type", one_line(contract))
                made.text = body


def _result(
    tally: ContractTally | None, findings: Sequence[Shown], root: Path, options: str
) -> _Result:
    failing = [shown for shown in findings if shown.fails]
    if failing:
        first = one_line(failing[0].finding.failure.message)
        if (line := failing[0].finding.line) is not None:
            first += one_line(f"; line {line.file}:{line.line}")
        more = f" (and {len(failing) - 1} more findings)" if failing[1:] else ""
        body = "\n\n".join(
            "\n".join(finding_lines(made, Depth.MEDIUM))
            for made in (view(shown, options, root=root) for shown in failing)
        )
        return "failure", first + more, body
    for shown in findings:
        if shown.known:
            return "skipped", one_line(f"known: {shown.reason}"), ""
    if tally is not None and tally.verdict is Verdict.ERROR:
        why = "some cases could not be judged; the notes name the reason"
        return "error", why, ""
    for shown in findings:
        if shown.finding.state is State.NEW:
            message = shown.finding.failure.message
            return "error", one_line(f"not confirmed: {message}"), ""
        if shown.finding.state is not State.FIXED:
            state = f"{shown.finding.state}: {shown.finding.failure.message}"
            return "skipped", one_line(state), ""
    if tally is None or tally.verdict is Verdict.CONFORMS:
        return "", "", ""
    if tally.verdict is Verdict.VIOLATES:  # its findings are not known
        return "failure", "violated", ""
    words = str(tally.verdict).replace("_", " ")
    undecided = f": {tally.undecided} cases undecided" if tally.undecided else ""
    return "skipped", words + undecided, ""


def _seconds(kernel: KernelFinished | None) -> float:
    if kernel is None or not kernel.cases_per_s:
        return 0.0
    return kernel.cases / kernel.cases_per_s


KIND: Final = ReportKind(document)
