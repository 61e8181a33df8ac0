"""Memory: what is accessed, written, changed and shared."""

from dataclasses import replace
from typing import Final

from kfuzz.contracts.classes.precision import failure_at, value_failure
from kfuzz.contracts.evidence import Evidence, OpCheck, element
from kfuzz.contracts.language import ContractClass, Probe, Structure
from kfuzz.contracts.prose import promised
from kfuzz.contracts.reading import (
    accesses,
    comparison,
    follows_poison,
    is_decided,
    miss_of,
    place_of,
)
from kfuzz.core.verdict import Access, Failure, Kind

_OUTSIDE: Final = ("before", "after", "slack", "elsewhere")
_DOES: Final = {"load": "load of", "store": "store to", "atomic": "atomic on"}


# K-MEM-01: no access outside what the kernel was given.


def _judge_outside(evidence: Evidence) -> Failure | None:
    """Return the first write outside, or else the first read outside."""
    outside = tuple(a for a in evidence.base.accesses if a.where in _OUTSIDE)
    reads = tuple(a for a in outside if a.access == "load")
    writes = tuple(a for a in outside if a.access != "load")
    if writes:
        return _failure(Kind.WRITE_OUTSIDE, writes)
    for touch in evidence.base.touches:
        if touch.where != "element":
            return Failure(
                contract="K-MEM-01",
                kind=Kind.WRITE_OUTSIDE,
                output=touch.argument,
                message=f"out-of-bounds write to {touch.argument}: {touch.describe()}",
                elements=touch.count,
            )
    for stray in evidence.base.strays:
        return Failure(
            contract="K-MEM-01",
            kind=Kind.WRITE_OUTSIDE,
            message=f"out-of-bounds write to its own allocation: {stray.describe()}",
            elements=stray.count,
        )
    return _failure(Kind.READ_OUTSIDE, reads) if reads else None


def _failure(kind: Kind, accesses: tuple[Access, ...]) -> Failure:
    first = accesses[0]
    does = _DOES.get(first.access, "access to")
    place = f", at {first.line}" if first.line else ""
    if first.program is not None:
        place += f" in program {first.program}"
    outside = f"out-of-bounds {does} {first.memory}: {_where(first)}"
    if first.where == "elsewhere":
        outside = f"out-of-bounds {does} memory that the launch was not given"
    return Failure(
        contract="K-MEM-01",
        kind=kind,
        output=first.argument,
        message=outside + place,
        elements=first.count,
        accesses=accesses,
    )


def _where(access: Access) -> str:
    far = f"{access.distance} element{'s' if access.distance != 1 else ''}"
    match access.where:
        case "after":
            return f"{far} past the end"
        case "before":
            return f"{far} before the start"
        case _:
            return f"in a gap of its strides, {far} from the nearest"


K_MEM_01 = ContractClass(
    **promised("K-MEM-01", Structure.EXACT),
    rank=20,
    level=1,
    kinds=(Kind.WRITE_OUTSIDE, Kind.READ_OUTSIDE),
    unseen={
        Kind.READ_OUTSIDE: "a load outside its arguments",
        Kind.WRITE_OUTSIDE: "this store outside its arguments",
    },
    judge=_judge_outside,
    decides=lambda evidence: evidence.base.returned,
    in_batch=lambda batch: batch.passed,
    of_values=False,
    beyond_bounds=True,
    of_gradients=True,
)


# K-MEM-02: every output element is written, nothing stale is read.


