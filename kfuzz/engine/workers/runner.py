"""The campaign's side of one kernel: cases go out, reports come back."""

import math
import re
import signal
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, wraps
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from kfuzz.contracts.classes import CLASSES
from kfuzz.contracts.language import SECOND_CALL_SHARE
from kfuzz.core.budget import Burst, Depth, Screened, SizeBudget
from kfuzz.core.dtypes import DTYPES
from kfuzz.core.errors import BindingError, BuildError, HarnessError
from kfuzz.core.finding import Finding, Fingerprint, host_fingerprint
from kfuzz.core.recipe import Case, Edge
from kfuzz.core.verdict import (
    ILLEGAL_ADDRESS,
    Access,
    Allocation,
    CaseReport,
    Failure,
    Kind,
    Observed,
    Signature,
    Verdict,
)
from kfuzz.engine.workers.children import (
    CONTRACT,
    Anew,
    Children,
    CompilesLong,
    Place,
    Served,
)
from kfuzz.engine.workers.zygotes import OPEN_SECONDS, Backend, budget_for, home_of
from kfuzz.evaluation.locating import Located
from kfuzz.execution.device.backends import BACKENDS
from kfuzz.execution.memory.allocations import EDGE_ALIGNMENT
from kfuzz.execution.processes.child import Child
from kfuzz.execution.processes.wire import (
    FAULT_SIGNALS,
    ChildDied,
    ChildRaised,
    ChildTimeout,
    ZygoteError,
)
from kfuzz.targets.load import LoadedKernel

# What is reported where a child gave no answer: hangs, crashes, lost memory, faults.
#
# A fault beside a fence becomes K-MEM-01: which memory, which way, how far.
#
# A child that dies of SIGSEGV, or whose device reports an illegal address, tells
# nothing but that. What it touched is found out by running the case again, one fresh
# child per question: without fences (if it faults then too, no fence causes it); with
# one argument, or one of the kernel's own allocations, at a fence at a time; with the
# fence readable, which a read survives; with more and more slack before the fence.

_K_LIV: Final = "K-LIV-01"
_DESCRIPTORS: Final = "file descriptors"
# Files of compilers: a call that is in one of them has not come to the kernel yet.
_COMPILING: Final = re.compile(
    r"/triton/(compiler|backends)/[^\n]*compiler\.py|/torch/utils/cpp_extension\.py"
)


def hang_report(limit: float, stack: str = "") -> CaseReport:
    """Return the report of a call that did not return within `limit` seconds.

    One that still compiles does not hang: many kernels are compiled for blocks as large
    as the shape, and compilers take minutes for very large ones.
    """
    if _COMPILING.search(stack):
        return CaseReport({}, unsupported=f"compiling for it takes over {limit:.0f} s")
    failure = Failure(
        contract=_K_LIV,
        kind=Kind.HANG,
        message=f"does not return within {limit:.0f} s",
        trace=stack,
    )
    return CaseReport({_K_LIV: Verdict.VIOLATES}, failure=failure)


def death_report(died: ChildDied) -> CaseReport:
    """Return the report of a call that ended its process."""
    what, says = died.how, f"ends its process: {died.how}"
    if died.disconnected:
        what, says = _DESCRIPTORS, f"closes {_DESCRIPTORS} that are not its own"
    elif died.signal_name == signal.SIGKILL.name:
        # Nothing in a kernel sends SIGKILL: the machine ran out of memory.
        return CaseReport({}, error="the child was killed: out of memory?")
    failure = Failure(
        contract=_K_LIV,
        kind=Kind.CRASH,
        detail=what,
        message=says,
        trace=died.output_tail[-4000:],
    )
    return CaseReport({_K_LIV: Verdict.VIOLATES}, failure=failure)


def is_hang(report: CaseReport) -> bool:
    """Whether the call did not return."""
    return report.failure is not None and report.failure.kind is Kind.HANG


def is_fault(report: CaseReport) -> bool:
    """Whether the call touched memory that is not there.

    It ends its process on the CPU and the use of the device on a GPU. What else ends
    that (an assertion, a misaligned address, a time limit) is no such fault.
    """
    failure = report.failure
    if failure is None:
        return False
    if failure.kind is Kind.DEVICE_FAULT:
        return failure.detail == ILLEGAL_ADDRESS
    return failure.kind is Kind.CRASH and failure.detail in FAULT_SIGNALS


def lost_memory(report: CaseReport) -> bool:
    """Whether memory ran out, of which a child may keep what it got."""
    return "out of memory" in (report.error or report.unsupported or "")


FARTHEST_BYTES: Final = 1 << 18
"""Slack up to which a distance is measured; beyond it is only called far."""

