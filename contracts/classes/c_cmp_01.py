"""C-CMP-01: a fused operator does what the chain of its parts does."""

from kfuzz.contracts.classes.values import value_failure
from kfuzz.contracts.evidence import Evidence, Explanation
from kfuzz.contracts.language import ContractClass, Structure
from kfuzz.contracts.prose import promised
from kfuzz.contracts.reading import is_decided, miss_of
from kfuzz.core.verdict import Failure


def judge(evidence: Evidence) -> Failure | None:
    """Return a miss that the unfused chain does not admit either."""
    miss = miss_of(evidence)
    if miss is None or not evidence.of(Explanation).breaks_chain:
        return None
    parts = evidence.operator.chain
    how = "one after the other with each" if len(parts) > 1 else "with each"
    why = f"{', '.join(parts)}, {how} result stored, would not give it"
    return value_failure("C-CMP-01", miss, why=why)


C_CMP_01 = ContractClass(
    **promised("C-CMP-01", Structure.COMPOSITE),
    rank=180,
    level=2,
    judge=judge,
    explained=True,
    decides=lambda evidence: is_decided(evidence),
    applies=lambda operator, claims: bool(operator.chain),
    in_batch=lambda batch: batch.decided,
    provisional=True,
)
