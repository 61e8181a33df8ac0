"""C-EXC-02: indices out of bounds follow the declared policy."""

from typing import TYPE_CHECKING

from kfuzz.contracts.classes.values import MASK_KINDS, value_failure
from kfuzz.contracts.language import ContractClass, Structure, Tolerance
from kfuzz.core.verdict import Failure, Kind

if TYPE_CHECKING:
    from kfuzz.contracts.view import View

ID = "C-EXC-02"


def judge(view: "View") -> Failure | None:
    """Return a call that takes a bad index, or what it makes of one."""
    if view.hostile is None or (view.outside and not view.astray):
        return None
    found = view.hostile.describe()
    if view.astray:
        # Kernels meet no index where rows have no elements.
        if not view.base.returned or view.hostile.empty:
            return None
        return Failure(
            contract=ID,
            kind=Kind.INDEX_ACCEPTED,
            output=view.hostile.argument,
            message=f"returns although {found}",
            index=view.hostile.at,
            got=float(view.hostile.value),
        )
    if view.miss is None:
        return None
    policy = view.declaration.out_of_bounds
    return value_failure(ID, view.miss, why=f'{found}, "{policy}" is declared')


def decides(view: "View") -> bool:
    """Whether a case without failure holds a bad index and shows its fate."""
    if view.hostile is None:
        return False
    return not view.base.returned if view.astray else view.decided > 0


CLASS = ContractClass(
    id=ID,
    rank=120,
    level=2,
    title="declared policy for indices out of bounds",
    scope="operators with index parameters, unless out_of_bounds is undefined",
    precondition="Cases in which an index is negative or not below its bound, and is "
    "not the one that the operator ignores; not where rows have no elements.",
    postcondition='An exception under "raise", the default; under "clamp" the result '
    'for the nearest valid index, under "zero" zeros.',
    tolerance=Tolerance(
        Structure.COMPOSITE,
        'the call does not return; under "clamp" and "zero" the operator\'s own bound',
        "a refusal has no tolerance; a clamped index is an index",
    ),
    procedure="About one index tensor in eight holds -1, n, n+1, the least or the "
    'greatest integer, in one place or in all. Under "raise" only faults, writes and '
    "this class are judged there; an exception of any type will do.",
    kinds=(Kind.INDEX_ACCEPTED, Kind.VALUE, *sorted(MASK_KINDS)),
    symptom="names the index, its value and the bound",
    judge=judge,
    decides=decides,
    applies=lambda operator, claims: (
        bool(operator.indices) and claims.out_of_bounds != "undefined"
    ),
    beyond_bounds=True,
)
