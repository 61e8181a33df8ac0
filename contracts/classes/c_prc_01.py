"""C-PRC-01: the declared accumulator and intermediate formats are really used."""

from kfuzz.contracts.classes.values import value_failure
from kfuzz.contracts.evidence import Diagnosis, Evidence, Explanation
from kfuzz.contracts.language import ContractClass, Probe
from kfuzz.contracts.reading import is_decided, miss_of
from kfuzz.core.verdict import Failure, Kind

ID = "C-PRC-01"


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
    return value_failure(ID, miss, why=why)


CLASS = ContractClass(
    id=ID,
    rank=160,
    level=2,
    title="computes in the declared accumulator and intermediate precision",
    scope="every kernel whose operator rounds",
    precondition="Finite elements of the reference whose bound is not vacuous.",
    postcondition="The result is within the acceptance of the declared arithmetic.",
    on_miss=(Probe.FRIENDLY, Probe.ORDINARY),
    procedure="Inputs on which a narrow accumulator stagnates and inputs whose sums "
    "are exact in the declared one. A miss belongs here if every missing element lies "
    "in the acceptance of another algorithm that the operator lets a kernel declare, "
    "or of a narrower arithmetic, with n u for a vacuous gamma(n, u): for float32 data "
    "TF32 operands, sums in float16 or bfloat16; for 16-bit data sums in its format, "
    "intermediates in the output's, or both. Where nothing is summed the narrower "
    "format is that of intermediate results. That acceptance is tight somewhere, "
    "ordinary data lie in it too, and for a format the kernel shows it: in float32 "
    "most results that miss keep their bits as inputs change by 2^-18, in 16 bits "
    "float32 is right. Unless the shape is at fault: it vanishes at power-of-two "
    "shapes, and ordinary data fails here.",
    kinds=(Kind.VALUE,),
    symptom="names the arithmetic that explains it",
    judge=judge,
    explained=True,
    decides=lambda evidence: is_decided(evidence),
    applies=lambda operator, claims: operator.tolerance.structure != "exact",
    in_batch=lambda batch: batch.decided,
    provisional=True,
)
