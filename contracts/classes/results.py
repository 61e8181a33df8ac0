"""Results: their values, NaN and indices among them, their metadata, and gradients."""

import math
from typing import Final

from kfuzz.contracts.classes.memory import undeclared, written
from kfuzz.contracts.classes.precision import value_failure
from kfuzz.contracts.evidence import Evidence, OpCheck
from kfuzz.contracts.language import ContractClass, Probe, Structure
from kfuzz.contracts.prose import promised
from kfuzz.contracts.reading import inputs_finite, is_decided, miss_of
from kfuzz.core.recipe import parsed
from kfuzz.core.verdict import MASK_KINDS, Failure, Kind

# K-VAL-01: the result lies in the operator's acceptance.


def _judge_values(evidence: Evidence) -> Failure | None:
    """Return any miss: the class of plain wrong answers."""
    miss = miss_of(evidence)
    return None if miss is None else value_failure("K-VAL-01", miss)


K_VAL_01 = ContractClass(
    **promised("K-VAL-01"),
    rank=190,
    level=1,
    core=True,
    judge=_judge_values,
    decides=lambda evidence: is_decided(evidence),
    in_batch=lambda batch: batch.decided,
    provisional=True,
)


# C-EXC-01: NaN and infinities follow the declared policy.

ACCEPTS = 'declare nonfinite="undefined" if no caller relies on NaN or infinity'


def _judge_nonfinite(evidence: Evidence) -> Failure | None:
    """Return a difference of masks, a number not masked, or a call that takes one."""
    found, miss = evidence.nonfinite, miss_of(evidence)
    if evidence.refusable:
        assert found is not None
        # Kernels meet no number where an argument has no elements.
        empty = any(not spec.numel for spec in evidence.case.tensors.values())
        if not evidence.base.returned or empty:
            return None
        return Failure(
            contract="C-EXC-01",
            kind=Kind.NONFINITE_ACCEPTED,
            output=found.argument,
            message=f'returns although {found.describe()}; "raise" is declared',
            index=found.at,
            got=found.value,
        )
    if miss is None or inputs_finite(evidence):
        return None
    if found is not None and evidence.declaration.nonfinite == "mask":
        return value_failure(
            "C-EXC-01", miss, why=f'{found.describe()}, "mask" is declared'
        )
    if miss.kind not in MASK_KINDS:
        return None
    domains = (parsed(spec.domain).interval for spec in evidence.case.tensors.values())
    # Of an argument that an infinity is declared to belong to nobody may do without it.
    meant = any(d and (math.inf in d or -math.inf in d) for d in domains)
    return value_failure("C-EXC-01", miss, why="" if meant else ACCEPTS)


def _decides_nonfinite(evidence: Evidence) -> bool:
    """Whether a case without failure holds NaN or Inf and shows their outcome."""
    if evidence.refusable:
        return not evidence.base.returned
    return is_decided(evidence) and not inputs_finite(evidence)


C_EXC_01 = ContractClass(
    **promised("C-EXC-01", Structure.EXACT),
    rank=130,
    level=2,
    core=True,
    kinds=(*sorted(MASK_KINDS), Kind.NONFINITE_ACCEPTED, Kind.VALUE),
    judge=_judge_nonfinite,
    decides=_decides_nonfinite,
    applies=lambda operator, claims: (
        claims.nonfinite != "undefined" and operator.takes_nonfinite
    ),
    in_batch=lambda batch: batch.decided - batch.finite,
    beyond_bounds=True,
    provisional=True,
)


# C-EXC-02: indices out of bounds follow the declared policy.


NONE_PASSED = 'declare out_of_bounds="undefined" if no caller passes such an index'


def _judge_indices(evidence: Evidence) -> Failure | None:
    """Return a call that takes a bad index, or what it makes of one."""
    index, miss = evidence.out_of_bounds, miss_of(evidence)
    if index is None or (evidence.outside and not evidence.beyond_bounds):
        return None
    found = index.describe()
    if evidence.beyond_bounds:
        # Kernels meet no index where rows have no elements.
        if not evidence.base.returned or index.taken:
            return None
        return Failure(
            contract="C-EXC-02",
            kind=Kind.INDEX_ACCEPTED,
            output=index.argument,
            message=f"returns although {found}",
            cause=NONE_PASSED,
            index=index.at,
            got=float(index.value),
        )
    if miss is None:
        return None
    why = f'{found}, "{evidence.declaration.out_of_bounds}" is declared; {NONE_PASSED}'
    return value_failure("C-EXC-02", miss, why=why)


