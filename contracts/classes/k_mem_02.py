"""K-MEM-02: every output element is written, nothing stale is read."""

from dataclasses import replace
from typing import TYPE_CHECKING

from kfuzz.contracts.classes.values import value_failure
from kfuzz.contracts.language import (
    ContractClass,
    Probe,
    Protocol,
    Structure,
    Tolerance,
    ViolationSignature,
)
from kfuzz.contracts.repeats import accesses, follows_poison, place_of
from kfuzz.core.verdict import Failure, Kind

if TYPE_CHECKING:
    from kfuzz.contracts.view import View

ID = "K-MEM-02"


def judge(view: "View") -> Failure | None:
    """Return the first element that follows what fresh memory held."""
    unwritten = accesses(view, "unwritten")
    if view.miss is None and not unwritten:
        return None
    found = follows_poison(view)
    if found is None:
        return None
    why = "it follows what memory held before the call"
    if unwritten:
        load = unwritten[0]
        why += f"; the kernel loads elements of {load.memory} that nothing wrote"
        why += f", {place}" if (place := place_of(load)) else ""
    return replace(value_failure(ID, found, why=why), accesses=unwritten)


CLASS = ContractClass(
    id=ID,
    title="every output element is written, nothing stale is read",
    scope="every kernel",
    precondition="Every case on which the kernel returns.",
    postcondition="No result depends on what fresh memory held before the call.",
    tolerance=Tolerance(
        Structure.COMPOSITE,
        "the acceptance of K-VAL-01, under either poison",
        "an element is charged if its acceptance differs between two poisons, or it "
        "misses under both with different bits, while repeats under the same poison "
        "agree bit for bit; different bits suffice with determinism declared bitwise, "
        "and where the interpreter saw a load of an element that nothing wrote",
    ),
    protocol=Protocol(
        probes=(Probe.BASE,),
        on_miss=(Probe.REPEAT, Probe.OTHER_POISON, Probe.OTHER_REPEAT),
        confirmation="reproduces",
        sampled=(Probe.REPEAT, Probe.OTHER_POISON, Probe.OTHER_REPEAT),
        text="Memory that the kernel allocates is filled with a poison, NaN or a large "
        "finite number, alternating between cases. After a miss, and after Triton's "
        "interpreter saw a load of an element that nothing wrote, the case runs again "
        "under the same and under the other poison, twice each.",
    ),
    signature=ViolationSignature(
        kinds=(Kind.UNWRITTEN,), text="names the output and the first element"
    ),
    judge=judge,
    decides=lambda view: view.decided > 0,
)
