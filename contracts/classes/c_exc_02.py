"""C-EXC-02: indices out of bounds follow the declared policy."""

from kfuzz.contracts.classes.values import value_failure
from kfuzz.contracts.evidence import Evidence
from kfuzz.contracts.language import ContractClass, Structure
from kfuzz.contracts.prose import promised
from kfuzz.contracts.reading import is_decided, miss_of
from kfuzz.core.verdict import MASK_KINDS, Failure, Kind


def judge(evidence: Evidence) -> Failure | None:
    """Return a call that takes a bad index, or what it makes of one."""
    index, miss = evidence.out_of_bounds, miss_of(evidence)
    if index is None or (evidence.outside and not evidence.beyond_bounds):
        return None
    found = index.describe()
    if evidence.beyond_bounds:
        # Kernels meet no index where rows have no elements.
        if not evidence.base.returned or index.empty:
            return None
        return Failure(
            contract="C-EXC-02",
            kind=Kind.INDEX_ACCEPTED,
            output=index.argument,
            message=f"returns although {found}",
            index=index.at,
            got=float(index.value),
        )
    if miss is None:
        return None
    policy = evidence.declaration.out_of_bounds
    return value_failure("C-EXC-02", miss, why=f'{found}, "{policy}" is declared')


def decides(evidence: Evidence) -> bool:
    """Whether a case without failure holds a bad index and shows its fate."""
    if evidence.out_of_bounds is None:
        return False
    return (
        not evidence.base.returned if evidence.beyond_bounds else is_decided(evidence)
    )


C_EXC_02 = ContractClass(
    **promised("C-EXC-02", Structure.COMPOSITE),
    rank=120,
    level=2,
    kinds=(Kind.INDEX_ACCEPTED, Kind.VALUE, *sorted(MASK_KINDS)),
    judge=judge,
    decides=decides,
    applies=lambda operator, claims: (
        bool(operator.straying) and claims.out_of_bounds != "undefined"
    ),
    beyond_bounds=True,
)
