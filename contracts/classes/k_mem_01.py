"""K-MEM-01: no access outside what the kernel was given."""

from typing import Final

from kfuzz.contracts.evidence import Evidence
from kfuzz.contracts.language import ContractClass, Structure, Tolerance
from kfuzz.core.verdict import Access, Failure, Kind

ID = "K-MEM-01"

_OUTSIDE: Final = ("before", "after", "slack", "elsewhere")
_DOES: Final = {"load": "load of", "store": "store to", "atomic": "atomic on"}


def judge(evidence: Evidence) -> Failure | None:
    """Return the first write outside, or else the first read outside."""
    outside = tuple(a for a in evidence.base.accesses if a.where in _OUTSIDE)
    reads = tuple(a for a in outside if a.access == "load")
    writes = tuple(a for a in outside if a.access != "load")
    if writes:
        return _failure(Kind.WRITE_OUTSIDE, writes)
    for touch in evidence.base.touches:
        if touch.where != "element":
            return Failure(
                contract=ID,
                kind=Kind.WRITE_OUTSIDE,
                output=touch.argument,
                message=f"out-of-bounds write to {touch.argument}: {touch.describe()}",
                elements=touch.count,
            )
    for stray in evidence.base.strays:
        return Failure(
            contract=ID,
            kind=Kind.WRITE_OUTSIDE,
            message=f"out-of-bounds write to its own allocation: {stray.describe()}",
            elements=stray.count,
        )
    return _failure(Kind.READ_OUTSIDE, reads) if reads else None


def _failure(kind: Kind, accesses: tuple[Access, ...]) -> Failure:
    first = accesses[0]
    does = _DOES.get(first.access, "access to")
    place = f", at {first.line}" if first.line else ""
    if first.program is not None:
        place += f" in program {first.program}"
    outside = f"out-of-bounds {does} {first.memory}: {_where(first)}"
    if first.where == "elsewhere":
        outside = f"out-of-bounds {does} memory that the launch was not given"
    return Failure(
        contract=ID,
        kind=kind,
        output=first.argument,
        message=outside + place,
        elements=first.count,
        accesses=accesses,
    )


def _where(access: Access) -> str:
    far = f"{access.distance} element{'s' if access.distance != 1 else ''}"
    match access.where:
        case "after":
            return f"{far} past the end"
        case "before":
            return f"{far} before the start"
        case _:
            return f"in a gap of its strides, {far} from the nearest"


CLASS = ContractClass(
    id=ID,
    rank=20,
    level=1,
    title="no out-of-bounds memory access",
    scope="every kernel",
    precondition="Every case; for one that raises or faults, the accesses until then.",
    postcondition="The kernel writes only to elements of its arguments and to its "
    "own allocations. It reads only within the spans of these.",
    tolerance=Tolerance(
        Structure.EXACT,
        "none",
        "an access is inside or outside; guard zones are compared byte by byte",
    ),
    procedure="Every argument and every tensor the kernel allocates lies between guard "
    "zones; padding inside a strided argument holds poison and may be read. All bytes "
    "outside the elements are compared after the call. In Triton's interpreter the "
    "address of every load, store and atomic of every lane whose mask is set is "
    "checked, whether or not its value is used. On the CPU and on GPUs whose driver "
    "maps memory, arguments of native code also lie against pages that fault when "
    "touched, a third of the cases at their start, a third at their end; on a GPU up "
    "to 256 MiB each, and with them up to 64 tensors that the kernel allocates. Which "
    "of them, and how far, is found by one more run in a fresh child for each "
    "question; a fault is reported here only where it goes when the pages do. "
    "Elsewhere reads outside are seen where they change the result.",
    kinds=(Kind.WRITE_OUTSIDE, Kind.READ_OUTSIDE),
    symptom="names the argument and the distance in elements; in the interpreter also "
    "the source line and the program",
    unseen={
        Kind.READ_OUTSIDE: "a load outside its arguments",
        Kind.WRITE_OUTSIDE: "this store outside its arguments",
    },
    judge=judge,
    decides=lambda evidence: evidence.base.returned,
    in_batch=lambda batch: batch.passed,
    of_values=False,
    beyond_bounds=True,
    of_gradients=True,
)
