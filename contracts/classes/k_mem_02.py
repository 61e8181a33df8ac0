"""K-MEM-02: every output element is written, nothing stale is read."""

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
from kfuzz.core.verdict import Failure, Kind

if TYPE_CHECKING:
    from kfuzz.contracts.view import View

ID = "K-MEM-02"


def judge(view: "View") -> Failure | None:
    """Return the first element whose acceptance follows the poison."""
    if view.miss is None:
        return None
    found = view.follows_poison
    if found is None:
        return None
    return value_failure(ID, found, why="it follows what memory held before the call")


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
        "agree bit for bit; with determinism declared bitwise, different bits suffice",
    ),
    protocol=Protocol(
        probes=(Probe.BASE,),
        on_miss=(Probe.REPEAT, Probe.OTHER_POISON, Probe.OTHER_REPEAT),
        confirmation="reproduces",
        text="Memory that the kernel allocates is filled with a poison, NaN or a large "
        "finite number, alternating between cases. After a miss the case runs "
        "again under the same and under the other poison, each twice.",
    ),
    signature=ViolationSignature(
        kinds=(Kind.UNWRITTEN,), text="names the output and the first element"
    ),
    judge=judge,
    decides=lambda view: view.decided > 0,
)
