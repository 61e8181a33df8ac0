"""K-GRD-01: gradients keep the contracts of any kernel."""

from typing import Final

from kfuzz.contracts.classes.values import value_failure
from kfuzz.contracts.evidence import Evidence
from kfuzz.contracts.language import ContractClass, Probe
from kfuzz.contracts.prose import promised
from kfuzz.contracts.reading import is_decided, miss_of
from kfuzz.core.verdict import Failure, Kind

# How each probe asks, and the word of it in signatures: a `Way`.
_ASKED: Final = {
    Probe.ONE_WANTED: ("alone", "where no other argument requires a gradient"),
    Probe.TWO_RESULTS: ("twice", "as half of the gradient of two equal results"),
    Probe.LATER_BACKWARD: ("later", "after another forward call"),
    Probe.SECOND_BACKWARD: ("again", "the second time through a kept graph"),
    Probe.RESULT_OVERWRITTEN: ("overwritten", "after its result was overwritten"),
}


def judge(evidence: Evidence) -> Failure | None:
    """Return what another way of asking for the same gradients shows."""
    for probe, (way, words) in _ASKED.items():
        run = evidence.runs.get(probe)
        if run is None:
            continue
        if run.raised is not None:
            said = f"raises {run.raised.type}: {run.raised.message}"
            return Failure(
                "K-GRD-01", Kind.RAISES, f"{said}, {words}; once it returns",
                detail=run.raised.type, trace=run.raised.traceback,
            )  # fmt: skip
        if run.metadata is not None:
            problem = run.metadata
            what = f"{problem.message} ({words})"
            return Failure(
                "K-GRD-01", problem.kind, what, output=problem.output, detail=way
            )
        miss = miss_of(evidence, probe)
        if miss is not None:
            why = "by itself it is correct"
            return value_failure(
                "K-GRD-01", miss, why=why, words=f" {words}", detail=way
            )
    return None


K_GRD_01 = ContractClass(
    **promised("K-GRD-01"),
    rank=220,
    level=1,
    core=True,
    on_miss=(Probe.FRIENDLY, Probe.ORDINARY),
    sampled=tuple(_ASKED),
    by_chance=(Kind.NONDETERMINISTIC,),
    judge=judge,
    decides=lambda evidence: (
        evidence.operator.forward is not None and is_decided(evidence)
    ),
    applies=lambda operator, claims: operator.forward is not None,
    in_batch=lambda batch: batch.decided,
    of_gradients=True,
    provisional=True,
    of_candidates=False,
)
