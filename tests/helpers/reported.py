"""Runs as reports see them, and a finding that tries to break out of each format."""

from collections.abc import Iterable
from dataclasses import replace

from kfuzz.core.event import ContractTally, Event, Exited, Note, Notice
from kfuzz.core.finding import Change, Explanation, Finding, Mark, Target
from kfuzz.core.verdict import Failure, Feature, Kind, Signature, State, Verdict
from kfuzz.report.tables import Gathered
from tests.helpers.events import NODE, campaign, finished, saved
from tests.helpers.findings import finding

HOSTILE = "</script><script>alert('x')</script>\"'&|`]]>\x1b[31m"
COMMAND = "kfuzz run kernels/mine.py --seed 7"


def gathered(events: Iterable[Event]) -> Gathered:
    run = Gathered()
    for event in events:
        run.feed(event)
    return run


def hostile() -> Finding:
    """Return a finding whose every text is markup, quotes and control characters."""
    made = finding()
    failure = Failure("C-PRC-01", Kind.VALUE, f"{HOSTILE}\ud800", "out", trace=HOSTILE)
    return replace(
        made,
        signature=Signature(HOSTILE, "C-PRC-01", Kind.VALUE, HOSTILE, HOSTILE),
        target=Target(HOSTILE, HOSTILE),
        operator=HOSTILE,
        failure=failure,
        explanation=Explanation((Feature.TAIL,), (HOSTILE,)),
        history=(Change(State.CONFIRMED, HOSTILE, HOSTILE),),
    )


def known(reason: str = "by design") -> Finding:
    made = finding(state=State.KNOWN, kernel="softmax", mark=Mark(reason))
    signature = replace(made.signature, contract="C-EXC-01")
    failure = replace(made.failure, contract="C-EXC-01")
    return replace(made, signature=signature, failure=failure)


def mixed() -> list[Event]:
    """Return a run with a violation, a known one, one not confirmed, and an error."""
    flaky = replace(
        finding(state=State.FLAKY),
        signature=Signature("softmax", "K-MEM-02", Kind.UNWRITTEN, "out"),
    )
    tallies = {
        "C-PRC-01": ContractTally(Verdict.VIOLATES, 40, 2),
        "C-EXC-01": ContractTally(Verdict.VIOLATES, 7),
        "K-MEM-02": ContractTally(Verdict.UNDER_SPECIFIED, 0, 7),
        "K-VAL-01": ContractTally(Verdict.CONFORMS, 400, 12),
        "C-ORD-03": ContractTally(Verdict.NOT_APPLICABLE),
        "C-PRC-02": ContractTally(Verdict.ERROR),
    }
    found = (finding(), known(), flaky)
    events = campaign(*found)
    events[-2] = finished(
        *found,
        contracts=tallies,
        notes=(Note("reads twice", 3),),
    )
    return [*events, Notice(NODE, "slow"), Exited(1, "", COMMAND)]


def cut_off() -> list[Event]:
    """Return what came of a run that an error ended after it had found something."""
    found = finding(state=State.NEW, explanation=None)
    events = [*campaign()[:2], saved(found, "found")]
    return [*events, Exited(3, "internal error: OSError: no", COMMAND)]
