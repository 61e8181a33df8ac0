"""A wrong result that was recorded and need not show again: `witnessed`.

Its inputs and what came back for them are known as bytes, and no rounding explains the
miss. A fresh process that is right about the same inputs then proves one thing more:
the result depends on something else than they.
"""

from dataclasses import replace
from typing import Final

from kfuzz.core.finding import Finding
from kfuzz.core.verdict import Kind, State
from kfuzz.store.life import enter

DETERMINISM: Final = "C-ORD-02"
"""What is broken where the same inputs gave a right result at another time."""

_IN_BYTES: Final = frozenset(
    {
        Kind.VALUE, Kind.NAN_MISSING, Kind.NAN_UNEXPECTED, Kind.INF_MISSING,
        Kind.INF_UNEXPECTED, Kind.INF_SIGN, Kind.UNWRITTEN, Kind.STALE_RESULT,
        Kind.INPUT_MODIFIED, Kind.WRITE_OUTSIDE, Kind.ALIASES_INPUT,
        Kind.ALIASES_OUTPUT, Kind.WRONG_TYPE, Kind.WRONG_SHAPE, Kind.WRONG_DTYPE,
        Kind.WRONG_DEVICE,
    }
)  # fmt: skip
# Changed after its call had returned: the two readings are the record.
_LATE: Final = "late"
# Once may be the machine's doing; what two processes show is the kernel's.
_SEEN_TWICE: Final = frozenset({Kind.RAISES, Kind.CRASH, Kind.OVERLAP_DEPENDENT})


def recorded(
    finding: Finding, *, right: str = "", again: bool = False
) -> Finding | None:
    """Return a finding that does not reproduce as witnessed; None if nothing proves it.

    Args:
        finding: as it was found.
        right: in how many fresh processes the same inputs failed, in words; "" where
            none was asked.
        again: whether it showed in one of them at least, or more than once before.
    """
    failure, kind = finding.failure, finding.failure.kind
    # Results that follow a seed are a record where one of them is wrong.
    in_bytes = kind in _IN_BYTES or (
        kind is Kind.SEED_DEPENDENT and failure.got is not None
    )
    proven = in_bytes or failure.detail == _LATE
    if not (proven or (again and kind in _SEEN_TWICE)):
        return None
    if not right:
        note = "recorded as it was found; the run ended before it was asked for again"
        return enter(finding, State.WITNESSED, note)
    if in_bytes and kind is not Kind.STALE_RESULT:
        what = f"right on the same input at another time: {failure.message}"
        failure = replace(
            failure, contract=DETERMINISM, kind=Kind.NONDETERMINISTIC, message=what,
            cause="",
        )  # fmt: skip
    finding = replace(
        finding, failure=failure, signature=failure.signature(finding.signature.kernel)
    )
    return enter(finding, State.WITNESSED, f"recorded as it was found; {right}")
