"""K-MET-01: type, shape, dtype and device of the result are the operator's."""

from kfuzz.contracts.evidence import Evidence, OpCheck
from kfuzz.contracts.language import (
    SECOND_CALL_SHARE,
    ContractClass,
    Probe,
    Structure,
    Tolerance,
)
from kfuzz.core.verdict import Failure, Kind

ID = "K-MET-01"


def judge(evidence: Evidence) -> Failure | None:
    """Return the first metadata problem of the result."""
    problem = evidence.base.metadata
    if problem is None:
        return _by_opcheck(evidence)
    return Failure(
        contract=ID, kind=problem.kind, output=problem.output, message=problem.message
    )


def _by_opcheck(evidence: Evidence) -> Failure | None:
    """Return a lie of a custom operator about itself that breaks no other promise."""
    told, claims = evidence.of(OpCheck), evidence.declaration
    if told.fake:
        message = f"its fake implementation gives another result: {told.fake}"
        return Failure(contract=ID, kind=Kind.FALSE_FAKE, message=message)
    if told.mutated and told.mutated in (*claims.inplace, *claims.out):
        what = f"writes to {told.mutated}"
    elif told.aliased and (claims.inplace or claims.out):
        what = told.aliased
    else:
        return None
    message = f"{what}, which its schema does not declare (opcheck)"
    return Failure(contract=ID, kind=Kind.FALSE_SCHEMA, message=message)


CLASS = ContractClass(
    id=ID,
    rank=30,
    level=1,
    core=True,
    title="shape, dtype, device and type of the result are as specified",
    scope="every kernel",
    precondition="Every case on which the kernel returns.",
    postcondition="Each result is a dense torch.Tensor with the operator's shape, "
    "dtype and device; strides are free. A kernel that writes to an argument or a "
    "destination returns nothing else. The schema and the fake implementation of a "
    "custom operator agree with that.",
    tolerance=Tolerance(Structure.EXACT, "equal", "metadata has no tolerance"),
    sampled=(Probe.OPCHECK,),
    procedure="The returned object is inspected before any value is read. On one in "
    f"{SECOND_CALL_SHARE} cases torch.library.opcheck compares the results of a custom "
    "operator with those of its fake implementation, where it has one; what opcheck "
    "cannot run is a note.",
    kinds=(
        Kind.WRONG_TYPE,
        Kind.WRONG_SHAPE,
        Kind.WRONG_DTYPE,
        Kind.WRONG_DEVICE,
        Kind.FALSE_FAKE,
        Kind.FALSE_SCHEMA,
    ),
    later_kinds=(Kind.FALSE_SCHEMA, Kind.FALSE_FAKE),
    symptom="decided before any comparison of values",
    unseen={
        Kind.FALSE_SCHEMA: "what torch.library.opcheck reports of its schema",
        Kind.FALSE_FAKE: "what torch.library.opcheck reports of its fake",
    },
    judge=judge,
    decides=lambda evidence: evidence.base.returned,
    in_batch=lambda batch: batch.passed,
    of_values=False,
)
