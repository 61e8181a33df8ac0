"""Composition: fused operators, configurations, shapes."""

from kfuzz.contracts.classes.precision import failure_at, value_failure
from kfuzz.contracts.evidence import Configurations, Diagnosis, Evidence, Explanation
from kfuzz.contracts.language import ContractClass, Probe, Structure
from kfuzz.contracts.prose import promised
from kfuzz.contracts.reading import conforms, is_decided, is_friendly, miss_of
from kfuzz.core.verdict import Failure, Kind

# C-CMP-01: a fused operator does what the chain of its parts does.


def _judge_chain(evidence: Evidence) -> Failure | None:
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
    judge=_judge_chain,
    explained=True,
    decides=lambda evidence: is_decided(evidence),
    applies=lambda operator, claims: bool(operator.chain),
    in_batch=lambda batch: batch.decided,
    provisional=True,
)


# C-CMP-02: every configuration of a kernel keeps the contract.

# One configuration is the kernel itself.
_SEVERAL = 2


_WHEN = {
    Probe.COLD: "on a first call, in which the autotuner tries its configurations",
    Probe.WARM: "on a second call, for which the autotuner has tried them",
}


def _judge_configuration(evidence: Evidence) -> Failure | None:
    """Return a miss of one configuration alone, or of a first or second call."""
    return _chosen(evidence) or _measured(evidence)


def _measured(evidence: Evidence) -> Failure | None:
    """A miss around an autotuner's measurement that the call itself does not have."""
    if miss_of(evidence) is not None or not conforms(evidence, Probe.REPEAT):
        return None
    for probe, when in _WHEN.items():
        miss = miss_of(evidence, probe)
        if miss is not None:
            once = f"{evidence.base.config} run once gives what it should"
            text = f"{miss.describe()} {when}; {once}"
            return failure_at("C-CMP-02", Kind.TUNING_DEPENDENT, text, miss)
    return None


def _chosen(evidence: Evidence) -> Failure | None:
    """A miss that another configuration of the kernel does not have."""
    miss = miss_of(evidence)
    if miss is None or not evidence.base.config:
        return None
    # What is right now and then needs no other configuration for it.
    if Probe.REPEAT in evidence.runs and miss_of(evidence, Probe.REPEAT) is None:
        return None
    tried = evidence.of(Configurations)
    good = [name for name, conforms in tried.items() if conforms]
    if not good:
        return None
    faulty, other = _apart(evidence.base.config, good[0])
    why = f"with {faulty}; with {other} the result is correct"
    return value_failure("C-CMP-02", miss, why=why)


def _apart(one: str, other: str) -> tuple[str, str]:
    """Return two configurations in words, without what they have in common."""
    left, right = one.split(", "), other.split(", ")
    ours = ", ".join(part for part in left if part not in right)
    theirs = ", ".join(part for part in right if part not in left)
    return ours or one, theirs or other


C_CMP_02 = ContractClass(
    **promised("C-CMP-02"),
    rank=110,
    level=3,
    on_miss=(Probe.REPEAT, Probe.OTHER_CONFIG),
    sampled=(Probe.COLD, Probe.WARM, Probe.REPEAT),
    kinds=(Kind.TUNING_DEPENDENT,),
    later_kinds=(Kind.TUNING_DEPENDENT,),
    unseen={Kind.TUNING_DEPENDENT: "what an autotuner leaves when it measures"},
    judge=_judge_configuration,
    decides=lambda evidence: is_decided(evidence) and evidence.base.configs >= _SEVERAL,
    by_occasion=True,
    of_some_kernels=True,
    provisional=True,
    of_candidates=False,
)


# C-CMP-03: correct over the declared shape class, not only friendly shapes.


def _judge_shapes(evidence: Evidence) -> Failure | None:
    """Return a miss that is gone at every friendly shape, contiguous."""
    miss, found = miss_of(evidence), evidence.of(Diagnosis)
    if miss is None or not found.gone:
        return None
    return value_failure("C-CMP-03", miss, why=f"passes {found.gone}")


C_CMP_03 = ContractClass(
    **promised("C-CMP-03"),
    rank=170,
    level=1,
    core=True,
    on_miss=(Probe.FRIENDLY,),
    judge=_judge_shapes,
    decides=lambda evidence: is_decided(evidence) and not is_friendly(evidence.case),
    in_batch=lambda batch: 0 if batch.friendly else batch.decided,
    provisional=True,
)
