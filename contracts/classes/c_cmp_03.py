"""C-CMP-03: correct over the declared shape class, not only friendly shapes."""

from typing import TYPE_CHECKING

from kfuzz.contracts.classes.values import value_failure
from kfuzz.contracts.language import ContractClass, Probe
from kfuzz.core.verdict import Failure

if TYPE_CHECKING:
    from kfuzz.contracts.view import View

ID = "C-CMP-03"


def judge(view: "View") -> Failure | None:
    """Return a miss that is gone at every friendly shape, contiguous."""
    if view.miss is None or view.friendly != "gone":
        return None
    return value_failure(ID, view.miss, why="gone at friendly shapes")


CLASS = ContractClass(
    id=ID,
    rank=170,
    level=1,
    core=True,
    title="correct over the declared shape class, not only friendly shapes",
    scope="every kernel",
    precondition="Every shape and layout of the declared class; one failing shape "
    "violates, there is no pass rate.",
    postcondition="The result lies in the operator's acceptance.",
    on_miss=(Probe.FRIENDLY,),
    procedure="kfuzz's definition: a shape is friendly to a kernel if it is one of a "
    "ladder of powers of two, contiguous, and the kernel passes allclose (rtol = atol "
    "= 1e-2) on normal data there. The failing values, tiled to each friendly shape, "
    "must pass at all of them, and there must be one.",
    symptom="any kind of wrong value; vanishes at every friendly shape",
    judge=judge,
    decides=lambda view: view.decided > 0 and not view.friendly_shape,
    in_batch=lambda batch: 0 if batch.friendly else batch.decided,
    provisional=True,
)
