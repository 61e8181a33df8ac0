"""C-PRC-02: no avoidable cancellation or overflow."""

from kfuzz.contracts.classes.values import value_failure
from kfuzz.contracts.evidence import Diagnosis, Evidence
from kfuzz.contracts.language import ContractClass, Probe
from kfuzz.contracts.prose import promised
from kfuzz.contracts.reading import inputs_finite, is_decided, miss_of
from kfuzz.core.verdict import Failure, Kind


def judge(evidence: Evidence) -> Failure | None:
    """Return NaN or Inf that magnitude makes, or a miss that recentring mends."""
    miss = miss_of(evidence)
    if miss is None:
        return None
    if miss.kind in (Kind.NAN_UNEXPECTED, Kind.INF_UNEXPECTED):
        found = evidence.of(Diagnosis)
        # What contiguous input mends is no matter of arithmetic, nor is what numbers
        # of ordinary magnitude do not mend: 0 / 0, or memory that nothing wrote.
        arithmetic = inputs_finite(evidence) and found.moderate and not found.contiguous
        why = "gone with numbers of ordinary magnitude"
        return value_failure("C-PRC-02", miss, why=why) if arithmetic else None
    if miss.kind is not Kind.VALUE or evidence.of(Diagnosis).shape_bound:
        return None
    if not evidence.of(Diagnosis).recentred:
        return None
    return value_failure(
        "C-PRC-02", miss, why="passes once the data is centred and scaled"
    )


C_PRC_02 = ContractClass(
    **promised("C-PRC-02"),
    rank=140,
    level=2,
    on_miss=(Probe.FRIENDLY, Probe.CONTIGUOUS, Probe.ORDINARY, Probe.RECENTRED),
    kinds=(Kind.NAN_UNEXPECTED, Kind.INF_UNEXPECTED, Kind.VALUE),
    judge=judge,
    decides=lambda evidence: is_decided(evidence) and inputs_finite(evidence),
    in_batch=lambda batch: batch.finite,
    provisional=True,
)
