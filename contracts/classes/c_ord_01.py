"""C-ORD-01: any schedule stays within the bound of the declared reduction."""

from kfuzz.contracts.classes.values import changed_failure
from kfuzz.contracts.evidence import Evidence, Permuted
from kfuzz.contracts.language import SECOND_CALL_SHARE, ContractClass, Probe
from kfuzz.contracts.reading import miss_of
from kfuzz.core.verdict import Failure, Kind

ID = "C-ORD-01"


def judge(evidence: Evidence) -> Failure | None:
    """Return what another order of the data shows of a case that conforms."""
    if miss_of(evidence) is not None:
        return None
    made = (
        changed_failure(ID, c, Kind.ORDER_DEPENDENT)
        for c in evidence.of(Permuted).forms
    )
    return next((failure for failure in made if failure is not None), None)


CLASS = ContractClass(
    id=ID,
    rank=210,
    level=3,
    title="any order of the reduction stays within the error bound",
    scope="operators that reduce a dimension",
    precondition="The case conforms, and another order of the reduced dimension "
    "changes its data.",
    postcondition="The results for that order lie in its own acceptance. Where "
    "order does not matter to the operator, both acceptances are one: two results "
    "then differ by at most 2E and one rounding of the store each.",
    sampled=(Probe.PERMUTED,),
    procedure=f"kfuzz's definition. On one in {SECOND_CALL_SHARE} of the conforming "
    "cases the reduced dimension of all arguments that have it is reversed, and then "
    "its halves are swapped. A miss there counts if no class more specific than "
    "K-VAL-01 claims it: a dropped tail stays C-CMP-03's.",
    kinds=(Kind.ORDER_DEPENDENT,),
    later_kinds=(Kind.ORDER_DEPENDENT,),
    symptom="conforms in one order of the same data and not in another, which it names",
    unseen={Kind.ORDER_DEPENDENT: "what it gives for data in another order"},
    judge=judge,
    decides=lambda evidence: bool(evidence.of(Permuted).forms),
    applies=lambda operator, claims: (
        operator.dim is not None or operator.reduced is not None
    ),
    by_occasion=True,
    changed_data=True,
)
