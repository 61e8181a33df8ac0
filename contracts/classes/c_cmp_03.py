"""C-CMP-03: correct over the declared shape class, not only friendly shapes."""

from kfuzz.contracts.classes.values import value_failure
from kfuzz.contracts.core_domain import is_friendly
from kfuzz.contracts.evidence import Diagnosis, Evidence
from kfuzz.contracts.language import ContractClass, Probe
from kfuzz.contracts.reading import is_decided, miss_of
from kfuzz.core.verdict import Failure

ID = "C-CMP-03"


def judge(evidence: Evidence) -> Failure | None:
    """Return a miss that is gone at every friendly shape, contiguous."""
    miss, found = miss_of(evidence), evidence.of(Diagnosis)
    if miss is None or found.friendly != "gone":
        return None
    # The friendly shapes are contiguous: then strides, not sizes, are why.
    laid = "passes with contiguous tensors"
    why = laid if found.contiguous else "passes at power-of-two shapes"
    return value_failure(ID, miss, why=why)


CLASS = ContractClass(
    id=ID,
    rank=170,
    level=1,
    core=True,
    title="correct at every declared shape, not only at powers of two",
    scope="every kernel",
    precondition="Every shape and layout of the declared class. One failing shape "
    "violates; there is no pass rate.",
    postcondition="The result is within the operator's acceptance.",
    on_miss=(Probe.FRIENDLY,),
    procedure="kfuzz's definition. Power-of-two shapes are those of a ladder, "
    "contiguous, at which the kernel passes allclose (rtol = atol = 1e-2) on normal "
    "data. The failing values, tiled to each such shape, must pass at all of them, and "
    "there must be one.",
    symptom="any kind of wrong value; disappears at every power-of-two shape that "
    "passes the plain functional test",
    judge=judge,
    decides=lambda evidence: is_decided(evidence) and not is_friendly(evidence.case),
    in_batch=lambda batch: 0 if batch.friendly else batch.decided,
    provisional=True,
)
