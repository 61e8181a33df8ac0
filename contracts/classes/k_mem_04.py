"""K-MEM-04: results share memory neither with inputs nor with each other."""

from kfuzz.contracts.evidence import Evidence, OpCheck
from kfuzz.contracts.language import (
    SECOND_CALL_SHARE,
    ContractClass,
    Probe,
    Structure,
    Tolerance,
)
from kfuzz.core.verdict import Failure, Kind

ID = "K-MEM-04"
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
                    contract=ID,
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
                            contract=ID,
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
    return Failure(contract=ID, kind=Kind.FALSE_SCHEMA, message=message)


CLASS = ContractClass(
    id=ID,
    rank=50,
    level=3,
    core=True,
    title="results share no memory with inputs or other results",
    scope="every kernel; a parameter that `inplace` names may be the result, and "
    "one that `out` names is the result, in every call",
    precondition="Every case on which the kernel returns.",
    postcondition="No byte of a result's elements belongs to an element of an "
    "input, or to a live result of an earlier call.",
    tolerance=Tolerance(Structure.EXACT, "no common byte", "addresses are compared"),
    sampled=(Probe.SECOND, Probe.AGAIN, Probe.OPCHECK),
    procedure="The addresses of all elements of each result are compared with those of "
    f"the inputs. On one in {SECOND_CALL_SHARE} cases the kernel is called twice more "
    "with its results kept alive, and their addresses are compared with each other. "
    "torch.library.opcheck is asked there what a custom operator's results share that "
    "its schema does not say. Empty results share nothing.",
    kinds=(Kind.ALIASES_INPUT, Kind.ALIASES_OUTPUT, Kind.FALSE_SCHEMA),
    later_kinds=(Kind.ALIASES_OUTPUT,),
    symptom="names the result and the tensor that it overlaps",
    judge=judge,
    decides=lambda evidence: evidence.base.comparable,
    of_values=False,
    of_gradients=True,
    second_call=True,
)
