"""K-MEM-03: inputs not declared in-place keep their bytes."""

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

ID = "K-MEM-03"


def judge(view: "View") -> Failure | None:
    """Return the first input whose elements changed."""
    for touch in view.base.touches:
        free = touch.argument in view.declaration.inplace
        if touch.where == "element" and not free:
            return Failure(
                contract=ID,
                kind=Kind.INPUT_MODIFIED,
                output=touch.argument,
                message=f"overwrites its input {touch.argument}: {touch.describe()}",
                index=touch.first_index,
                elements=touch.count,
            )
    return None


CLASS = ContractClass(
    id=ID,
    title="inputs not declared in-place keep their bytes",
    scope="every kernel, for each tensor argument not named by `inplace`",
    precondition="Every case on which the kernel returns.",
    postcondition="The bytes of the argument's elements are what they were.",
    tolerance=Tolerance(
        Structure.EXACT, "bytes are equal", "no arithmetic is involved"
    ),
    protocol=Protocol(
        probes=(Probe.BASE,),
        on_miss=(),
        confirmation="reproduces",
        text="The bytes of every argument are compared with a snapshot after the call.",
    ),
    signature=ViolationSignature(
        kinds=(Kind.INPUT_MODIFIED,), text="names the argument and the first element"
    ),
    judge=judge,
    decides=lambda view: view.base.returned,
)
