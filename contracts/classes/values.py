"""What the value contracts share: turning a miss into a failure."""

from kfuzz.contracts.changed import BITWISE, Changed
from kfuzz.contracts.evidence import Miss
from kfuzz.core.verdict import Failure, Kind


def value_failure(
    contract: str,
    miss: Miss,
    *,
    why: str = "",
    kind: Kind | None = None,
    words: str = "",
    detail: str = "",
) -> Failure:
    """Return the failure that a miss means under a contract class.

    Args:
        contract: id of the class.
        miss: the element that is missed.
        why: what tells the class from its neighbours.
        kind: how it shows, where that is not the miss's own kind.
        words: under which circumstances, said directly after the miss.
        detail: part of the signature.
    """
    message = miss.describe() + words + (f"; {why}" if why else "")
    return Failure(
        contract=contract,
        kind=kind or miss.kind,
        message=message,
        output=miss.output,
        detail=detail,
        index=miss.index,
        got=miss.got,
        expected=miss.expected,
        low=miss.low,
        high=miss.high,
        ratio=miss.ratio,
        elements=miss.elements,
        cause=why,
    )


def changed_failure(contract: str, found: Changed, kind: Kind) -> Failure | None:
    """Return the failure that a changed form of a case shows, if any.

    Args:
        contract: id of the class.
        found: what the changed form showed.
        kind: how it shows.
    """
    if found.miss is None:
        return None
    why = "as it is the case conforms"
    if found.shift is not None:
        why = f"allowed, but not 2^{found.shift} times what it is without"
    return value_failure(
        contract,
        found.miss,
        kind=kind,
        words=f" with {found.change}",
        why=why,
        detail="" if found.shift is None else BITWISE,
    )
