"""C-PRC-03: subnormal numbers are kept, or flushed, as declared."""

from kfuzz.contracts.classes.values import value_failure
from kfuzz.contracts.evidence import Diagnosis, Evidence, Explanation
from kfuzz.contracts.language import ContractClass, Probe
from kfuzz.contracts.prose import promised
from kfuzz.contracts.reading import (
    is_decided,
    keeps_subnormals,
    miss_of,
    subnormals_matter,
)
from kfuzz.core.results import output_of
from kfuzz.core.verdict import Failure


def judge(evidence: Evidence) -> Failure | None:
    """Return a miss that is a matter of subnormal numbers."""
    miss = miss_of(evidence)
    if (
        miss is None
        or output_of(miss.output) in evidence.operator.integers
        or evidence.of(Diagnosis).shape_bound
    ):
        return None
    mode = evidence.declaration.subnormals
    if keeps_subnormals(evidence):
        why = "a subnormal number, and flush is declared"
    elif evidence.of(Diagnosis).subnormal == "gone":
        why = "gone once subnormal arguments are 0, and once they are normal"
    elif (
        evidence.of(Explanation).flushes
        and evidence.of(Diagnosis).subnormal != "persists"
    ):
        why = f"as a kernel that flushes would give it, {mode} is declared"
    else:
        return None
    return value_failure("C-PRC-03", miss, why=why)


C_PRC_03 = ContractClass(
    **promised("C-PRC-03"),
    rank=150,
    level=2,
    on_miss=(
        Probe.WITHOUT_SUBNORMALS,
        Probe.NORMALISED,
        Probe.FRIENDLY,
        Probe.ORDINARY,
    ),
    judge=judge,
    explained=True,
    decides=lambda evidence: is_decided(evidence) and subnormals_matter(evidence),
    applies=lambda operator, claims: (
        set(operator.integers) != set(map(output_of, operator.outputs))
    ),
    provisional=True,
)
