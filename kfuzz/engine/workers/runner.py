"""The campaign's side of one kernel: cases go out, reports come back.

Children die and hang; here that becomes a report like any other. A time-out is
a hang only after max(20 s, 50 x the predicted time) in two fresh children.
Before that it is a suspicion, raised after a shorter limit so that a search does
not stand still.
"""

import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from typing import (
    Any,
    Concatenate,
    Final,
    ParamSpec,
    Protocol,
    TypeVar,
    runtime_checkable,
)

from kfuzz.contracts.classes import CLASSES
from kfuzz.contracts.language import SECOND_CALL_SHARE
from kfuzz.core.arithmetic_facts import Observed
from kfuzz.core.branches import Branches, Reached
from kfuzz.core.budget import Depth, SizeBudget, Spending
from kfuzz.core.burst import Burst, Screened
from kfuzz.core.codec import decode, encode
from kfuzz.core.errors import BindingError, BuildError, HarnessError
from kfuzz.core.fingerprint import Fingerprint, host_fingerprint
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CaseReport, Failure, Kind, Signature, Verdict
from kfuzz.engine.workers import faults
from kfuzz.engine.workers.backend import Backend, budget_for
from kfuzz.engine.workers.children import Anew, Children, Place
from kfuzz.engine.workers.compile_ahead import CompileAhead, Slots
from kfuzz.engine.workers.faults import (
    death_report,
    hang_report,
    is_fault,
    is_hang,
    lost_memory,
)
from kfuzz.engine.workers.served import CompilesLong, Served
from kfuzz.engine.workers.templates import OPEN_SECONDS, home_of
from kfuzz.execution.device.backends import BACKENDS
from kfuzz.execution.processes import (
    Child,
    ChildDied,
    ChildRaised,
    ChildTimeout,
    ZygoteError,
)
from kfuzz.targets.load import LoadedKernel

P = ParamSpec("P")
T = TypeVar("T")

HANG_SECONDS: Final = 20.0
HANG_FACTOR: Final = 50.0
# A child's first call may build an extension or compile; that is no hang, unless it has
# returned and a device alone is waited for.
FIRST_SECONDS: Final = 120.0
# A suspicion costs one kill and two fresh children, so it may come early.
SUSPECT_SECONDS: Final = 3.0
SUSPECT_FACTOR: Final = 20.0
# Once a hang is established, its reduction need not wait long; the minimum is
# confirmed under the full limit.
REDUCING_SECONDS: Final = 1.0
HANGS_AT_TIMES: Final = "a call returned in time in one of two fresh children only"
# The classes under which a result that misses is charged at the latest.
_OF_VALUES: Final = ("K-VAL-01", "K-GRD-01")
# Kinds of failure after which a child is not there any more.
ENDS_CHILD: Final = frozenset({Kind.CRASH, Kind.HANG, Kind.DEVICE_FAULT})


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
            with self._children.lone():
                return method(self, *args, **kwargs)

    return again