def _decides_indices(evidence: Evidence) -> bool:
    """Whether a case without failure holds a bad index and shows its outcome."""
    if evidence.beyond_bounds:
        return not evidence.base.returned
    return evidence.out_of_bounds is not None and is_decided(evidence)


C_EXC_02 = ContractClass(
    **promised("C-EXC-02", Structure.COMPOSITE),
    rank=120,
    level=2,
    kinds=(Kind.INDEX_ACCEPTED, Kind.VALUE, *sorted(MASK_KINDS)),
    judge=_judge_indices,
    decides=_decides_indices,
    applies=lambda operator, claims: (
        bool(operator.straying) and claims.out_of_bounds != "undefined"
    ),
    beyond_bounds=True,
)


# K-MET-01: type, shape, dtype and device of the result are the operator's.


def _judge_metadata(evidence: Evidence) -> Failure | None:
    """Return the first metadata problem of the result."""
    problem = evidence.base.metadata
    if problem is None:
        return _by_opcheck(evidence)
    return Failure(
        contract="K-MET-01",
        kind=problem.kind,
        output=problem.output,
        message=problem.message,
    )


def _by_opcheck(evidence: Evidence) -> Failure | None:
    """Return what is false of a custom operator and breaks no other promise."""
    found, free = evidence.of(OpCheck), written(evidence)
    if found.fake:
        message = f"its fake implementation gives another result: {found.fake}"
        return Failure(contract="K-MET-01", kind=Kind.FALSE_FAKE, message=message)
    if found.mutated in free:
        return undeclared("K-MET-01", f"writes to {found.mutated}")
    return undeclared("K-MET-01", found.aliased) if found.aliased and free else None


K_MET_01 = ContractClass(
    **promised("K-MET-01", Structure.EXACT),
    rank=30,
    level=1,
    core=True,
    sampled=(Probe.OPCHECK,),
    kinds=(
        Kind.WRONG_TYPE,
        Kind.WRONG_SHAPE,
        Kind.WRONG_DTYPE,
        Kind.WRONG_DEVICE,
        Kind.FALSE_FAKE,
        Kind.FALSE_SCHEMA,
    ),
    later_kinds=(Kind.FALSE_SCHEMA, Kind.FALSE_FAKE),
    unseen={
        Kind.FALSE_SCHEMA: "what torch.library.opcheck reports of its schema",
        Kind.FALSE_FAKE: "what torch.library.opcheck reports of its fake",
    },
    judge=_judge_metadata,
    decides=lambda evidence: evidence.base.returned,
    in_batch=lambda batch: batch.passed,
    of_values=False,
)


# K-GRD-01: gradients keep the contracts of any kernel.

# How each probe asks, and the word of it in signatures: a `Way`.
_ASKED: Final = {
    Probe.ONE_WANTED: ("alone", "where no other argument requires a gradient"),
    Probe.TWO_RESULTS: ("twice", "as half of the gradient of two equal results"),
    Probe.LATER_BACKWARD: ("later", "after another forward call"),
    Probe.SECOND_BACKWARD: ("again", "the second time through a kept graph"),
    Probe.RESULT_OVERWRITTEN: ("overwritten", "after its result was overwritten"),
}


def _judge_gradients(evidence: Evidence) -> Failure | None:
    """Return what another way of asking for the same gradients shows."""
    for probe, (way, words) in _ASKED.items():
        run = evidence.runs.get(probe)
        if run is None:
            continue
        if run.raised is not None:
            said = f"raises {run.raised.type}: {run.raised.message}"
            return Failure(
                "K-GRD-01", Kind.RAISES, f"{said}, {words}; once it returns",
                detail=run.raised.type, trace=run.raised.traceback,
            )  # fmt: skip
        if run.metadata is not None:
            problem = run.metadata
            what = f"{problem.message} ({words})"
            return Failure(
                "K-GRD-01", problem.kind, what, output=problem.output, detail=way
            )
        miss = miss_of(evidence, probe)
        if miss is not None:
            why = "by itself it is correct"
            return value_failure(
                "K-GRD-01", miss, why=why, words=f" {words}", detail=way
            )
    return None


K_GRD_01 = ContractClass(
    **promised("K-GRD-01"),
    rank=220,
    level=1,
    core=True,
    on_miss=(Probe.FRIENDLY, Probe.ORDINARY),
    sampled=tuple(_ASKED),
    by_chance=(Kind.NONDETERMINISTIC,),
    judge=_judge_gradients,
    decides=lambda evidence: (
        evidence.operator.forward is not None and is_decided(evidence)
    ),
    applies=lambda operator, claims: operator.forward is not None,
    in_batch=lambda batch: batch.decided,
    of_gradients=True,
    provisional=True,
    of_candidates=False,
)
