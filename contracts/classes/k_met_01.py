"""K-MET-01: type, shape, dtype and device of the result are the operator's."""

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

ID = "K-MET-01"


def judge(view: "View") -> Failure | None:
    """Return the first metadata problem of the result."""
    problem = view.base.metadata
    if problem is None:
        return None
    return Failure(
        contract=ID,
        kind=problem.kind,
        output=problem.output,
        message=problem.message,
    )


CLASS = ContractClass(
    id=ID,
    title="shape, dtype, device and type of the result are as the operator says",
    scope="every kernel",
    precondition="Every case on which the kernel returns.",
    postcondition="Each result is a dense torch.Tensor of the operator's shape, dtype "
    "and device; strides are free. A kernel that writes to an argument or a "
    "destination returns nothing else.",
    tolerance=Tolerance(Structure.EXACT, "equal", "metadata has no tolerance"),
    protocol=Protocol(
        probes=(Probe.BASE,),
        on_miss=(),
        confirmation="reproduces",
        text="The returned object is inspected before any value is read.",
    ),
    signature=ViolationSignature(
        kinds=(
            Kind.WRONG_TYPE,
            Kind.WRONG_SHAPE,
            Kind.WRONG_DTYPE,
            Kind.WRONG_DEVICE,
        ),
        text="decided before any comparison of values",
    ),
    judge=judge,
    decides=lambda view: view.base.returned,
)
