"""C-CMP-01: a fused operator does what the chain of its parts does."""

from kfuzz.contracts.classes.values import value_failure
from kfuzz.contracts.evidence import Evidence, Explanation
from kfuzz.contracts.language import ContractClass, Structure, Tolerance
from kfuzz.contracts.reading import is_decided, miss_of
from kfuzz.core.verdict import Failure

ID = "C-CMP-01"


def judge(evidence: Evidence) -> Failure | None:
    """Return a miss that the unfused chain does not admit either."""
    miss = miss_of(evidence)
    if miss is None or not evidence.of(Explanation).breaks_chain:
        return None
    parts = evidence.operator.chain
    how = "one after the other with each" if len(parts) > 1 else "with each"
    why = f"{', '.join(parts)}, {how} result stored, would not give it"
    return value_failure(ID, miss, why=why)


CLASS = ContractClass(
    id=ID,
    rank=180,
    level=2,
    title="a fused operator matches the chain of its parts",
    scope="operators that combine a chain of others (Operator.chain)",
    precondition="Every case of the operator's domain and the declared one.",
    postcondition="Each element is within the operator's acceptance, or within that of "
    "the chain with each intermediate result stored in the output's format.",
    tolerance=Tolerance(
        Structure.COMPOSITE,
        'the operator\'s acceptance under intermediates="output", all other '
        "declarations as they are",
        "what is stored between two kernels of a chain is rounded to the output's "
        "format; the error models allow that rounding at each intermediate result",
    ),
    procedure="kfuzz's definition: the chain is not run, its acceptance is computed. A "
    "miss that the chain would accept is one of precision, C-PRC-01; one that it would "
    "not, and that no class before claims, belongs here: the fused kernel leaves out, "
    "reorders or replaces a part.",
    symptom="any kind of wrong value; names the chain",
    judge=judge,
    explained=True,
    decides=lambda evidence: is_decided(evidence),
    applies=lambda operator, claims: bool(operator.chain),
    in_batch=lambda batch: batch.decided,
    provisional=True,
)
