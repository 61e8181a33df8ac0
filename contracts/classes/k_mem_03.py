"""K-MEM-03: inputs not declared in-place keep their bytes."""

from kfuzz.contracts.evidence import Evidence, OpCheck
from kfuzz.contracts.language import (
    ContractClass,
    Probe,
    Structure,
)
from kfuzz.contracts.prose import promised
from kfuzz.core.verdict import Failure, Kind


def judge(evidence: Evidence) -> Failure | None:
    """Return the first input whose elements changed."""
    for touch in evidence.base.touches:
        free = touch.argument in evidence.declaration.inplace
        if touch.where == "element" and not free:
            return Failure(
                contract="K-MEM-03",
                kind=Kind.INPUT_MODIFIED,
                output=touch.argument,
                message=f"overwrites its input {touch.argument}: {touch.describe()}",
                index=touch.first_index,
                elements=touch.count,
            )
    told = evidence.of(OpCheck)
    if not told.mutated or told.mutated in written(evidence):
        return None
    return Failure(
        contract="K-MEM-03",
        kind=Kind.FALSE_SCHEMA,
        output=told.mutated,
        message=f"writes to {told.mutated}, "
        "which its schema does not declare (opcheck)",
    )


def written(evidence: Evidence) -> tuple[str, ...]:
    """Return what a kernel may write to: its schema alone is false if it does."""
    return (*evidence.declaration.inplace, *evidence.declaration.out)


K_MEM_03 = ContractClass(
    **promised("K-MEM-03", Structure.EXACT),
    rank=40,
    level=2,
    core=True,
    sampled=(Probe.OPCHECK,),
    kinds=(Kind.INPUT_MODIFIED, Kind.FALSE_SCHEMA),
    judge=judge,
    decides=lambda evidence: evidence.base.returned,
    in_batch=lambda batch: batch.passed,
    of_values=False,
    beyond_bounds=True,
    of_gradients=True,
)
