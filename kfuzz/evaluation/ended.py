"""What is reported where a kernel's own process ended instead of answering."""

from typing import Final

from kfuzz.core.untrusted import End, Ended
from kfuzz.core.verdict import CaseReport, Failure, Kind, Verdict

_ID: Final = "K-LIV-01"

# What the machine lacks, or kfuzz, and no fault of the kernel's.
_OF_THE_MACHINE: Final = frozenset({End.MEMORY, End.UNAVAILABLE})
_KINDS: Final = {End.HANG: Kind.HANG, End.CPU: Kind.HANG}


def is_of_the_machine(ended: Ended) -> bool:
    """Whether a machine with more memory might have seen no end."""
    return ended.end in _OF_THE_MACHINE


def ended_report(ended: Ended) -> CaseReport:
    """Return the report of a call that ended the kernel's process.

    A kernel that goes past a limit, or sends what is no answer, does not return: it is
    reported as one that crashes.
    """
    if is_of_the_machine(ended):
        lost = "out of memory: " if ended.end is End.MEMORY else ""
        return CaseReport({}, error=f"{lost}the kernel {ended.text}")
    failure = Failure(
        contract=_ID,
        kind=_KINDS.get(ended.end, Kind.CRASH),
        detail=ended.detail,
        message=ended.text,
        trace=ended.output[-4000:],
    )
    return CaseReport({_ID: Verdict.VIOLATES}, failure=failure)
