"""K-MEM-01: no access outside what the kernel was given."""

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

ID = "K-MEM-01"


def judge(view: "View") -> Failure | None:
    """Return the first write into a guard zone or slack."""
    outside = [t for t in view.base.touches if t.where != "element"]
    for touch in outside:
        return Failure(
            contract=ID,
            kind=Kind.WRITE_OUTSIDE,
            output=touch.argument,
            message=f"writes outside {touch.argument}: {touch.describe()}",
            elements=touch.count,
        )
    for stray in view.base.strays:
        return Failure(
            contract=ID,
            kind=Kind.WRITE_OUTSIDE,
            message=f"writes outside its own allocation: {stray.describe()}",
            elements=stray.count,
        )
    return None


CLASS = ContractClass(
    id=ID,
    title="no access outside what it was given",
    scope="every kernel",
    precondition="Every case on which the kernel returns.",
    postcondition="No byte outside the elements of its arguments and of its own "
    "allocations is written.",
    tolerance=Tolerance(Structure.EXACT, "bytes are equal", "guard zones are compared"),
    protocol=Protocol(
        probes=(Probe.BASE,),
        on_miss=(),
        confirmation="reproduces",
        text="Every argument and every tensor the kernel allocates lies between guard "
        "zones; slack inside a strided argument holds poison. All bytes outside "
        "the elements are compared after the call. Writes only: reads outside are "
        "seen where they change the result.",
    ),
    signature=ViolationSignature(
        kinds=(Kind.WRITE_OUTSIDE,),
        text="names the argument and the distance in elements",
    ),
    judge=judge,
    decides=lambda view: view.base.returned,
)
