"""K-GRD-01: gradients keep the contracts of any kernel."""

from typing import Final

from kfuzz.contracts.classes.values import value_failure
from kfuzz.contracts.evidence import Evidence
from kfuzz.contracts.language import SECOND_CALL_SHARE, ContractClass, Probe
from kfuzz.contracts.reading import is_decided, miss_of
from kfuzz.core.verdict import Failure, Kind

ID = "K-GRD-01"

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
                ID, Kind.RAISES, f"{said}, {words}; once it returns",
                detail=run.raised.type, trace=run.raised.traceback,
            )  # fmt: skip
        if run.metadata is not None:
            problem = run.metadata
            what = f"{problem.message} ({words})"
            return Failure(ID, problem.kind, what, output=problem.output, detail=way)
        miss = miss_of(evidence, probe)
        if miss is not None:
            why = "by itself it is correct"
            return value_failure(ID, miss, why=why, words=f" {words}", detail=way)
    return None


CLASS = ContractClass(
    id=ID,
    rank=220,
    level=1,
    core=True,
    title="gradients are correct in whichever way they are computed",
    scope="gradients by autograd of kernels that declare gradients=",
    precondition="Every case of the operator's domain and the declared one, with "
    "gradients of the outputs in every layout, expanded and empty ones included. "
    "Nothing is promised of values if an argument is not finite.",
    postcondition="Each gradient is the vector-Jacobian product of the operator "
    "within its bound, whichever arguments require one, however often the graph is "
    "used, and whatever other calls happen in between. An argument without a gradient "
    "has gradient 0.",
    on_miss=(Probe.FRIENDLY, Probe.ORDINARY),
    sampled=tuple(_ASKED),
    procedure="kfuzz's definition. The implementation runs under autograd on the "
    "tensors as they lie, and the gradients that are returned are judged as a kernel's "
    "results are, by all classes; what is no matter of memory (K-MEM) or liveness "
    "(K-LIV) is reported here, and the message begins with the class that it would be. "
    "Where several gradients are right, at a kink or among equal maxima, any between "
    f"them is. On one in {SECOND_CALL_SHARE} of the conforming cases, and on pinned "
    "ones, the same gradients are asked for in other ways: of one argument alone, of "
    "two equal results in one graph, after a forward call on other data, twice through "
    "a kept graph, and after the results of the forward call were overwritten, which "
    "autograd may refuse.",
    by_chance=(Kind.NONDETERMINISTIC,),
    symptom="any kind of wrong result; detail names the way to ask for the "
    "gradient, if only that shows it",
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
