"""K-LIV-01: the kernel terminates without fault."""

from typing import TYPE_CHECKING

from kfuzz.contracts.language import (
    ContractClass,
    Probe,
    Protocol,
    Structure,
    Tolerance,
    ViolationSignature,
)
from kfuzz.core.verdict import Failure, Kind

if TYPE_CHECKING:
    from kfuzz.contracts.view import View

ID = "K-LIV-01"


def judge(view: "View") -> Failure | None:
    """Return a fault of the device, or what is raised where it must not be."""
    raised = view.base.raised
    # A device-side assertion is how a GPU refuses what it is told to.
    if raised is not None and raised.lost and not view.outside:
        return Failure(
            contract=ID,
            kind=Kind.DEVICE_FAULT,
            message=f"faults on the device: {raised.message}",
            trace=raised.traceback,
        )
    if raised is None or view.acceptance is None or not view.core:
        return None
    return Failure(
        contract=ID,
        kind=Kind.RAISES,
        detail=raised.type,
        message=f"raises {raised.type}: {raised.message}",
        trace=raised.traceback,
    )


CLASS = ContractClass(
    id=ID,
    title="terminates without fault; launch errors surface",
    scope="every kernel",
    precondition="Any case that can be materialised; for exceptions the core domain "
    "(rank 2, contiguous, float32, sizes >= 1) and what is declared explicitly.",
    postcondition="The call returns, and its process lives.",
    tolerance=Tolerance(Structure.INVARIANT, "none", "a call returns or it does not"),
    protocol=Protocol(
        probes=(Probe.BASE,),
        on_miss=(),
        confirmation="reproduces",
        text="The kernel runs in a child process under a watchdog. A time-out is a "
        "hang only after max(20 s, 50 x the predicted time) in two fresh children. "
        "A child that dies gives the signal; one whose device answers no more after a "
        "call is replaced.",
    ),
    signature=ViolationSignature(
        kinds=(Kind.HANG, Kind.CRASH, Kind.DEVICE_FAULT, Kind.RAISES),
        text="detail is the signal or the exception's type; raising elsewhere in the "
        "default breadth is a refusal, counted and not a violation",
    ),
    judge=judge,
    decides=lambda view: view.base.raised is None,
)
