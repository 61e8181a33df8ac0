"""C-CMP-03: correct over the declared shape class, not only friendly shapes."""

from kfuzz.contracts.classes.values import value_failure
from kfuzz.contracts.core_domain import is_friendly
from kfuzz.contracts.evidence import Diagnosis, Evidence
from kfuzz.contracts.language import ContractClass, Probe
from kfuzz.contracts.prose import promised
from kfuzz.contracts.reading import is_decided, miss_of
from kfuzz.core.verdict import Failure


def judge(evidence: Evidence) -> Failure | None:
    """Return a miss that is gone at every friendly shape, contiguous."""
    miss, found = miss_of(evidence), evidence.of(Diagnosis)
    if miss is None or found.friendly != "gone":
        return None
    # The friendly shapes are contiguous: then strides, not sizes, are why.
    laid = "passes with contiguous tensors"
    why = laid if found.contiguous else "passes at power-of-two shapes"
    return value_failure("C-CMP-03", miss, why=why)


C_CMP_03 = ContractClass(
    **promised("C-CMP-03"),
    rank=170,
    level=1,
    core=True,
    on_miss=(Probe.FRIENDLY,),
    judge=judge,
    decides=lambda evidence: is_decided(evidence) and not is_friendly(evidence.case),
    in_batch=lambda batch: 0 if batch.friendly else batch.decided,
    provisional=True,
)
