"""K-MEM-02: every output element is written, nothing stale is read."""

from dataclasses import replace

from kfuzz.contracts.classes.values import value_failure
from kfuzz.contracts.evidence import Evidence
from kfuzz.contracts.language import (
    ContractClass,
    Probe,
    Structure,
)
from kfuzz.contracts.prose import promised
from kfuzz.contracts.reading import (
    accesses,
    comparison,
    follows_poison,
    is_decided,
    miss_of,
    place_of,
)
from kfuzz.core.verdict import Failure, Kind


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
        failure = value_failure("K-MEM-02", found, why=f"depends on {what}")
        return replace(failure, accesses=unwritten)
    # Right under this poison: the two values tell more than what was expected.
    other = float(evidence.runs[Probe.OTHER_POISON].outputs[found.output][found.index])
    where = f"{found.output}[{', '.join(map(str, found.index))}]"
    return Failure(
        contract="K-MEM-02",
        kind=Kind.UNWRITTEN,
        message=f"{where} = {found.got:.9g} or {other:.9g}, depending on {what}",
        output=found.output,
        index=found.index,
        elements=found.elements,
        accesses=unwritten,
    )


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
    judge=judge,
    decides=lambda evidence: is_decided(evidence),
    in_batch=lambda batch: batch.decided,
    of_gradients=True,
)
