"""K-VAL-01: the result lies in the operator's acceptance."""

from kfuzz.contracts.classes.values import value_failure
from kfuzz.contracts.evidence import Evidence
from kfuzz.contracts.language import ContractClass
from kfuzz.contracts.prose import promised
from kfuzz.contracts.reading import is_decided, miss_of
from kfuzz.core.verdict import Failure


def judge(evidence: Evidence) -> Failure | None:
    """Return any miss: the class of plain wrong answers."""
    miss = miss_of(evidence)
    return None if miss is None else value_failure("K-VAL-01", miss)


K_VAL_01 = ContractClass(
    **promised("K-VAL-01"),
    rank=190,
    level=1,
    core=True,
    judge=judge,
    decides=lambda evidence: is_decided(evidence),
    in_batch=lambda batch: batch.decided,
    provisional=True,
)