class Runner:
    """Runs cases of one kernel in children, replacing them as they die.

    Attributes:
        loaded: the kernel.
        place: where it runs.
        predicted: seconds that a run is expected to take.
        hanging: whether a hang of this kernel is established, so that time-outs
            while reducing are short.
        reached: the branches of the kernel's own file that are known to have run.
        fault: the violation that a fault beside a fence is, once established, so
            that it is not established again for every smaller case.
        spending: what the last answer took in its child; None where none came.
        ahead: children that compile for the cases to come, if there are any.

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
        self.reached = Reached()
        self.fault: Failure | None = None
        self.spending: Spending | None = None
        self.ahead: CompileAhead | None = None
        self._expired = expired
        self._passed: dict[str, Any] | None = None
        # Whether several cases asked for at once have ended a child, or kept it busy.
        self._died = False
        # Who prefilters a batch whose answer nobody has asked for yet.
        self._prefiltering: Served | None = None
        self._children = Children(loaded, place, fork, expired, anew)

    @property
    def device_name(self) -> str:
        """Name of the device, known after the first case."""
        return self._children.device_name

    def fingerprint(self) -> Fingerprint:
        """Return the environment of the kernel's calls, known after the first case."""
        return host_fingerprint(
            device=self.device_name,
            driver=BACKENDS[self.place.backend].versions(self.place.device),
            flags=self._children.flags,
        )

    @property
    def fences(self) -> bool:
        """Whether arguments may lie beside pages that fault when touched."""
        return self._children.fences

    @property
    def unfenced(self) -> str:
        """Why a child that was to make fences cannot, "" where it can."""
        return self._children.unfenced

    @property
    def fenced(self) -> bool:
        """Whether a child has said that its arguments lie beside such pages."""
        return self._children.fenced

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
        self._children.standing()

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
        message = _question(case, depth)
        limit = self._hang_limit() if case.large else self._suspect_limit()
        report = self._judge(message, limit, patience)
        if self.fault and is_fault(report) and _is_beside(case, self.fault):
            return faults.charged(report, self.fault)
        return report

    @_survived
    def judge_each(
        self, cases: Sequence[Case], depth: Depth, until: Signature
    ) -> list[CaseReport]:
        """Judge cases in order, up to the first that shows a symptom.

        They go out in one message where none of them is expected to end the child.

        Returns:
            The reports of all of them, or of the first ones up to that case.

        Raises:
            BindingError: if the kernel cannot be opened any more.
            HarnessError: if kfuzz's own side fails.
        """
        reports = self._judge_together(cases, depth, until)
        while len(reports) < len(cases):
            if reports and reports[-1].shows(until):
                break
            reports.append(self.judge(cases[len(reports)], depth))
        return reports

    @_survived
    def diagnose(self, case: Case, seconds: float, *, fresh: bool) -> CaseReport | None:
        """Judge a case that fails with the probes that tell the classes apart.

        These call the kernel on other shapes and data. What such a call does, hang or
        crash, says nothing of the case: then its class is left open.

        Args:
            case: the case.
            seconds: how long that may take, in all.
            fresh: whether in a child that was asked nothing before.

        Returns:
            The report; None where it did not come, or not in time.

        Raises:
            BindingError: if the kernel cannot be opened any more.
            BuildError: if something cannot be built for its calls.
            HarnessError: if kfuzz's own side fails.
        """
        message, until = _question(case, Depth.FULL), time.monotonic() + seconds
        if fresh and self._children.apart:
            [peer] = self._children.fresh(1)
            peer.send(message)
        else:
            fresh, peer = False, self._send(message)
        try:
            limit = max(self._hang_limit(), FIRST_SECONDS)
            reply = self._reply(peer, limit, until=until)
            return decode(CaseReport, reply["report"], "report")
        except (ChildTimeout, ChildDied):
            if not fresh:
                self._children.replace(peer)
            return None
        except ChildRaised:
            return None
        finally:
            if fresh:
                self._children.discard([peer])

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
        if not self._children.apart:
            return [self._judge(m, self._hang_limit()) for m in messages]
        reports = self._side_by_side(messages, warm=self.hanging)
        if not self._holds_anew(messages[0], reports):
            reports = self._side_by_side(messages, warm=self.hanging, anew=True)
            if all(report.failure is None for report in reports):
                self._children.distrust("what it does in a fork differs")
        if not any(map(is_fault, reports)):
            return self._settled(reports)
        found = self.locate(case)
        if found is None:
            return reports
        alignment = self.loaded.kernel.declaration.alignment
        failure = faults.measure(*found, self._ask, alignment)
        return [faults.charged(r, failure) if is_fault(r) else r for r in reports]

    def _holds_anew(
        self, message: dict[str, Any], reports: Sequence[CaseReport]
    ) -> bool:
        """Whether what fails in forks fails where the kernel's file was imported too.

        Nothing is charged for what only a fork of the process that imported it shows.
        A child that imported it and stays is asked, then one that was asked nothing.
        What fails at times is charged only where chance is what is to be shown.
        """
        failure = next((r.failure for r in reports if r.failure is not None), None)
        if failure is None or not self._children.forked or self.hanging:
            return True
        by_chance = failure.kind in CLASSES[failure.contract].by_chance
        if not by_chance and any(r.failure is None for r in reports):
            return True
        signature = failure.signature(self.loaded.name)
        limit = max(self._hang_limit(), FIRST_SECONDS)
        for fresh in (False, True):
            peer = self._children.importing(fresh=fresh)
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
            r.convicted() if r.suspicion and r.suspicion.case == found.case else r
            for r in reports
        ]

    def conforms_alone(self, case: Case) -> bool | None:
        """Whether a case conforms in a fresh child; None where that cannot be said."""
        if not self._children.apart:
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
        if self._children.apart and self.place.has.asynchronous:
            self._children.prepare(children)
            self._children.prepare(1, anew=True)

    def locate(self, case: Case) -> tuple[Case, Failure] | None:
        """Return the fence to blame for a case that died of a fault, if one is.

        Returns:
            The case with all values explicit and one argument at a fence, and the
            violation.
        """
        if not self.fences or self.unfenced or case.large:
            return None
        given = self.loaded.kernel.declaration.out
        pinned = case if case.pinned and not given else self.pin(case)
        return faults.locate(pinned, self._ask, allocations=self.place.has.asynchronous)

    def _ask(self, case: Case) -> faults.Answer:
        """Return what a fresh child shows of a case."""
        return faults.answer_of(case, self._alone(case))

    def _alone(self, case: Case) -> CaseReport:
        """Return what a fresh child's first call gives."""
        [report] = self._side_by_side([_question(case, Depth.BASE)], warm=False)
        return report

    def admits(self, case: Case) -> bool:
        """Whether a case lies in the kernel's domain."""
        kernel = self.loaded.kernel
        return kernel.operator.admits(case, kernel.declaration)

    @_survived
    def pin(self, case: Case) -> Case:
        """Return the case with all values explicit.

        Raises:
            HarnessError: if the values cannot be made.
        """
        peer = self._send({"do": "pin", "case": encode(case)})
        try:
            reply = peer.wait(OPEN_SECONDS)
        except (ChildDied, ChildTimeout, ChildRaised) as fault:
            self._children.replace(peer)
            raise HarnessError(f"the values cannot be made: {fault}") from fault
        return decode(Case, reply["case"], "case")

    @_survived
    def observe(self, case: Case, times: int = 1) -> Observed:
        """Return what equal calls on a case give, unjudged.

        Raises:
            BindingError: if the kernel cannot be opened any more.
            BuildError: if something cannot be built for its calls.
        """
        peer = self._send({"do": "observe", "case": encode(case), "times": times})
        try:
            reply = self._reply(peer, max(FIRST_SECONDS, self._hang_limit()))
        except (ChildTimeout, ChildDied) as fault:
            self._children.replace(peer)
            return Observed(calls=1, problem=f"the call ends its process: {fault}")
        except ChildRaised as raised:
            self._children.replace(peer)
            return Observed(problem=f"{raised.type}: {raised.message}")
        return decode(Observed, reply["observed"], "observed")

    def submit(self, batch: Burst) -> None:
        """Ask for a batch to be prefiltered; `prefiltered` is to be called next.

        If something else is asked for first, the batch and its child are given up.

        Raises:
            BindingError: if the kernel cannot be opened any more.
        """
        self._prefiltering = self._send({"do": "screen", "burst": encode(batch)})

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
            self._children.replace(peer)
            if ours:
                return Screened(error=f"kfuzz took more than {FIRST_SECONDS:.0f} s")
            return Screened(lost="it takes too long", spent=True)
        except (ChildDied, ZygoteError) as died:
            self._children.replace(peer)
            return Screened(lost=str(died), spent=True)
        except BuildError as error:
            return Screened(error=f"BuildError: {error.what}")
        except ChildRaised as raised:
            return Screened(error=f"{raised.type}: {raised.message}")
        made = decode(Screened, reply["screened"], "screened")
        if made.spent:
            self._children.replace(peer)
        return made

    def compile_ahead(self, slots: Slots) -> CompileAhead | None:
        """Return what compiles for the cases to come; None where nothing can.

        Args:
            slots: how many children may.
        """
        if not (self._children.apart and self.place.has.asynchronous):
            return None
        self.ahead = CompileAhead(self._children.beside, slots, self._expired)
        return self.ahead

    def close(self) -> None:
        """End the children that are kept."""
        if self.ahead is not None:
            self.ahead.close()
        self._children.close()

    def _send(self, message: dict[str, Any]) -> Served:
        """Send a request to the child that stays, and return it."""
        self._prefiltering = None
        peer = self._children.standing()
        try:
            peer.send(message)
        except (ChildDied, ZygoteError):
            # It ended between two requests: nobody's case is to blame.
            self._children.close()
            peer = self._children.standing()
            peer.send(message)
        return peer

    def _judge(
        self, message: dict[str, Any], limit: float, patience: float = math.inf
    ) -> CaseReport:
        peer = self._send(message)
        start = time.perf_counter()
        report = self._take(peer, limit, established=False, patience=patience)
        if not peer.lost:
            self._learn(time.perf_counter() - start)
            self._passed = message
        if report.error == _SUSPECT:
            return self._verify_hang(message)
        return report

    def _judge_together(
        self, cases: Sequence[Case], depth: Depth, until: Signature
    ) -> list[CaseReport]:
        """Return what one message for several cases brings, as far as it goes.

        Nothing where each has to be asked for alone: who ended the child, or kept it
        busy, does not show in an answer that does not come.
        """
        mortal = self._died or self.hanging or self.fault or until.kind in ENDS_CHILD
        if len(cases) < 2 or mortal or any(case.large for case in cases):
            return []
        peer = self._send(
            {
                "do": "judge_each",
                "cases": [encode(case) for case in cases],
                "depth": depth,
                "until": encode(until),
            }
        )
        start = time.perf_counter()
        try:
            reply = self._reply(peer, self._suspect_limit())
        except (ChildTimeout, ChildDied):
            self._children.replace(peer)
            self._died = True
            return []
        except (BuildError, ChildRaised):
            return []
        reports = [decode(CaseReport, r, "reports") for r in reply["reports"]]
        self._learn((time.perf_counter() - start) / len(reports))
        if lost_memory(reports[-1]):
            peer.discard()
        return reports

    def _verify_hang(self, message: dict[str, Any]) -> CaseReport:
        """Decide a suspicion in two fresh children under the full limit."""
        if self.hanging:
            return hang_report(REDUCING_SECONDS)
        if not self._children.apart:
            raise HarnessError("a hang was suspected without a process")
        start = time.perf_counter()
        anew = self._children.forked
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
        if messages[0].get("large") and (len(messages) > 1 or self._children.stands):
            # The device has memory for one of them.
            self._children.close()
            return [
                report
                for message in messages
                for report in self._side_by_side([message], warm=False, anew=anew)
            ]
        peers = self._children.fresh(len(messages), anew=anew)
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
            self._children.discard(peers)

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
    ) -> CaseReport:
        """Return the report of the request under way, whatever happens."""
        try:
            reply = self._reply(peer, limit, patience)
        except ChildTimeout:
            ours = not peer.is_in_kernel()  # now: to ask for its stack takes a while
            limit = peer.limit(limit, on_device=self._hang_limit())
            stack = peer.stack() if established else ""
            self._children.replace(peer)
            if established and ours:
                what = f"kfuzz itself took more than {limit:.0f} s; it was at\n{stack}"
                return CaseReport({}, error=what)
            if established:
                return hang_report(limit, stack)
            return CaseReport({}, error=_SUSPECT)
        except ChildDied as died:
            self._children.replace(peer)
            return death_report(died)
        except ChildRaised as raised:
            last = raised.traceback.strip().splitlines()[-3:]
            where = f"{raised.type}: {raised.message} ({' '.join(last)})"
            if raised.type == "MemoryError":
                where = f"out of memory: {where}"
            return CaseReport({}, error=where)
        report = decode(CaseReport, reply["report"], "report")
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
        """Wait for a reply and take what it says of branches and of its child.

        Raises:
            BindingError, BuildError: as the child does: it would in every other case.
            ChildRaised: what else it raises, in kfuzz's own part.
            ChildDied, ChildTimeout: if there is no reply.
            CompilesLong: if there is none yet since it compiles; its child is ended.
        """
        told = None
        self.spending = None
        try:
            reply = peer.wait(
                limit, on_device=self._hang_limit(), compiling=patience, until=until
            )
            if reply.get("branches") is not None:
                told = decode(Branches, reply["branches"], "branches")
            if reply.get("spending") is not None:
                self.spending = decode(Spending, reply["spending"], "spending")
        except CompilesLong:
            self._children.replace(peer)
            raise
        except ChildRaised as raised:
            if raised.type in _OF_KERNEL:
                raise _OF_KERNEL[raised.type](raised.message) from None
            # For want of memory, or of a device that works.
            if raised.type == "MemoryError" or self.place.has.asynchronous:
                self._children.replace(peer)
            raise
        finally:
            self.reached.take(told)
        if reply.get("spent"):  # its device context can be used no more
            self._children.replace(peer)
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


