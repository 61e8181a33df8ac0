"""K-LIV-01: the kernel terminates without fault."""

from kfuzz.contracts.evidence import Evidence
from kfuzz.contracts.language import ContractClass, Structure, Tolerance
from kfuzz.contracts.reading import beyond_core, miss_of
from kfuzz.core.verdict import ILLEGAL_ADDRESS, Failure, Kind

ID = "K-LIV-01"


def judge(evidence: Evidence) -> Failure | None:
    """Return a fault of the device, or what is raised where it must not be."""
    raised = evidence.base.raised
    if raised is not None and raised.lost and not is_refused(evidence):
        return Failure(
            contract=ID,
            kind=Kind.DEVICE_FAULT,
            detail=raised.fault,
            message=f"faults on the device: {raised.message}",
            trace=raised.traceback,
        )
    left = evidence.base.unchecked
    # An invalid argument may be a query's: it counts if the result is wrong too.
    if (
        left is not None
        and not evidence.outside
        and (left.certain or miss_of(evidence))
    ):
        return Failure(
            contract=ID,
            kind=Kind.UNCHECKED_LAUNCH,
            detail=left.name,
            message=f"returns although a launch failed: {left.name} ({left.text}), "
            "which the next launch of torch's would raise",
        )
    if raised is None or evidence.acceptance is None or beyond_core(evidence):
        return None
    return Failure(
        contract=ID,
        kind=Kind.RAISES,
        detail=raised.type,
        message=f"raises {raised.type}: {raised.message}",
        trace=raised.traceback,
    )


def is_refused(evidence: Evidence) -> bool:
    """Whether what a case asks for may be refused by losing the device.

    A device-side assertion is how a GPU refuses what it is told to; that an address
    was illegal is luck.
    """
    raised = evidence.base.raised
    return evidence.outside and (raised is None or raised.fault != ILLEGAL_ADDRESS)


CLASS = ContractClass(
    id=ID,
    rank=10,
    level=1,
    core=True,
    title="terminates without a fault and reports launch errors",
    scope="every kernel",
    precondition="Every case that can be materialised. For exceptions: the core "
    "domain (the usual rank, contiguous, float32, sizes >= 1, every tensor that the "
    "kernel takes) and what is declared explicitly. An exception that depends on one "
    "size alone, where no shape class is declared, is reported as a limit. An "
    "exception that reports a missing GPU, on a machine without one, is not judged.",
    postcondition="The call returns and its process lives. A failed launch is "
    "reported.",
    tolerance=Tolerance(Structure.INVARIANT, "none", "a call returns or it does not"),
    procedure="The kernel runs in a child process under a watchdog. A time-out is a "
    "hang only after max(20 s, 50 x the predicted time) in two fresh children; in "
    "Triton's interpreter that long after a program of a launch came to its turn, or "
    "15 times as long in one call. A child that dies gives the signal; one whose "
    "device answers no more after a call is replaced. On a GPU the last error of the "
    "runtime that torch uses is read, and "
    "cleared, before and after each call: where the call returned, what only a launch "
    "leaves is reported; an invalid argument, which a query may leave too, only where "
    "the result is wrong as well.",
    kinds=(
        Kind.HANG,
        Kind.CRASH,
        Kind.DEVICE_FAULT,
        Kind.UNCHECKED_LAUNCH,
        Kind.RAISES,
    ),
    symptom="detail is the signal, the device's fault, the type of the exception "
    "or the runtime's name of the error; an exception elsewhere in the default domain "
    "is a rejection, counted and no violation",
    unseen={Kind.UNCHECKED_LAUNCH: "an error that a launch leaves"},
    judge=judge,
    decides=lambda evidence: evidence.base.raised is None,
    in_batch=lambda batch: batch.passed,
    of_values=False,
    beyond_bounds=True,
    of_gradients=True,
)
