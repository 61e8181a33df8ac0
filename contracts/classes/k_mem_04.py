"""K-MEM-04: results share memory neither with inputs nor with each other."""

from kfuzz.contracts.evidence import Evidence, OpCheck
from kfuzz.contracts.language import (
    ContractClass,
    Probe,
    Structure,
)
from kfuzz.contracts.prose import promised
from kfuzz.core.verdict import Failure, Kind

# The calls whose results are alive together, in order.
_LIVE = (Probe.BASE, Probe.SECOND, Probe.AGAIN)


def judge(evidence: Evidence) -> Failure | None:
    """Return the first result that lies in an input or in a living result."""
    return (
        _in_input(evidence) or _in_living_result(evidence) or _against_schema(evidence)
    )


def _in_input(evidence: Evidence) -> Failure | None:
    base = evidence.base
    for output, place in base.results.items():
        for name, argument in base.arguments.items():
            if name not in evidence.declaration.inplace and place.overlaps(argument):
                return Failure(
                    contract="K-MEM-04",
                    kind=Kind.ALIASES_INPUT,
                    output=output,
                    message=f"{output} shares memory with the input {name}",
                )
    return None


def _in_living_result(evidence: Evidence) -> Failure | None:
    if evidence.declaration.inplace or evidence.declaration.out:
        return None  # the result lies wherever the caller put it
    runs = [evidence.runs[p] for p in _LIVE if p in evidence.runs]
    for i, later in enumerate(runs):
        for earlier in runs[:i]:
            for output, place in later.results.items():
                for other, living in earlier.results.items():
                    if place.overlaps(living):
                        return Failure(
                            contract="K-MEM-04",
                            kind=Kind.ALIASES_OUTPUT,
                            output=output,
                            message=f"{output} shares memory with {other}, which an "
                            "earlier call returned and its caller still holds",
                        )
    return None


def _against_schema(evidence: Evidence) -> Failure | None:
    told = evidence.of(OpCheck)
    free = bool(evidence.declaration.inplace or evidence.declaration.out)
    if not told.aliased or free:
        return None
    message = f"{told.aliased}, which its schema does not declare (opcheck)"
    return Failure(contract="K-MEM-04", kind=Kind.FALSE_SCHEMA, message=message)


K_MEM_04 = ContractClass(
    **promised("K-MEM-04", Structure.EXACT),
    rank=50,
    level=3,
    core=True,
    sampled=(Probe.SECOND, Probe.AGAIN, Probe.OPCHECK),
    kinds=(Kind.ALIASES_INPUT, Kind.ALIASES_OUTPUT, Kind.FALSE_SCHEMA),
    later_kinds=(Kind.ALIASES_OUTPUT,),
    judge=judge,
    decides=lambda evidence: evidence.base.comparable,
    of_values=False,
    of_gradients=True,
    second_call=True,
)