@runtime_checkable
class RunsItself(Protocol):
    """A loaded kernel that brings what runs its cases."""

    def runner(self, place: Place, *, expired: Callable[[], bool]) -> Runner:
        """Return what runs its cases."""


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
    quiet: Callable[[], bool] | None = None,
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
        device=backend.on.alone(device) if backend.isolated else device,
        backend=backend.name,
        budget=budget or budget_for(loaded.kernel, backend.name),
        classes=tuple(sorted(classes)),
        root=root,
        probes=probes,
        seen_as=device,
        beside=backend.beside(device),
    )
    if isinstance(loaded, RunsItself):
        return loaded.runner(place, expired=expired)
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


_SUSPECT: Final = "suspected hang"
_OF_KERNEL: Final = {"BindingError": BindingError, "BuildError": BuildError}


def _question(case: Case, depth: Depth) -> dict[str, Any]:
    """Return the request to judge a case."""
    question = {"do": "judge", "case": encode(case), "depth": depth}
    return {**question, "large": True} if case.large else question


def _is_beside(case: Case, fault: Failure) -> bool:
    """Whether a case has at a fence what an established fault is about, alone."""
    edge = case.edge
    if edge is None or edge.argument != fault.output:
        return False
    return bool(edge.argument) or edge.allocation is not None
