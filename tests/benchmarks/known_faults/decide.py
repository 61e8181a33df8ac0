"""When a fault counts as detected: two runs of one entry compared."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from tests.benchmarks.known_faults.entry import Entry


class Outcome(StrEnum):
    """What two runs of an entry come to."""

    DETECTED = "detected"
    MISSED = "missed"
    NOT_RUN = "not runnable"


@dataclass(frozen=True)
class Found:
    """A confirmed finding of one run.

    Attributes:
        contract: the contract class that it breaks.
        kind: the kind of its signature.
        output: the name in its signature.
        message: the finding in one line.
        elements: elements of all tensor inputs of the smallest case.
        line: the line of source that it comes from, as `kfuzz run` prints it in JSON.
    """

    contract: str
    kind: str
    output: str
    message: str = ""
    elements: int = 0
    line: dict | None = None

    @property
    def signature(self) -> tuple[str, str, str]:
        """What makes two findings of one kernel the same."""
        return self.contract, self.kind, self.output


@dataclass(frozen=True)
class Ran:
    """One run of `kfuzz run` on one version.

    Attributes:
        findings: the confirmed findings.
        cases: cases that were judged.
        seconds: what the command took.
        first: seconds from the command to the first confirmed finding.
        error: why nothing was judged; "" if something was.
    """

    findings: tuple[Found, ...] = ()
    cases: int = 0
    seconds: float = 0.0
    first: float | None = None
    error: str = ""


@dataclass(frozen=True)
class Decided:
    """What was decided about an entry.

    Attributes:
        outcome: detected, missed or not runnable.
        shown: the findings that show the fault: none has its like on the fixed version.
        unexamined: findings on the fixed version about which the table says nothing.
        false_alarms: findings on the fixed version that the table calls false alarms.
        reason: why the entry is not runnable.
    """

    outcome: Outcome
    shown: tuple[Found, ...] = ()
    unexamined: tuple[Found, ...] = ()
    false_alarms: tuple[Found, ...] = ()
    reason: str = field(default="")


def decide(entry: Entry, faulty: Ran, fixed: Ran) -> Decided:
    """Return what the runs of the faulty and of the fixed version come to.

    *Detected* means a confirmed finding on the faulty version whose signature no
    finding on the fixed version has. A run that judged no case proves nothing: without
    one on the fixed version its silence would count as the absence of the fault. A
    crash of every call of the faulty version is a finding, and is judged.
    """
    for name, ran in (("faulty", faulty), ("fixed", fixed)):
        if ran.error or (not ran.cases and not ran.findings):
            reason = ran.error or "no case was judged"
            return Decided(Outcome.NOT_RUN, reason=f"{name} version: {reason}")
    known = {found.signature for found in fixed.findings}
    shown = tuple(f for f in faulty.findings if f.signature not in known)
    said = {(f.contract, f.kind, f.output): f.fault for f in entry.further}
    unexamined = tuple(f for f in fixed.findings if f.signature not in said)
    alarms = tuple(f for f in fixed.findings if said.get(f.signature) is False)
    outcome = Outcome.DETECTED if shown else Outcome.MISSED
    return Decided(outcome, shown, unexamined, alarms)


def tally(decided: Iterable[Decided]) -> str:
    """Return the counts of a table in one line."""
    every = list(decided)
    ran = [d for d in every if d.outcome is not Outcome.NOT_RUN]
    detected = sum(d.outcome is Outcome.DETECTED for d in ran)
    share = f" ({100 * detected / len(ran):.0f} %)" if ran else ""
    alarms = sum(len(d.false_alarms) for d in every)
    open_ = sum(len(d.unexamined) for d in every)
    return (
        f"{detected} of {len(ran)} runnable entries detected{share}; "
        f"{len(every) - len(ran)} not runnable; {alarms} false alarms; "
        f"{open_} findings on fixed versions not yet examined"
    )
