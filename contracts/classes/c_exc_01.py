"""C-EXC-01: NaN and infinities follow the declared policy."""

from kfuzz.contracts.classes.values import value_failure
from kfuzz.contracts.evidence import Evidence
from kfuzz.contracts.language import ContractClass, Structure, Tolerance
from kfuzz.contracts.reading import inputs_finite, is_decided, miss_of
from kfuzz.core.verdict import MASK_KINDS, Failure, Kind

ID = "C-EXC-01"
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
            contract=ID,
            kind=Kind.NONFINITE_ACCEPTED,
            output=found.argument,
            message=f'returns although {found.describe()}; "raise" is declared',
            index=found.at,
            got=found.value,
        )
    if miss is None or inputs_finite(evidence):
        return None
    if found is not None and evidence.declaration.nonfinite == "mask":
        return value_failure(ID, miss, why=f'{found.describe()}, "mask" is declared')
    if miss.kind not in MASK_KINDS:
        return None
    return value_failure(ID, miss, why=f"{ADMITS} is not declared")


def decides(evidence: Evidence) -> bool:
    """Whether a case without failure holds NaN or Inf and shows their fate."""
    if evidence.refusable:
        return not evidence.base.returned
    return is_decided(evidence) and not inputs_finite(evidence)


CLASS = ContractClass(
    id=ID,
    rank=130,
    level=2,
    core=True,
    title="NaN and infinities are handled as declared",
    scope="every kernel unless nonfinite is undefined, or the domain of each argument "
    "leaves NaN and infinities out",
    precondition="Cases whose inputs contain NaN or infinities.",
    postcondition="NaN, +Inf and -Inf are exactly where the operator's rules put "
    'them; payload and sign of a NaN are free. Under "mask" the result is that of '
    'data with 0 in place of NaN and infinities; under "raise" an exception. Both '
    "apply to floating arguments except additive masks.",
    tolerance=Tolerance(
        Structure.EXACT,
        "masks are equal, each held against the acceptance",
        "classes are decided from the operator's rules, not by a float64 library "
        "call; undecided where some order of summation overflows",
    ),
    procedure="Exact position masks of NaN, +Inf and -Inf are compared before numbers. "
    'Under "mask" the oracle is given zeros. Under "raise" only faults, writes and '
    "this class are judged where the data hold NaN or infinities; an exception of any "
    "type will do.",
    kinds=(*sorted(MASK_KINDS), Kind.NONFINITE_ACCEPTED, Kind.VALUE),
    symptom='masks differ and the input is not finite; under "mask" any difference, '
    'under "raise" a call that returns',
    judge=judge,
    decides=decides,
    applies=lambda operator, claims: (
        claims.nonfinite != "undefined" and operator.takes_nonfinite
    ),
    in_batch=lambda batch: batch.decided - batch.finite,
    beyond_bounds=True,
    provisional=True,
)
