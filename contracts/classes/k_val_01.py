"""K-VAL-01: the result lies in the operator's acceptance."""

from kfuzz.contracts.classes.values import value_failure
from kfuzz.contracts.evidence import Evidence
from kfuzz.contracts.language import ContractClass
from kfuzz.contracts.reading import is_decided, miss_of
from kfuzz.core.verdict import Failure

ID = "K-VAL-01"


def judge(evidence: Evidence) -> Failure | None:
    """Return any miss: the class of plain wrong answers."""
    miss = miss_of(evidence)
    return None if miss is None else value_failure(ID, miss)


CLASS = ContractClass(
    id=ID,
    rank=190,
    level=1,
    core=True,
    title="every element is within the error bound of the operator",
    scope="every kernel",
    precondition="Every case of the operator's domain and the declared one.",
    postcondition="Each element is accepted: its class, and if finite its value.",
    procedure="Metadata, then masks of NaN, +Inf and -Inf, then numbers on the finite "
    "rest, against the float64 oracle of the same bits. A case of billions of elements "
    "(profile large) runs once and is judged on its device in slices of rows that do "
    "not depend on one another, every slice of them; one that has no such rows is not "
    "judged. A miss there is C-CMP-03 if the kernel is right on the rows around it "
    "alone.",
    symptom="a wrong value that no more specific class claims",
    judge=judge,
    decides=lambda evidence: is_decided(evidence),
    in_batch=lambda batch: batch.decided,
    provisional=True,
)
