"""What is reported where a child gave no answer: hangs, crashes, lost memory."""

import signal
from typing import Final

from kfuzz.core.verdict import CaseReport, Failure, Kind, Verdict
from kfuzz.execution.processes import ChildDied
from kfuzz.execution.processes.faults import FAULT_SIGNALS

_K_LIV: Final = "K-LIV-01"


def hang_report(limit: float) -> CaseReport:
    """Return the report of a call that did not return within `limit` seconds."""
    failure = Failure(
        contract=_K_LIV,
        kind=Kind.HANG,
        message=f"does not return within {limit:.0f} s",
    )
    return CaseReport({_K_LIV: Verdict.VIOLATES}, failure=failure)


def death_report(died: ChildDied) -> CaseReport:
    """Return the report of a call that ended its process."""
    what = died.signal_name or f"exit code {died.exit_code}"
    if died.signal_name == signal.SIGKILL.name:
        # Nothing in a kernel sends SIGKILL: the machine ran out of memory.
        return CaseReport({}, error="the child was killed: out of memory?")
    failure = Failure(
        contract=_K_LIV,
        kind=Kind.CRASH,
        detail=what,
        message=f"ends its process: {what}",
        trace=died.output_tail[-4000:],
    )
    return CaseReport({_K_LIV: Verdict.VIOLATES}, failure=failure)


def is_hang(report: CaseReport) -> bool:
    """Whether the call did not return."""
    return report.failure is not None and report.failure.kind is Kind.HANG


def is_fault(report: CaseReport) -> bool:
    """Whether the call ended its process by touching memory that it may not."""
    failure = report.failure
    return (
        failure is not None
        and failure.kind is Kind.CRASH
        and failure.detail in FAULT_SIGNALS
    )


def lost_memory(report: CaseReport) -> bool:
    """Whether memory ran out, of which a child may keep what it got."""
    return "out of memory" in (report.error or report.unsupported or "")
