"""What is reported where a child gave no answer: hangs, crashes, lost memory."""

import re
import signal
from typing import Final

from kfuzz.core.verdict import ILLEGAL_ADDRESS, CaseReport, Failure, Kind, Verdict
from kfuzz.execution.processes import ChildDied
from kfuzz.execution.processes.faults import FAULT_SIGNALS

_K_LIV: Final = "K-LIV-01"
# Files of compilers: a call that is in one of them has not come to the kernel yet.
_COMPILING: Final = re.compile(
    r"/triton/(compiler|backends)/[^\n]*compiler\.py|/torch/utils/cpp_extension\.py"
)


def hang_report(limit: float, stack: str = "") -> CaseReport:
    """Return the report of a call that did not return within `limit` seconds.

    One that still compiles does not hang: many kernels are compiled for blocks as large
    as the shape, and compilers take minutes for very large ones.

    Args:
        limit: seconds.
        stack: where it was then, in Python.
    """
    if _COMPILING.search(stack):
        return CaseReport({}, unsupported=f"compiling for it takes over {limit:.0f} s")
    failure = Failure(
        contract=_K_LIV,
        kind=Kind.HANG,
        message=f"does not return within {limit:.0f} s",
        trace=stack,
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
    """Whether the call touched memory that is not there.

    It ends its process on the CPU and the use of the device on a GPU. What else ends
    that (an assertion, a misaligned address, a time limit) is no such fault.
    """
    failure = report.failure
    if failure is None:
        return False
    if failure.kind is Kind.DEVICE_FAULT:
        return failure.detail == ILLEGAL_ADDRESS
    return failure.kind is Kind.CRASH and failure.detail in FAULT_SIGNALS


def lost_memory(report: CaseReport) -> bool:
    """Whether memory ran out, of which a child may keep what it got."""
    return "out of memory" in (report.error or report.unsupported or "")
