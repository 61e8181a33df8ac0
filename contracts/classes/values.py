"""What the value contracts share: turning a miss into a failure."""

from typing import TYPE_CHECKING, Final

from kfuzz.core.verdict import Failure, Kind

if TYPE_CHECKING:
    from kfuzz.contracts.view import Miss

MASK_KINDS: Final = frozenset(
    {
        Kind.NAN_MISSING,
        Kind.NAN_UNEXPECTED,
        Kind.INF_MISSING,
        Kind.INF_UNEXPECTED,
        Kind.INF_SIGN,
    }
)


def value_failure(contract: str, miss: "Miss", *, why: str = "") -> Failure:
    """Return the failure that a miss means under a contract class."""
    message = miss.describe() + (f"; {why}" if why else "")
    return Failure(
        contract=contract,
        kind=miss.kind,
        message=message,
        output=miss.output,
        index=miss.index,
        got=miss.got,
        expected=miss.expected,
        low=miss.low,
        high=miss.high,
        ratio=miss.ratio,
        elements=miss.elements,
    )
