"""Precision, and what the value contracts share: turning a miss into a failure."""

from kfuzz.contracts.evidence import (
    Diagnosis,
    Difference,
    Evidence,
    Explanation,
    Miss,
    Scaled,
)
from kfuzz.contracts.language import BITWISE, Changed, ContractClass, Probe, Structure
from kfuzz.contracts.prose import promised
from kfuzz.contracts.reading import (
    inputs_finite,
    is_decided,
    keeps_subnormals,
    miss_of,
    subnormals_matter,
)
from kfuzz.core.verdict import Access, Failure, Kind, output_of


def value_failure(
    contract: str,
    miss: Miss,
    *,
    why: str = "",
    kind: Kind | None = None,
    words: str = "",
    detail: str = "",
) -> Failure:
    """Return the failure that a miss means under a contract class.

    Args:
        contract: id of the class.
        miss: the element that is missed.
        why: what tells the class from its neighbours.
        kind: how it shows, where that is not the miss's own kind.
        words: under which circumstances, said directly after the miss.
        detail: part of the signature.
    """
    message = miss.describe() + words + (f"; {why}" if why else "")
    return Failure(
        contract=contract,
        kind=kind or miss.kind,
        message=message,
        output=miss.output,
        detail=detail,
        index=miss.index,
        got=miss.got,
        expected=miss.expected,
        low=miss.low,
        high=miss.high,
        ratio=miss.ratio,
        elements=miss.elements,
        cause=why,
        near=miss.near,
    )


def failure_at(
    contract: str,
    kind: Kind,
    message: str,
    found: Miss | Difference,
    accesses: tuple[Access, ...] = (),
) -> Failure:
    """Return a failure whose values stand in its message only.

    They may be those of other data, and the next run may have others.
    """
    return Failure(
        contract=contract,
        kind=kind,
        message=message,
        output=found.output,
        index=found.index,
        elements=found.elements,
        accesses=accesses,
    )


def first_changed(
    evidence: Evidence, contract: str, forms: type[tuple[Changed, ...]], kind: Kind
) -> Failure | None:
    """Return the first failure that changed forms of a conforming case show."""
    if miss_of(evidence) is not None:
        return None
    for found in evidence.of(forms):
        if found.miss is not None:
            why, detail = "as it is the case conforms", ""
            if found.shift is not None:
                why = f"allowed, but not 2^{found.shift} times what it is without"
                detail = BITWISE
            words = f" with {found.change}"
            return value_failure(
                contract, found.miss, kind=kind, words=words, why=why, detail=detail
            )
    return None


# C-PRC-01: the declared accumulator and intermediate formats are really used.


def _judge_arithmetic(evidence: Evidence) -> Failure | None:
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
    return value_failure("C-PRC-01", miss, why=why)


C_PRC_01 = ContractClass(
    **promised("C-PRC-01"),
    rank=160,
    level=2,
    on_miss=(Probe.FRIENDLY, Probe.ORDINARY),
    kinds=(Kind.VALUE,),
    judge=_judge_arithmetic,
    explained=True,
    decides=lambda evidence: is_decided(evidence),
    applies=lambda operator, claims: operator.tolerance.structure != "exact",
    in_batch=lambda batch: batch.decided,
    provisional=True,
)


# C-PRC-02: no avoidable cancellation or overflow.


def _judge_cancellation(evidence: Evidence) -> Failure | None:
    """Return NaN or Inf that magnitude makes, or a miss that recentring mends."""
    miss, found = miss_of(evidence), evidence.of(Diagnosis)
    if miss is None:
        return None
    if miss.kind in (Kind.NAN_UNEXPECTED, Kind.INF_UNEXPECTED):
        # What contiguous input mends is no matter of arithmetic, nor is what numbers
        # of ordinary magnitude do not mend: 0 / 0, or memory that nothing wrote.
        arithmetic = inputs_finite(evidence) and found.moderate and not found.contiguous
        why = "gone with numbers of ordinary magnitude"
        return value_failure("C-PRC-02", miss, why=why) if arithmetic else None
    if miss.kind is not Kind.VALUE or found.shape_bound or not found.recentred:
        return None
    why = "passes once the data is centred and scaled"
    return value_failure("C-PRC-02", miss, why=why)


C_PRC_02 = ContractClass(
    **promised("C-PRC-02"),
    rank=140,
    level=2,
    on_miss=(Probe.FRIENDLY, Probe.CONTIGUOUS, Probe.ORDINARY, Probe.RECENTRED),
    kinds=(Kind.NAN_UNEXPECTED, Kind.INF_UNEXPECTED, Kind.VALUE),
    judge=_judge_cancellation,
    decides=lambda evidence: is_decided(evidence) and inputs_finite(evidence),
    in_batch=lambda batch: batch.finite,
    provisional=True,
)


# C-PRC-03: subnormal numbers are kept, or flushed, as declared.


def _judge_subnormals(evidence: Evidence) -> Failure | None:
    """Return a miss that is a matter of subnormal numbers."""
    miss, found = miss_of(evidence), evidence.of(Diagnosis)
    if (
        miss is None
        or output_of(miss.output) in evidence.operator.integers
        or found.shape_bound
    ):
        return None
    mode = evidence.declaration.subnormals
    if keeps_subnormals(evidence):
        why = "a subnormal number, and flush is declared"
    elif found.subnormal == "gone":
        why = "gone once subnormal arguments are 0, and once they are normal"
    elif evidence.of(Explanation).flushes and found.subnormal != "persists":
        why = f"as a kernel that flushes would give it, {mode} is declared"
    else:
        return None
    return value_failure("C-PRC-03", miss, why=why)


C_PRC_03 = ContractClass(
    **promised("C-PRC-03"),
    rank=150,
    level=2,
    on_miss=(
        Probe.WITHOUT_SUBNORMALS,
        Probe.NORMALISED,
        Probe.FRIENDLY,
        Probe.ORDINARY,
    ),
    judge=_judge_subnormals,
    explained=True,
    decides=lambda evidence: is_decided(evidence) and subnormals_matter(evidence),
    applies=lambda operator, claims: (
        set(operator.integers) != set(map(output_of, operator.outputs))
    ),
    provisional=True,
)


# C-PRC-04: powers of two commute with a homogeneous operator.


def _judge_scaling(evidence: Evidence) -> Failure | None:
    """Return what scaled data show of a case that conforms."""
    return first_changed(evidence, "C-PRC-04", Scaled, Kind.SCALE_DEPENDENT)


C_PRC_04 = ContractClass(
    **promised("C-PRC-04", Structure.COMPOSITE),
    rank=200,
    level=2,
    sampled=(Probe.SCALED, Probe.SCALED_REPEAT, Probe.UNSCALED, Probe.UNSCALED_REPEAT),
    kinds=(Kind.SCALE_DEPENDENT,),
    later_kinds=(Kind.SCALE_DEPENDENT,),
    unseen={Kind.SCALE_DEPENDENT: "what it gives for scaled data"},
    judge=_judge_scaling,
    decides=lambda evidence: bool(evidence.of(Scaled)),
    applies=lambda operator, claims: bool(operator.homogeneous),
    by_occasion=True,
    provisional=True,
    changed_data=True,
)