def _judge_unwritten(evidence: Evidence) -> Failure | None:
    """Return the first element that follows what fresh memory held."""
    unwritten = accesses(evidence, "unwritten")
    if miss_of(evidence) is None and not unwritten:
        return None
    found = follows_poison(evidence)
    if found is None:
        return None
    loads = ""
    if unwritten:
        load = unwritten[0]
        loads = f"; the kernel loads uninitialized elements of {load.memory}"
        loads += f", {place}" if (place := place_of(load)) else ""
    what = "uninitialized memory" + loads
    made = comparison(evidence, found.output)
    if made is not None and bool(made.missed[0][found.index]):
        failure = value_failure("K-MEM-02", found, why=f"depends on {what}")
        return replace(failure, accesses=unwritten)
    # Right under this poison: the two values tell more than what was expected.
    other = float(evidence.runs[Probe.OTHER_POISON].outputs[found.output][found.index])
    where = element(found.output, found.index)
    text = f"{where} = {found.got:.9g} or {other:.9g}, depending on {what}"
    return failure_at("K-MEM-02", Kind.UNWRITTEN, text, found, unwritten)


K_MEM_02 = ContractClass(
    **promised("K-MEM-02", Structure.COMPOSITE),
    rank=90,
    level=2,
    core=True,
    on_miss=(Probe.REPEAT, Probe.OTHER_POISON, Probe.OTHER_REPEAT),
    sampled=(Probe.REPEAT, Probe.OTHER_POISON, Probe.OTHER_REPEAT),
    kinds=(Kind.UNWRITTEN,),
    later_kinds=(Kind.UNWRITTEN,),
    unseen={Kind.UNWRITTEN: "what fresh memory held"},
    judge=_judge_unwritten,
    decides=lambda evidence: is_decided(evidence),
    in_batch=lambda batch: batch.decided,
    of_gradients=True,
)


# K-MEM-03: inputs not declared in-place keep their bytes.


def _judge_inputs(evidence: Evidence) -> Failure | None:
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
    mutated = evidence.of(OpCheck).mutated
    if not mutated or mutated in written(evidence):
        return None
    return undeclared("K-MEM-03", f"writes to {mutated}", mutated)


def written(evidence: Evidence) -> tuple[str, ...]:
    """Return what a kernel may write to: its schema alone is false if it does."""
    return (*evidence.declaration.inplace, *evidence.declaration.out)


def undeclared(contract: str, what: str, output: str = "") -> Failure:
    """Return the failure of an operator of which its schema is false."""
    message = f"{what}, which its schema does not declare (opcheck)"
    return Failure(contract, Kind.FALSE_SCHEMA, message, output=output)


K_MEM_03 = ContractClass(
    **promised("K-MEM-03", Structure.EXACT),
    rank=40,
    level=2,
    core=True,
    sampled=(Probe.OPCHECK,),
    kinds=(Kind.INPUT_MODIFIED, Kind.FALSE_SCHEMA),
    judge=_judge_inputs,
    decides=lambda evidence: evidence.base.returned,
    in_batch=lambda batch: batch.passed,
    of_values=False,
    beyond_bounds=True,
    of_gradients=True,
)


# K-MEM-04: results share memory neither with inputs nor with each other.

# The calls whose results are alive together, in order.
_LIVE = (Probe.BASE, Probe.SECOND, Probe.AGAIN)


def _judge_shared(evidence: Evidence) -> Failure | None:
    """Return the first result that is in an input, or in a result still in use."""
    aliased = evidence.of(OpCheck).aliased
    if aliased and not written(evidence):
        false = undeclared("K-MEM-04", aliased)
    else:
        false = None
    return _in_input(evidence) or _in_living_result(evidence) or false


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
    if written(evidence):
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


K_MEM_04 = ContractClass(
    **promised("K-MEM-04", Structure.EXACT),
    rank=50,
    level=3,
    core=True,
    sampled=(Probe.SECOND, Probe.AGAIN, Probe.OPCHECK),
    kinds=(Kind.ALIASES_INPUT, Kind.ALIASES_OUTPUT, Kind.FALSE_SCHEMA),
    later_kinds=(Kind.ALIASES_OUTPUT,),
    judge=_judge_shared,
    decides=lambda evidence: evidence.base.comparable,
    of_values=False,
    of_gradients=True,
    second_call=True,
)
