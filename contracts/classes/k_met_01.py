"""K-MET-01: type, shape, dtype and device of the result are the operator's."""

from kfuzz.contracts.evidence import Evidence, OpCheck
from kfuzz.contracts.language import (
    ContractClass,
    Probe,
    Structure,
)
from kfuzz.contracts.prose import promised
from kfuzz.core.verdict import Failure, Kind


def judge(evidence: Evidence) -> Failure | None:
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
    """Return a lie of a custom operator about itself that breaks no other promise."""
    told, claims = evidence.of(OpCheck), evidence.declaration
    if told.fake:
        message = f"its fake implementation gives another result: {told.fake}"
        return Failure(contract="K-MET-01", kind=Kind.FALSE_FAKE, message=message)
    if told.mutated and told.mutated in (*claims.inplace, *claims.out):
        what = f"writes to {told.mutated}"
    elif told.aliased and (claims.inplace or claims.out):
        what = told.aliased
    else:
        return None
    message = f"{what}, which its schema does not declare (opcheck)"
    return Failure(contract="K-MET-01", kind=Kind.FALSE_SCHEMA, message=message)


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
    judge=judge,
    decides=lambda evidence: evidence.base.returned,
    in_batch=lambda batch: batch.passed,
    of_values=False,
)