MOST_ALLOCATIONS: Final = 16
"""Of the kernel's own allocations so many are asked about, each by a child."""

OUTSIDE: Final = (Kind.READ_OUTSIDE, Kind.WRITE_OUTSIDE)

# What is known of an access beside a fence, in words and as `Access` says it.
_VERBS: Final = {"store": "write to", "load": "read of", "access": "access to"}


@dataclass(frozen=True)
class Answer:
    """What a fresh child showed of a case.

    Attributes:
        struck: whether it faulted on memory that is not there.
        wrote: whether it is known to write outside what the case has at a fence that
            can be read: on the CPU such a write faults, on a device it is seen.
        beside: the kernel's own allocation that the case names, if it was made.
    """

    struck: bool
    wrote: bool = False
    beside: Allocation | None = None


Ask = Callable[[Case], Answer]


def answer_of(case: Case, report: CaseReport) -> Answer:
    """Return what the report of a case shows."""
    failure, edge = report.failure, case.edge
    struck = is_fault(report)
    wrote = (
        failure is not None
        and edge is not None
        and edge.readable
        and (
            (struck and failure.kind is Kind.CRASH)
            or (failure.kind is Kind.WRITE_OUTSIDE and failure.output == edge.argument)
        )
    )
    return Answer(struck, wrote, report.beside)


def locate(
    case: Case, ask: Ask, *, allocations: bool = False
) -> tuple[Case, Failure] | None:
    """Return what lies at the fence that a case touches, and the violation.

    Args:
        case: pinned, faults where it runs with its edge.
        ask: runs a case in a fresh child.
        allocations: whether the kernel's own allocations lie at fences too.

    Returns:
        The case with that memory alone at a fence, and the violation without a
        distance; None if no fence causes it.
    """
    if case.edge is None or ask(replace(case, edge=None)).struck:
        return None
    for edge in _candidates(case, case.edge, allocations=allocations):
        found = replace(case, edge=edge)
        answer = ask(found)
        if answer.struck:
            return found, _traced(found, answer, ask)
        if edge.allocation is not None and answer.beside is None:
            break  # there are no more
    return None


def _traced(case: Case, answer: Answer, ask: Ask) -> Failure:
    """Return the violation of a case that touches its one fence."""
    assert case.edge is not None
    readable = ask(replace(case, edge=replace(case.edge, readable=True)))
    if readable.wrote:
        return _violation(case, "store", answer.beside)
    # Beyond even the fence of a device, which can be read and written then.
    touches = "access" if readable.struck else "load"
    return _violation(case, touches, answer.beside)


