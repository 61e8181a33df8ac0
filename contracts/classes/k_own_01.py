"""K-OWN-01: the result comes from the kernel's own launches."""

from kfuzz.contracts.evidence import Evidence
from kfuzz.contracts.language import ContractClass, Structure
from kfuzz.contracts.prose import promised
from kfuzz.core.verdict import Failure, Kind


def judge(evidence: Evidence) -> Failure | None:
    """Return the first operator of torch's that computed during the call."""
    if not evidence.base.returned or not evidence.base.foreign:
        return None
    # A conversion around another operator depends on the dtype: not the one to name.
    first, *others = sorted(evidence.base.foreign, key=_converts)
    also = f", and {', '.join(others)}" if others else ""
    return Failure(
        contract="K-OWN-01",
        kind=Kind.FOREIGN_OPERATOR,
        detail=first,
        message=f"computes with torch's own {first}{also}, not by launches of its own",
    )


def _converts(name: str) -> bool:
    return name in ("aten::_to_copy", "aten::copy_")


K_OWN_01 = ContractClass(
    **promised("K-OWN-01", Structure.EXACT),
    rank=100,
    level=2,
    kinds=(Kind.FOREIGN_OPERATOR,),
    judge=judge,
    decides=lambda evidence: evidence.base.returned,
    applies=lambda operator, claims: claims.own_kernels_only,
    of_values=False,
)
