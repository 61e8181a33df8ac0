"""Asking the children of one kernel, and waiting: for how long, and what silence means.

Children die and hang; here that becomes a report like any other. A time-out is
a hang only after max(20 s, 50 x the predicted time) in two fresh children.
Before that it is a suspicion, raised after a shorter limit so that a search does
not stand still.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from kfuzz.core.budget import Depth, Spending
from kfuzz.core.codec import decode, encode
from kfuzz.core.errors import BindingError, BuildError, HarnessError
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CaseReport, Failure, Kind, Signature
from kfuzz.engine.workers.children import Anew, Children, Place
from kfuzz.engine.workers.faults import death_report, hang_report, is_hang, lost_memory
from kfuzz.engine.workers.served import CompilesLong, Served
from kfuzz.execution.calls.branches import Branches, Reached
from kfuzz.execution.processes import (
    Child,
    ChildDied,
    ChildRaised,
    ChildTimeout,
    ZygoteError,
)
from kfuzz.targets.load import LoadedKernel

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
# Kinds of failure after which a child is not there any more.
ENDS_CHILD: Final = frozenset({Kind.CRASH, Kind.HANG, Kind.DEVICE_FAULT})


_SUSPECT: Final = "suspected hang"
_OF_KERNEL: Final = {"BindingError": BindingError, "BuildError": BuildError}


class Asking:
    """One kernel's children, asked for reports and replaced as they die.

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
        self._expired = expired
        self._passed: dict[str, Any] | None = None
        # Whether several cases asked for at once have ended a child, or kept it busy.
        self._died = False
        # Who prefilters a batch whose answer nobody has asked for yet.
        self._prefiltering: Served | None = None
        self._children = Children(loaded, place, fork, expired, anew)

    def _send(self, message: dict[str, Any]) -> Served:
        """Send a request to the child that stays, and return it."""
        self._prefiltering = None
        peer = self._children.standing()
        try:
            peer.send(message)
        except (ChildDied, ZygoteError):
            # It ended between two requests: no case caused it.
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