def measure(case: Case, failure: Failure, ask: Ask, alignment: int) -> Failure:
    """Return the violation with its distance.

    Memory keeps its alignment, so that it moves away from the fence in steps of
    that many bytes: the distance is known to within one step.

    Args:
        case: from `locate`.
        failure: from `locate`.
        ask: runs a case in a fresh child.
        alignment: bytes, to which arguments are aligned.
    """
    assert case.edge is not None
    beside = None
    if case.edge.allocation is not None:
        beside = ask(case).beside
        if beside is None:
            return failure
    size, step = _steps(case, alignment, beside)
    found = partial(_violation, case, failure.accesses[0].access, beside)

    def strikes_at(steps: int) -> bool:
        assert case.edge is not None
        return ask(replace(case, edge=replace(case.edge, slack=steps * step))).struck

    # It faults without slack: it reaches beyond `low` steps, but not beyond `high`.
    low, high = 0, 1
    while strikes_at(high):
        low, high = high, 2 * high
        if high * step > FARTHEST_BYTES:
            far = f"more than {low * step // size} elements "
            return found(far, low * step // size + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if strikes_at(middle) else (low, middle)
    gap = _gap(case, alignment, beside)
    least, most = (gap + low * step) // size + 1, (gap + high * step) // size
    far = f"{least} element{'s' if least != 1 else ''} "
    if least == most:
        return found(far, least)
    far = f"{least} to {most} elements "
    named = case.edge.argument or "it"
    return found(far, least, f"; {named} is aligned to {step} bytes")


def _steps(case: Case, alignment: int, beside: Allocation | None) -> tuple[int, int]:
    """Return the bytes per element, and those by which slack moves the memory."""
    assert case.edge is not None
    if beside is not None:
        return beside.itemsize, EDGE_ALIGNMENT
    size = DTYPES[case.memory(case.edge.argument).dtype].itemsize
    return size, max(alignment, size)


def is_flush(case: Case, alignment: int) -> bool:
    """Whether nothing lies between the one argument at a fence and the fence.

    Where something does, no fault says little: an access may have ended there.
    """
    assert case.edge is not None
    return bool(case.edge.argument) and _gap(case, alignment) == 0


def is_beside_page(finding: Finding) -> bool:
    """Whether a finding is a fault that was traced to one fence."""
    edge = finding.case.edge
    if edge is None or finding.signature.kind not in OUTSIDE:
        return False
    if edge.allocation is not None:
        return not finding.signature.output
    return edge.argument == finding.signature.output != ""


def attributed(report: CaseReport, failure: Failure) -> CaseReport:
    """Return the report of a fault as the violation that it is found to be."""
    assert report.failure is not None
    traced = replace(failure, trace=report.failure.trace)
    return CaseReport({failure.contract: Verdict.VIOLATES}, failure=traced)


def _gap(case: Case, alignment: int, beside: Allocation | None = None) -> int:
    """Return the bytes between the memory and its fence, without slack."""
    assert case.edge is not None
    size, step = _steps(case, alignment, beside)
    if beside is not None:
        return 0 if case.edge.side == "start" else -beside.elements * size % step
    spec = case.memory(case.edge.argument)
    if case.edge.side == "start":
        return spec.offset * size
    return -(spec.offset + spec.span) * size % step


def _candidates(case: Case, edge: Edge, *, allocations: bool) -> Iterator[Edge]:
    """Yield edges of one argument each, those on the case's own side first.

    Then, where they lie at fences too, those of the kernel's own allocations.
    """
    if edge.argument or edge.allocation is not None:
        yield edge
        return
    other = "start" if edge.side == "end" else "end"
    for side in (edge.side, other):
        for name in (*case.tensors, *case.destinations):
            if case.memory(name).numel:
                yield Edge(side, name)
    for number in range(MOST_ALLOCATIONS if allocations else 0):
        yield Edge(edge.side, allocation=number)


def _violation(
    case: Case,
    touches: str,
    beside: Allocation | None,
    far: str = "",
    distance: int = 1,
    why: str = "",
) -> Failure:
    """Return the violation of a case whose one fence is touched.

    Args:
        case: has that memory alone at a fence.
        touches: "load", "store", or "access" where that is unknown.
        beside: the kernel's own allocation, if it is one.
        far: how far beyond, in words.
        distance: likewise, in elements.
        why: what keeps that from being exact.
    """
    assert case.edge is not None
    name, after = case.edge.argument, case.edge.side == "end"
    if beside is not None:
        memory, span = beside.memory, beside.elements
    elif name:
        memory, span = name, case.memory(name).span
    else:  # its device was lost before it could be asked about
        memory, span = "memory of its own", 0
    access = Access(
        access=touches,
        argument=name,
        memory=memory,
        where="after" if after else "before",
        distance=distance,
        offset=span + distance - 1 if after else -distance,
    )
    side = f"{far}past the end" if after else f"{far}before the start"
    return Failure(
        contract=CONTRACT,
        kind=Kind.WRITE_OUTSIDE if touches == "store" else Kind.READ_OUTSIDE,
        output=name,
        message=f"out-of-bounds {_VERBS[touches]} {memory}: {side} (guard page{why})",
        accesses=(access,),
    )


# Asking the children of one kernel, and waiting: for how long, and what silence means.
#
# Children die and hang; here that becomes a report like any other. A time-out is
# a hang only after max(20 s, 50 x the predicted time) in two fresh children.
# Before that it is a suspicion, raised after a shorter limit so that a search does
# not stand still.

HANG_SECONDS: Final = 20.0
HANG_FACTOR: Final = 50.0
# A child's first call may build an extension or compile; that is no hang, unless it has
# returned and a device alone is waited for.
FIRST_SECONDS: Final = 120.0
# For an answer that is to come by a given time.
GRACE_SECONDS: Final = 2.0
# A suspicion costs one kill and two fresh children, so it may come early.
SUSPECT_SECONDS: Final = 3.0
SUSPECT_FACTOR: Final = 20.0
# Once a hang is established, its reduction need not wait long; the minimum is
# confirmed under the full limit.
REDUCING_SECONDS: Final = 1.0
HANGS_AT_TIMES: Final = "a call returned in time in one of two fresh children only"
# Kinds of failure after which a child is not there any more.
ENDS_CHILD: Final = frozenset({Kind.CRASH, Kind.HANG, Kind.DEVICE_FAULT})


_SUSPECT: Final = "suspected hang"
_OF_KERNEL: Final = {"BindingError": BindingError, "BuildError": BuildError}


P = ParamSpec("P")
T = TypeVar("T")
# The classes under which a result that misses is charged at the latest.
_OF_VALUES: Final = ("K-VAL-01", "K-GRD-01")


def _survived(
    method: Callable[Concatenate["Runner", P], T],
) -> Callable[Concatenate["Runner", P], T]:
    """Ask once more where what children are forked from died, with one of its own.

    It is shared with the other kernels, and one of these may have ended it.
    """

    @wraps(method)
    def again(self: "Runner", /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(self, *args, **kwargs)
        except ZygoteError:
            with self.children.lone():
                return method(self, *args, **kwargs)

    return again


class Runner:
    """Runs cases of one kernel in children, which are replaced as they die.

    Attributes:
        loaded: the kernel.
        place: where it runs.
        children: its children.
        predicted: seconds that a run is expected to take.
        hanging: whether a hang of this kernel is established, so that time-outs
            while reducing are short.
        fault: the violation that a fault beside a fence is, once established, so
            that it is not established again for every smaller case.
        sought: a kind that one call does not show and that alone is looked for, so
            that a smaller case that conforms gets no calls that cannot show it.
        beyond: whether cases are of more elements or rows than usual, so that one may
            rightly take as long as a hang.
        compiled: seconds of compiling that were waited for with the last answer.

    Every method that waits raises `Stopped` once `expired` says so.
    """

    def __init__(
        self,
        loaded: LoadedKernel,
        place: Place,
        fork: Callable[[], Child] | None,
        *,
        expired: Callable[[], bool] = lambda: False,
        anew: Anew | None = None,
    ) -> None:
        self.loaded = loaded
        self.place = place
        self.predicted = 0.0
        self.hanging = False
        self.fault: Failure | None = None
        self.sought: Kind | None = None
        self.beyond = False
        self.compiled = 0.0
        self._expired = expired
        self._passed: dict[str, Any] | None = None
        # Who prefilters a batch whose answer nobody has asked for yet.
        self._prefiltering: Served | None = None
        self.children = Children(loaded, place, fork, expired, anew)

    def fingerprint(self) -> Fingerprint:
        """Return the environment of the kernel's calls, known after the first case."""
        return host_fingerprint(
            device=self.children.device_name,
            driver=BACKENDS[self.place.backend].versions(self.place.device),
            flags=self.children.flags,
        )

    @property
    def distinguishes(self) -> bool:
        """Whether to find out by further calls which class a violation breaks."""
        return True

    @property
    def records_count(self) -> bool:
        """Whether one recorded miss is a violation that nothing has to repeat.

        A kernel that promises equal bits cannot be right about an input at one time
        and wrong by more than rounding at another.
        """
        return self.loaded.kernel.declaration.determinism == "bitwise"

    def seen_often(self, failure: Failure) -> bool:
        """Whether a failure that ends a call was seen more than once, by itself."""
        return False

    def open(self) -> None:
        """Have the child that stays get ready, if none stands ready.

        Raises:
            BackendError: if the device does no work.
            BindingError: if the kernel cannot be opened.
            HarnessError: if the child does not get ready.
        """
        self.children.standing()

    @_survived
    def judge(
        self, case: Case, depth: Depth, *, patience: float = math.inf
    ) -> CaseReport:
        """Run and judge one case.

        Args:
            case: the case.
            depth: how far it is judged.
            patience: seconds that may be spent on compiling for it.

        Raises:
            BindingError: if the kernel cannot be opened any more.
            BuildError: if something cannot be built for its calls.
            CompilesLong: if compiling for it takes longer.
            HarnessError: if kfuzz's own side fails.
        """
        message = {**_question(case, depth), "sought": self.sought}
        limit = self._hang_limit() if case.large else self._suspect_limit()
        report = self._judge(message, limit, patience)
        if self.fault and is_fault(report) and _is_beside(case, self.fault):
            return attributed(report, self.fault)
        return report

    @_survived
    def diagnose(
        self, case: Case, seconds: float, *, fresh: bool, sizes: bool = True
    ) -> CaseReport | None:
        """Judge a case that fails with the probes that tell the classes apart.

        These call the kernel on other shapes and data. What such a call does, hang or
        crash, says nothing of the case: then its class is left open.

        Args:
            case: the case.
            seconds: how long that may take, in all.
            fresh: whether in a child that was asked nothing before.
            sizes: whether these may be why it fails.

        Returns:
            The report; None where it did not come, or not in time.

        Raises:
            BindingError: if the kernel cannot be opened any more.
            BuildError: if something cannot be built for its calls.
            HarnessError: if kfuzz's own side fails.
        """
        message = {**_question(case, Depth.FULL), "sizes": sizes}
        until = time.monotonic() + seconds
        if fresh and self.children.apart:
            [peer] = self.children.fresh(1)
            peer.send(message)
        else:
            peer = self._send(message)
        try:
            limit = max(self._hang_limit(), FIRST_SECONDS)
            reply = self._reply(peer, limit, until=until)
            report: CaseReport = reply["report"]
            return report
        except (ChildTimeout, ChildDied):
            self.children.replace(peer)
            return None
        except ChildRaised:
            return None
        finally:
            if fresh and self.children.apart:
                peer.discard()

    @_survived
    def judge_fresh(self, case: Case, depths: Sequence[Depth]) -> list[CaseReport]:
        """Run and judge one case in fresh children, at the full time limit.

        The children run side by side where there are processes, on a device in turn
        but for hangs. Where a hang is in question each is warmed up first, with a case
        that has returned.

        Args:
            case: the case.
            depths: how far each child judges it, one per child.
        """
        messages = [_question(case, depth) for depth in depths]
        if not self.children.apart:
            return [self._judge(m, self._hang_limit()) for m in messages]
        reports = self._side_by_side(messages, warm=self.hanging)
        if not self._holds_anew(messages[0], reports):
            reports = self._side_by_side(messages, warm=self.hanging, anew=True)
            if all(report.failure is None for report in reports):
                self.children.distrust("what it does in a fork differs")
        if not any(map(is_fault, reports)):
            return self._settled(reports)
        found = self.locate(case)
        if found is None:
            return reports
        alignment = self.loaded.kernel.declaration.alignment
        failure = measure(*found, self._ask, alignment)
        return [attributed(r, failure) if is_fault(r) else r for r in reports]

    def _holds_anew(
        self, message: dict[str, Any], reports: Sequence[CaseReport]
    ) -> bool:
        """Whether what fails in forks fails where the kernel's file was imported too.

        Nothing is charged for what only a fork of the process that imported it shows.
        A child that imported it and stays is asked, then one that was asked nothing.
        What fails at times is charged only where chance is what is to be shown.
        """
        failure = next((r.failure for r in reports if r.failure is not None), None)
        if failure is None or not self.children.forked or self.hanging:
            return True
        by_chance = failure.kind in CLASSES[failure.contract].by_chance
        if not by_chance and any(r.failure is None for r in reports):
            return True
        signature = failure.signature(self.loaded.name)
        limit = max(self._hang_limit(), FIRST_SECONDS)
        for fresh in (False, True):
            peer = self.children.standing(anew=True, fresh=fresh)
            if self._asked(peer, message, limit).shows(signature):
                return True
        return False

    def _settled(self, reports: Sequence[CaseReport]) -> list[CaseReport]:
        """Return the reports of one case with what they suspect settled, asked once."""
        found = next((r.suspicion for r in reports if r.suspicion), None)
        if found is None or not self.conforms_alone(found.case):
            return list(reports)
        # Equal calls on equal data: whoever suspects anything suspects the same.
        return [
            r.confirmed() if r.suspicion and r.suspicion.case == found.case else r
            for r in reports
        ]

    def conforms_alone(self, case: Case) -> bool | None:
        """Whether a case conforms in a fresh child; None where that cannot be said."""
        if not self.children.apart:
            return None
        report = self._alone(case)
        if report.failure is not None:
            return False
        values = (report.verdicts.get(id) for id in _OF_VALUES)
        return True if Verdict.CONFORMS in values else None

    def prepare(self, children: int) -> None:
        """Have fresh children get ready on a device, for questions soon to come.

        Creating contexts there takes seconds, and meanwhile another child can judge.
        """
        if self.children.apart and self.place.has.asynchronous:
            self.children.prepare(children)
            self.children.prepare(1, anew=True)

    def locate(self, case: Case) -> tuple[Case, Failure] | None:
        """Return the fence to blame for a case that died of a fault, if one is.

        Returns:
            The case with all values explicit and one argument at a fence, and the
            violation.
        """
        if not self.children.fences or self.children.unfenced or case.large:
            return None
        given = self.loaded.kernel.declaration.out
        pinned = case if case.pinned and not given else self.pin(case)
        return locate(pinned, self._ask, allocations=self.place.has.asynchronous)

    def _ask(self, case: Case) -> Answer:
        """Return what a fresh child shows of a case."""
        return answer_of(case, self._alone(case))

    def _alone(self, case: Case) -> CaseReport:
        """Return what a fresh child's first call gives."""
        [report] = self._side_by_side([_question(case, Depth.BASE)], warm=False)
        return report

    def accepts(self, case: Case) -> bool:
        """Whether a case lies in the kernel's domain."""
        kernel = self.loaded.kernel
        return kernel.operator.accepts(case, kernel.declaration)

    @_survived
    def pin(self, case: Case) -> Case:
        """Return the case with all values explicit.

        Raises:
            HarnessError: if the values cannot be made.
        """
        peer = self._send({"do": "pin", "case": case})
        try:
            reply = peer.wait(OPEN_SECONDS)
        except (ChildDied, ChildTimeout, ChildRaised) as fault:
            self.children.replace(peer)
            raise HarnessError(f"the values cannot be made: {fault}") from fault
        made: Case = reply["case"]
        return made

    @_survived
    def generate(self, /, **how: Any) -> list[Any]:
        """Return drawn cases or batches of the kernel.

        Args:
            how: as of `kfuzz.evaluation.worker.Worker.generate`.

        Raises:
            BindingError: if the declaration leaves none.
            HarnessError: if drawing raises, or ends a fresh child, too.
        """
        for last in (False, True):
            peer = self._send({"do": "generate", **how})
            try:
                return list(self._reply(peer, OPEN_SECONDS)["drawn"])
            except ChildRaised as raised:
                what = f"no case can be drawn: {raised.type}: {raised.message}"
                raise HarnessError(what) from raised
            except (ChildDied, ChildTimeout) as fault:
                # What ran before in the child may have done it.
                self.children.replace(peer)
                if last:
                    raise HarnessError(f"no case can be drawn: {fault}") from fault
        raise AssertionError

    @_survived
    def observe(self, case: Case, times: int = 1) -> Observed:
        """Return what equal calls on a case give, unjudged.

        Raises:
            BindingError: if the kernel cannot be opened any more.
            BuildError: if something cannot be built for its calls.
        """
        peer = self._send({"do": "observe", "case": case, "times": times})
        try:
            reply = self._reply(peer, max(FIRST_SECONDS, self._hang_limit()))
        except (ChildTimeout, ChildDied) as fault:
            self.children.replace(peer)
            return Observed(calls=1, problem=f"the call ends its process: {fault}")
        except ChildRaised as raised:
            self.children.replace(peer)
            return Observed(problem=f"{raised.type}: {raised.message}")
        observed: Observed = reply["observed"]
        return observed

    def line_of(
        self, cases: Sequence[Case], signature: Signature, until: float, repair: bool
    ) -> Located:
        """Return the line of source that a failure comes from, and what mends it.

        A fresh child looks for it, and is ended: it runs changed code.

        Args:
            cases: the failing one, with all values explicit, then others.
            signature: of the failure.
            until: `time.monotonic()` at which it ends.
            repair: whether changes are returned that mend it.
        """
        if not self.children.apart:
            return Located(why="it runs in no process of its own")
        [peer] = self.children.fresh(1)
        try:
            seconds = until - time.monotonic()
            peer.send(
                {
                    "do": "locate", "cases": cases, "signature": signature,
                    "seconds": seconds, "root": str(self.place.root),
                    "repair": repair,
                }
            )  # fmt: skip
            reply = self._reply(peer, FIRST_SECONDS, until=until + GRACE_SECONDS)
        except (ChildTimeout, ChildDied, ChildRaised) as error:
            return Located(why=f"the process that looks for it ended: {error}")
        finally:
            peer.discard()
        found: Located = reply["located"]
        return found

    def submit(self, batch: Burst) -> None:
        """Ask for a batch to be prefiltered; `prefiltered` is to be called next.

        If something else is asked for first, the batch and its child are given up.

        Raises:
            BindingError: if the kernel cannot be opened any more.
        """
        self._prefiltering = self._send({"do": "screen", "burst": batch})

    def prefiltered(self, *, patience: float = math.inf) -> Screened:
        """Return what prefiltering the batch submitted last gives.

        Of one that ends its process, or takes too long, only that is known.

        Args:
            patience: seconds that may be spent on compiling for it.

        Raises:
            BindingError: if the operator's oracle or error model is malformed.
            CompilesLong: if compiling for it takes longer.
            HarnessError: if kfuzz's own side fails, or no batch is under way.
        """
        peer, self._prefiltering = self._prefiltering, None
        if peer is None:
            raise HarnessError("no batch is being prefiltered")
        try:
            reply = self._reply_to_batch(peer, patience)
        except ChildTimeout:
            ours = not peer.is_in_kernel()
            self.children.replace(peer)
            if ours:
                what = f"kfuzz took more than {FIRST_SECONDS:.0f} s"
                return Screened(error=what)
            return Screened(lost="it takes too long", spent=True)
        except (ChildDied, ZygoteError) as died:
            self.children.replace(peer)
            return Screened(lost=str(died), spent=True)
        except BuildError as error:
            return Screened(error=f"BuildError: {error.what}")
        except ChildRaised as raised:
            return Screened(error=f"{raised.type}: {raised.message}")
        made: Screened = reply["screened"]
        if made.spent:
            self.children.replace(peer)
        return made

    def close(self) -> None:
        """End the children that are kept."""
        self.children.close()

    def _send(self, message: dict[str, Any]) -> Served:
        """Send a request to the child that stays, and return it."""
        self._prefiltering = None
        peer = self.children.standing()
        try:
            peer.send(message)
        except (ChildDied, ZygoteError):
            # It ended between two requests: no case caused it.
            self.children.close()
            peer = self.children.standing()
            peer.send(message)
        return peer

    def _judge(
        self, message: dict[str, Any], limit: float, patience: float = math.inf
    ) -> CaseReport:
        peer = self._send(message)
        start = time.perf_counter()
        until = time.monotonic() + 2 * patience if self.beyond else math.inf
        report = self._take(
            peer, limit, established=False, patience=patience, until=until
        )
        if not (peer.lost or self.beyond):  # a hang of a small case is to be seen soon
            self._learn(time.perf_counter() - start)
            self._passed = message
        if report.error != _SUSPECT:
            return report
        if self.beyond:
            return CaseReport({}, unsupported="so large a case takes too long")
        return self._verify_hang(message)

    def _verify_hang(self, message: dict[str, Any]) -> CaseReport:
        """Decide a suspicion in two fresh children under the full limit."""
        if self.hanging:
            return hang_report(REDUCING_SECONDS)
        if not self.children.apart:
            raise HarnessError("a hang was suspected without a process")
        start = time.perf_counter()
        anew = self.children.forked
        reports = self._side_by_side([message, message], warm=True, anew=anew)
        spent = time.perf_counter() - start
        hung = [r for r in reports if is_hang(r)]
        if len(hung) == len(reports):
            return hung[0]
        if any(r.unsupported is not None for r in reports):
            return next(r for r in reports if r.unsupported is not None)
        other = next(r for r in reports if not is_hang(r))
        if hung:
            return replace(other, notes=(*other.notes, HANGS_AT_TIMES))
        # Only slow: expect that from now on.
        self.predicted = max(self.predicted, spent / SUSPECT_FACTOR)
        return other

    def _side_by_side(
        self, messages: Sequence[dict[str, Any]], *, warm: bool, anew: bool = False
    ) -> list[CaseReport]:
        """Judge each message in a fresh child of its own, all at once if on the CPU.

        Args:
            messages: requests.
            warm: whether each child is first sent a case that has returned.
            anew: whether each imports the kernel's file by itself.
        """
        if messages[0]["case"].large and (len(messages) > 1 or self.children.stands):
            # The device has memory for one of them.
            self.children.close()
            return [
                report
                for message in messages
                for report in self._side_by_side([message], warm=False, anew=anew)
            ]
        peers = self.children.fresh(len(messages), anew=anew)
        limit = max(self._hang_limit(), FIRST_SECONDS)
        try:
            if warm and self._passed is not None:
                for peer in peers:
                    peer.send(self._passed)
                for peer in peers:
                    self._take(peer, FIRST_SECONDS, established=True)
                limit = self._hang_limit()
            if self.place.has.asynchronous and not warm:
                # In turn: what one leaves in shared memory, the next one finds.
                return [
                    self._asked(peer, message, limit)
                    for peer, message in zip(peers, messages, strict=True)
                ]
            for peer, message in zip(peers, messages, strict=True):
                peer.send(message)
            return [self._take(peer, limit, established=True) for peer in peers]
        finally:
            self.children.discard(peers)

    def _asked(self, peer: Served, message: dict[str, Any], limit: float) -> CaseReport:
        """Return the report of a request that a fresh child is sent."""
        peer.send(message)
        return self._take(peer, limit, established=True)

    def _take(
        self,
        peer: Served,
        limit: float,
        *,
        established: bool,
        patience: float = math.inf,
        until: float = math.inf,
    ) -> CaseReport:
        """Return the report of the request under way, whatever happens."""
        try:
            reply = self._reply(peer, limit, patience, until=until)
        except ChildTimeout:
            ours = not peer.is_in_kernel()  # now: to ask for its stack takes a while
            limit = peer.limit(limit, on_device=self._hang_limit())
            stack = peer.stack() if established else ""
            self.children.replace(peer)
            if established and ours:
                what = f"kfuzz itself took more than {limit:.0f} s; it was at\n{stack}"
                return CaseReport({}, error=what)
            if established:
                return hang_report(limit, stack)
            return CaseReport({}, error=_SUSPECT)
        except ChildDied as died:
            self.children.replace(peer)
            return death_report(died)
        except ChildRaised as raised:
            last = raised.traceback.strip().splitlines()[-3:]
            where = f"{raised.type}: {raised.message} ({' '.join(last)})"
            if raised.type == "MemoryError":
                where = f"out of memory: {where}"
            return CaseReport({}, error=where)
        report: CaseReport = reply["report"]
        if lost_memory(report):
            peer.discard()
        return report

    def _reply(
        self,
        peer: Served,
        limit: float,
        patience: float = math.inf,
        *,
        until: float = math.inf,
    ) -> dict[str, Any]:
        """Wait for a reply and take what it says of its child.

        Raises:
            BindingError, BuildError: as the child does: it would in every other case.
            ChildRaised: what else it raises, in kfuzz's own part.
            ChildDied, ChildTimeout: if there is no reply.
            CompilesLong: if there is none yet since it compiles; its child is ended.
        """
        try:
            reply = peer.wait(
                limit, on_device=self._hang_limit(), compiling=patience, until=until
            )
            self.compiled = peer.compiled
        except CompilesLong:
            self.children.replace(peer)
            raise
        except ChildRaised as raised:
            if raised.type in _OF_KERNEL:
                raise _OF_KERNEL[raised.type](raised.message) from None
            # For want of memory, or of a device that works.
            if raised.type == "MemoryError" or self.place.has.asynchronous:
                self.children.replace(peer)
            raise
        if reply.get("spent"):  # its device context can be used no more
            self.children.replace(peer)
        return reply

    def _reply_to_batch(self, peer: Served, patience: float) -> dict[str, Any]:
        """Wait for what a prefilter says; kfuzz's own work is no hang of the kernel.

        Raises:
            CompilesLong: as `_reply` does.
            ChildTimeout: if the kernel, or kfuzz by far, takes too long.
        """
        deadline = time.monotonic() + FIRST_SECONDS
        while True:
            try:
                return self._reply(peer, self._suspect_limit(), patience)
            except ChildTimeout:
                if peer.is_in_kernel() or time.monotonic() >= deadline:
                    raise

    def _suspect_limit(self) -> float:
        if self.hanging:
            return max(REDUCING_SECONDS, SUSPECT_FACTOR * self.predicted)
        return max(SUSPECT_SECONDS, SUSPECT_FACTOR * self.predicted)

    def _hang_limit(self) -> float:
        return max(HANG_SECONDS, HANG_FACTOR * self.predicted)

    def _learn(self, seconds: float) -> None:
        self.predicted = max(0.9 * self.predicted, seconds)


def _question(case: Case, depth: Depth) -> dict[str, Any]:
    """Return the request to judge a case."""
    return {"do": "judge", "case": case, "depth": depth}


def _is_beside(case: Case, fault: Failure) -> bool:
    """Whether a case has at a fence what an established fault is about, alone."""
    edge = case.edge
    if edge is None or edge.argument != fault.output:
        return False
    return bool(edge.argument) or edge.allocation is not None


# What runs the cases of a kernel of a run: on which device, and in which children.


def runner_of(
    loaded: LoadedKernel,
    backend: Backend,
    *,
    root: Path,
    expired: Callable[[], bool],
    classes: Collection[str] = frozenset(CLASSES),
    budget: SizeBudget | None = None,
    device: str = "",
    probes: float = 1 / SECOND_CALL_SHARE,
    quiet: Callable[[], bool] = lambda: False,
) -> Runner:
    """Return what runs the cases of a kernel, the kernel's own if it brings one.

    Args:
        loaded: the kernel.
        backend: where its children are forked.
        root: the project.
        expired: whether the run is over.
        classes: ids of the contract classes in force.
        budget: limits on sizes; those of the kernel on the backend by default.
        device: one of the backend's; its first by default.
        probes: share of the cases that get the sampled probes.
        quiet: tells whether what the children print is dropped.
    """
    device = device or backend.devices[0]
    place = Place(
        device=backend.called(device),
        backend=backend.name,
        budget=budget or budget_for(loaded.kernel, backend.name),
        classes=tuple(sorted(classes)),
        root=root,
        probes=probes,
        seen_as=device,
    )
    if (own := getattr(loaded, "runner", None)) is not None:
        made: Runner = own(place, expired=expired)
        return made
    fork = anew = None
    if backend.isolated:
        home = home_of(loaded.source, root)
        fork = partial(backend.fork, quiet, device=device, home=home, expired=expired)
        anew = Anew(
            partial(backend.fork, quiet, device=device),
            partial(backend.shares, home, device),
            partial(backend.distrust, home),
            partial(backend.own_zygote, device),
        )
    return Runner(loaded, place, fork, expired=expired, anew=anew)
