"""K-MEM-03: inputs not declared in-place keep their bytes."""

from kfuzz.contracts.evidence import Evidence, OpCheck
from kfuzz.contracts.language import (
    SECOND_CALL_SHARE,
    ContractClass,
    Probe,
    Structure,
    Tolerance,
)
from kfuzz.core.verdict import Failure, Kind

ID = "K-MEM-03"


def judge(evidence: Evidence) -> Failure | None:
    """Return the first input whose elements changed."""
    for touch in evidence.base.touches:
        free = touch.argument in evidence.declaration.inplace
        if touch.where == "element" and not free:
            return Failure(
                contract=ID,
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
        contract=ID,
        kind=Kind.FALSE_SCHEMA,
        output=told.mutated,
        message=f"writes to {told.mutated}, "
        "which its schema does not declare (opcheck)",
    )


def written(evidence: Evidence) -> tuple[str, ...]:
    """Return what a kernel may write to: its schema alone is false if it does."""
    return (*evidence.declaration.inplace, *evidence.declaration.out)


CLASS = ContractClass(
    id=ID,
    rank=40,
    level=2,
    core=True,
    title="inputs that are not declared in-place are not modified",
    scope="every kernel, for each tensor argument that `inplace` does not name",
    precondition="Every case on which the kernel returns.",
    postcondition="The bytes of the argument's elements do not change.",
    tolerance=Tolerance(
        Structure.EXACT, "bytes are equal", "no arithmetic is involved"
    ),
    sampled=(Probe.OPCHECK,),
    procedure="The bytes of every argument are compared with a snapshot after the "
    f"call. On one in {SECOND_CALL_SHARE} cases torch.library.opcheck compares the "
    "arguments of a custom operator with what its schema declares.",
    kinds=(Kind.INPUT_MODIFIED, Kind.FALSE_SCHEMA),
    symptom="names the argument and the first element",
    judge=judge,
    decides=lambda evidence: evidence.base.returned,
    in_batch=lambda batch: batch.passed,
    of_values=False,
    beyond_bounds=True,
    of_gradients=True,
)
