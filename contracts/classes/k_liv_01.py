"""K-LIV-01: the kernel terminates without fault."""

from kfuzz.contracts.evidence import Evidence
from kfuzz.contracts.language import ContractClass, Structure
from kfuzz.contracts.prose import promised
from kfuzz.contracts.reading import beyond_core, miss_of
from kfuzz.core.verdict import ILLEGAL_ADDRESS, Failure, Kind


def judge(evidence: Evidence) -> Failure | None:
    """Return a fault of the device, or what is raised where it must not be."""
    raised = evidence.base.raised
    if raised is not None and raised.lost and not is_refused(evidence):
        return Failure(
            contract="K-LIV-01",
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
            contract="K-LIV-01",
            kind=Kind.UNCHECKED_LAUNCH,
            detail=left.name,
            message=f"returns although a launch failed: {left.name} ({left.text}), "
            "which the next launch of torch's would raise",
        )
    if raised is None or evidence.acceptance is None or beyond_core(evidence):
        return None
    return Failure(
        contract="K-LIV-01",
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


K_LIV_01 = ContractClass(
    **promised("K-LIV-01", Structure.INVARIANT),
    rank=10,
    level=1,
    core=True,
    kinds=(
        Kind.HANG,
        Kind.CRASH,
        Kind.DEVICE_FAULT,
        Kind.UNCHECKED_LAUNCH,
        Kind.RAISES,
    ),
    unseen={Kind.UNCHECKED_LAUNCH: "an error that a launch leaves"},
    judge=judge,
    decides=lambda evidence: evidence.base.raised is None,
    in_batch=lambda batch: batch.passed,
    of_values=False,
    beyond_bounds=True,
    of_gradients=True,
)
