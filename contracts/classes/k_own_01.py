"""K-OWN-01: the result comes from the kernel's own launches."""

from kfuzz.contracts.evidence import Evidence
from kfuzz.contracts.language import ContractClass, Structure, Tolerance
from kfuzz.core.verdict import Failure, Kind

ID = "K-OWN-01"


def judge(evidence: Evidence) -> Failure | None:
    """Return the first operator of torch's that computed during the call."""
    if not evidence.base.returned or not evidence.base.foreign:
        return None
    # A conversion around another operator depends on the dtype: not the one to name.
    first, *others = sorted(evidence.base.foreign, key=_converts)
    also = f", and {', '.join(others)}" if others else ""
    return Failure(
        contract=ID,
        kind=Kind.FOREIGN_OPERATOR,
        detail=first,
        message=f"computes with torch's own {first}{also}, not by launches of its own",
    )


def _converts(name: str) -> bool:
    return name in ("aten::_to_copy", "aten::copy_")


CLASS = ContractClass(
    id=ID,
    rank=100,
    level=2,
    title="the result comes from the kernel's own launches",
    scope="kernels that declare own_kernels_only",
    precondition="Every case on which the kernel returns.",
    postcondition="No operator of torch computes while the kernel runs. Only "
    "allocation, constants, views, metadata and copies that keep the dtype are "
    "allowed.",
    tolerance=Tolerance(Structure.EXACT, "none", "an operator is called or it is not"),
    procedure="A dispatch mode sees every operator that Python calls. Operators that "
    "the user registers in a library of his own, and what they call, are the kernel's; "
    "so is what torch.compile generates, but not the operators that the generated code "
    "calls.",
    kinds=(Kind.FOREIGN_OPERATOR,),
    symptom="detail is the first operator, e.g. aten::_softmax",
    judge=judge,
    decides=lambda evidence: evidence.base.returned,
    applies=lambda operator, claims: claims.own_kernels_only,
    of_values=False,
)
