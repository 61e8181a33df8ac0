"""K-MEM-02: every output element is written, nothing stale is read."""

from dataclasses import replace

from kfuzz.contracts.classes.values import value_failure
from kfuzz.contracts.evidence import Evidence
from kfuzz.contracts.language import (
    SECOND_CALL_SHARE,
    ContractClass,
    Probe,
    Structure,
    Tolerance,
)
from kfuzz.contracts.reading import (
    accesses,
    comparison,
    follows_poison,
    is_decided,
    miss_of,
    place_of,
)
from kfuzz.core.verdict import Failure, Kind

ID = "K-MEM-02"


def judge(evidence: Evidence) -> Failure | None:
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
        failure = value_failure(ID, found, why=f"depends on {what}")
        return replace(failure, accesses=unwritten)
    # Right under this poison: the two values tell more than what was expected.
    other = float(evidence.runs[Probe.OTHER_POISON].outputs[found.output][found.index])
    where = f"{found.output}[{', '.join(map(str, found.index))}]"
    return Failure(
        contract=ID,
        kind=Kind.UNWRITTEN,
        message=f"{where} = {found.got:.9g} or {other:.9g}, depending on {what}",
        output=found.output,
        index=found.index,
        elements=found.elements,
        accesses=unwritten,
    )


CLASS = ContractClass(
    id=ID,
    rank=90,
    level=2,
    core=True,
    title="every output element is written, no uninitialized memory is read",
    scope="every kernel",
    precondition="Every case on which the kernel returns.",
    postcondition="No result depends on the contents of uninitialized memory.",
    tolerance=Tolerance(
        Structure.COMPOSITE,
        "the acceptance of K-VAL-01, under either poison",
        "an element fails if its acceptance differs between two poisons, or it "
        "misses under both with different bits, while repeats under the same poison "
        "agree bit for bit; different bits suffice with determinism declared bitwise, "
        "and where the interpreter saw a load of an element that nothing wrote",
    ),
    on_miss=(Probe.REPEAT, Probe.OTHER_POISON, Probe.OTHER_REPEAT),
    sampled=(Probe.REPEAT, Probe.OTHER_POISON, Probe.OTHER_REPEAT),
    procedure="Memory that the kernel allocates is filled with a poison, NaN or a "
    "large finite number, alternating between cases. After a miss, and after Triton's "
    "interpreter saw a load of an element that nothing wrote, the case runs again "
    "under the same and under the other poison, twice each. On a GPU, before every "
    f"call of one in {SECOND_CALL_SHARE} cases, of the pinned ones and at full depth, "
    "up to 64 MiB that torch's allocator holds free and the shared memory of every "
    "multiprocessor are filled too, with bytes of 0xFF (NaN) or 0x71 (a large finite "
    "number): after the oracle, so that nothing of it is left to be found.",
    kinds=(Kind.UNWRITTEN,),
    later_kinds=(Kind.UNWRITTEN,),
    symptom="names the output and the first element",
    unseen={Kind.UNWRITTEN: "what fresh memory held"},
    judge=judge,
    decides=lambda evidence: is_decided(evidence),
    in_batch=lambda batch: batch.decided,
    of_gradients=True,
)
