"""C-PRC-04: powers of two commute with a homogeneous operator."""

from kfuzz.contracts.classes.values import changed_failure
from kfuzz.contracts.evidence import Evidence, Scaled
from kfuzz.contracts.language import (
    ContractClass,
    Probe,
    Structure,
)
from kfuzz.contracts.prose import promised
from kfuzz.contracts.reading import miss_of
from kfuzz.core.verdict import Failure, Kind


def judge(evidence: Evidence) -> Failure | None:
    """Return what scaled data show of a case that conforms."""
    if miss_of(evidence) is not None:
        return None
    made = (
        changed_failure("C-PRC-04", c, Kind.SCALE_DEPENDENT)
        for c in evidence.of(Scaled)
    )
    return next((failure for failure in made if failure is not None), None)


C_PRC_04 = ContractClass(
    **promised("C-PRC-04", Structure.COMPOSITE),
    rank=200,
    level=2,
    sampled=(Probe.SCALED, Probe.SCALED_REPEAT, Probe.UNSCALED, Probe.UNSCALED_REPEAT),
    kinds=(Kind.SCALE_DEPENDENT,),
    later_kinds=(Kind.SCALE_DEPENDENT,),
    unseen={Kind.SCALE_DEPENDENT: "what it gives for scaled data"},
    judge=judge,
    decides=lambda evidence: bool(evidence.of(Scaled)),
    applies=lambda operator, claims: bool(operator.homogeneous),
    by_occasion=True,
    provisional=True,
    changed_data=True,
)
