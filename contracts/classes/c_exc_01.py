"""C-EXC-01: NaN and infinities follow the declared policy."""

from kfuzz.contracts.classes.values import value_failure
from kfuzz.contracts.evidence import Evidence
from kfuzz.contracts.language import ContractClass, Structure
from kfuzz.contracts.prose import promised
from kfuzz.contracts.reading import inputs_finite, is_decided, miss_of
from kfuzz.core.verdict import MASK_KINDS, Failure, Kind

ADMITS = 'nonfinite="undefined"'


def judge(evidence: Evidence) -> Failure | None:
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
    return value_failure("C-EXC-01", miss, why=f"{ADMITS} is not declared")


def decides(evidence: Evidence) -> bool:
    """Whether a case without failure holds NaN or Inf and shows their fate."""
    if evidence.refusable:
        return not evidence.base.returned
    return is_decided(evidence) and not inputs_finite(evidence)


C_EXC_01 = ContractClass(
    **promised("C-EXC-01", Structure.EXACT),
    rank=130,
    level=2,
    core=True,
    kinds=(*sorted(MASK_KINDS), Kind.NONFINITE_ACCEPTED, Kind.VALUE),
    judge=judge,
    decides=decides,
    applies=lambda operator, claims: (
        claims.nonfinite != "undefined" and operator.takes_nonfinite
    ),
    in_batch=lambda batch: batch.decided - batch.finite,
    beyond_bounds=True,
    provisional=True,
)
