"""C-PRC-01: the declared accumulator and intermediate formats are really used."""

from kfuzz.contracts.classes.values import value_failure
from kfuzz.contracts.evidence import Diagnosis, Evidence, Explanation
from kfuzz.contracts.language import ContractClass, Probe
from kfuzz.contracts.prose import promised
from kfuzz.contracts.reading import is_decided, miss_of
from kfuzz.core.verdict import Failure, Kind


def judge(evidence: Evidence) -> Failure | None:
    """Return a miss that arithmetic other than the declared one explains entirely."""
    miss = miss_of(evidence)
    if (
        miss is None
        or miss.kind is not Kind.VALUE
        or evidence.of(Diagnosis).shape_bound
    ):
        return None
    explained = evidence.of(Explanation)
    if explained.algorithm:
        why = f"as {explained.algorithm} allows, which is not declared"
    elif explained.narrower:
        claimed = evidence.declaration.accumulator
        why = f"as {explained.narrower} may give it, {claimed} is declared"
    else:
        return None
    return value_failure("C-PRC-01", miss, why=why)


C_PRC_01 = ContractClass(
    **promised("C-PRC-01"),
    rank=160,
    level=2,
    on_miss=(Probe.FRIENDLY, Probe.ORDINARY),
    kinds=(Kind.VALUE,),
    judge=judge,
    explained=True,
    decides=lambda evidence: is_decided(evidence),
    applies=lambda operator, claims: operator.tolerance.structure != "exact",
    in_batch=lambda batch: batch.decided,
    provisional=True,
)
