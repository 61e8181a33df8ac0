"""K-MEM-01: no access outside what the kernel was given."""

from typing import Final

from kfuzz.contracts.evidence import Evidence
from kfuzz.contracts.language import ContractClass, Structure
from kfuzz.contracts.prose import promised
from kfuzz.core.verdict import Access, Failure, Kind

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
                contract="K-MEM-01",
                kind=Kind.WRITE_OUTSIDE,
                output=touch.argument,
                message=f"out-of-bounds write to {touch.argument}: {touch.describe()}",
                elements=touch.count,
            )
    for stray in evidence.base.strays:
        return Failure(
            contract="K-MEM-01",
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
        contract="K-MEM-01",
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


K_MEM_01 = ContractClass(
    **promised("K-MEM-01", Structure.EXACT),
    rank=20,
    level=1,
    kinds=(Kind.WRITE_OUTSIDE, Kind.READ_OUTSIDE),
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
