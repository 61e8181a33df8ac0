"""Hand-made campaigns, for the tests of command line and reports."""

from dataclasses import replace

from kfuzz.core.event import (
    ContractTally,
    Event,
    FindingSaved,
    KernelFinished,
    Progress,
    RunFinished,
    RunStarted,
)
from kfuzz.core.finding import Finding
from kfuzz.core.verdict import State, Tried, Verdict

NODE = "kernels/mine.py::softmax"
TALLIES = {
    "C-PRC-01": ContractTally(Verdict.VIOLATES, 40, 2, 30),
    "K-VAL-01": ContractTally(Verdict.CONFORMS, 400, 12),
    "K-MEM-02": ContractTally(Verdict.UNDER_SPECIFIED, 0, 7),
    "C-EXC-01": ContractTally(Verdict.NOT_APPLICABLE),
}
UNDECIDED = {"K-VAL-01": ContractTally(Verdict.UNDER_SPECIFIED, 0, 7)}


def saved(found: Finding, stage: str, *, is_new: bool = True) -> FindingSaved:
    return FindingSaved(NODE, found, f"corpus/{found.folder}", is_new, stage)


SEARCHED = (
    Tried(211, 40, 30, 2.04, most=256),
    Tried(120, 30, 28, 2.0, 256, 4096),
    Tried(0, 0, 0, 0.0, 4096, 65_536, "no time was left"),
    Tried(0, 0, 0, 0.0, 65_536, None, "the limit on the CPU"),
)
LARGEST = {"M": 65, "N": 4096}


def finished(*findings: Finding, **changes: object) -> KernelFinished:
    made = KernelFinished(
        kernel=NODE,
        operator="softmax",
        cases=412,
        cases_per_s=88.1,
        contracts=TALLIES if findings else {"K-VAL-01": TALLIES["K-VAL-01"]},
        findings=findings,
        paths={f.id: f"corpus/{f.folder}" for f in findings},
        worst_ratio=0.5,
        screened=256,
        bursts=2,
    )
    return replace(made, **changes)


def progress(elapsed_s: float) -> Progress:
    return Progress(NODE, elapsed_s, int(100 * elapsed_s), 0.5, 1, 0)


def campaign(*findings: Finding, interrupted: bool = False) -> list[Event]:
    """Return the events of a run that found these."""
    events: list[Event] = [RunStarted(7, "cpu", (NODE,)), progress(1.0)]
    for found in findings:
        early = replace(found, state=State.NEW, explanation=None)
        events += [saved(early, "found"), saved(found, "done")]
    events += [progress(4.0), progress(5.0), progress(7.5), finished(*findings)]
    return [*events, RunFinished(12.34, interrupted, 7, "cpu")]
