"""C-ORD-01: any schedule stays within the bound of the declared reduction."""

from kfuzz.contracts.classes.values import changed_failure
from kfuzz.contracts.evidence import Evidence, Permuted
from kfuzz.contracts.language import ContractClass, Probe
from kfuzz.contracts.prose import promised
from kfuzz.contracts.reading import miss_of
from kfuzz.core.verdict import Failure, Kind


def judge(evidence: Evidence) -> Failure | None:
    """Return what another order of the data shows of a case that conforms."""
    if miss_of(evidence) is not None:
        return None
    made = (
        changed_failure("C-ORD-01", c, Kind.ORDER_DEPENDENT)
        for c in evidence.of(Permuted)
    )
    return next((failure for failure in made if failure is not None), None)


C_ORD_01 = ContractClass(
    **promised("C-ORD-01"),
    rank=210,
    level=3,
    sampled=(Probe.PERMUTED,),
    kinds=(Kind.ORDER_DEPENDENT,),
    later_kinds=(Kind.ORDER_DEPENDENT,),
    unseen={Kind.ORDER_DEPENDENT: "what it gives for data in another order"},
    judge=judge,
    decides=lambda evidence: bool(evidence.of(Permuted)),
    applies=lambda operator, claims: (
        operator.dim is not None or operator.reduced is not None
    ),
    by_occasion=True,
    changed_data=True,
)
