"""C-EXC-01: NaN and infinities follow the declared policy."""

from typing import TYPE_CHECKING

from kfuzz.contracts.classes.values import MASK_KINDS, value_failure
from kfuzz.contracts.language import (
    ContractClass,
    Probe,
    Protocol,
    Structure,
    Tolerance,
    ViolationSignature,
)
from kfuzz.core.verdict import Failure

if TYPE_CHECKING:
    from kfuzz.contracts.view import View

ID = "C-EXC-01"


def judge(view: "View") -> Failure | None:
    """Return a difference of NaN or Inf masks on input that is not finite."""
    miss = view.miss
    if miss is None or miss.kind not in MASK_KINDS or view.inputs_finite:
        return None
    return value_failure(ID, miss)


CLASS = ContractClass(
    id=ID,
    title="declared NaN/Inf policy",
    scope='every kernel with nonfinite="propagate", the default',
    precondition="Cases whose inputs hold NaN or infinities.",
    postcondition="NaN, +Inf and -Inf stand exactly where the operator's rules put "
    "them; payload and sign of a NaN are free.",
    tolerance=Tolerance(
        Structure.EXACT,
        "masks are equal, each held against the acceptance",
        "classes are decided from the operator's rules, not by a float64 library "
        "call; undecided where some order of summation overflows",
    ),
    protocol=Protocol(
        probes=(Probe.BASE,),
        on_miss=(),
        confirmation="reproduces",
        text="Exact position masks of NaN, +Inf and -Inf are compared before numbers.",
    ),
    signature=ViolationSignature(
        kinds=tuple(sorted(MASK_KINDS)),
        text="masks differ and the input is not finite",
    ),
    judge=judge,
    decides=lambda view: view.decided > 0 and not view.inputs_finite,
    applies=lambda operator, claims: claims.nonfinite == "propagate",
)
