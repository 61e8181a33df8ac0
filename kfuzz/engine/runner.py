"""The campaign's side of one kernel: cases go out, reports come back.

Children die and hang; here that becomes a report like any other. A time-out is
a hang only after max(20 s, 50 x the predicted time) in two fresh children.
Before that it is a suspicion, raised after a shorter limit so that a search does
not stand still.
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from kfuzz.contracts.bench import Bench, setting_of
from kfuzz.core.budget import SizeBudget
from kfuzz.core.codec import decode, encode
from kfuzz.core.errors import BindingError, HarnessError, KfuzzError
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CaseReport, Failure
from kfuzz.engine import faults
from kfuzz.engine.deaths import (
    death_report,
    hang_report,
    is_fault,
    is_hang,
    lost_memory,
)
from kfuzz.engine.served import Served, new_pulse, path_of
from kfuzz.execution.processes import (
    Child,
    ChildDied,
    ChildRaised,
    ChildTimeout,
    InProcess,
)
from kfuzz.targets.load import LoadedKernel
from kfuzz.targets.worker import Worker

HANG_SECONDS: Final = 20.0
HANG_FACTOR: Final = 50.0
# A child's first call may build an extension or compile; that is no hang.
FIRST_SECONDS: Final = 120.0
# A suspicion costs one kill and two fresh children, so it may come early.
SUSPECT_SECONDS: Final = 3.0
SUSPECT_FACTOR: Final = 20.0
# Once a hang is established, its reduction need not wait long; the minimum is
# confirmed under the full limit.
REDUCING_SECONDS: Final = 1.0
# Importing a user's file and, on a device, creating a context.
OPEN_SECONDS: Final = 300.0


@dataclass(frozen=True)
class Place:
    """Where and how a kernel runs.

    Attributes:
        device: torch's name, "cpu" or "cuda:0".
        backend: "cpu", "interpret" or "cuda".
        budget: limits on sizes.
        classes: ids of the contract classes in force.
        root: the project.
    """

    device: str
    backend: str
    budget: SizeBudget
    classes: tuple[str, ...]
    root: Path


class Runner:
    """Runs cases of one kernel in children, replacing them as they die.

    Attributes:
        loaded: the kernel.
        place: where it runs.
        predicted: seconds that a run is expected to take.
        device_name: name of the device, known after the first case.
        hanging: whether a hang of this kernel is established, so that time-outs
            while reducing are short.
        fault: the violation that a fault beside a fence is, once established, so
            that it is not established again for every smaller case.

    Every method that waits raises `Stopped` once `expired` says so.
    """

    def __init__(
        self,
        loaded: LoadedKernel,
        place: Place,
        fork: Callable[[], Child] | None,
        *,
        expired: Callable[[], bool] = lambda: False,
    ) -> None:
        self.loaded = loaded
        self.place = place
        self._expired = expired
        self.predicted = 0.0
        self.device_name = ""
        self.hanging = False
        self.fault: Failure | None = None
        self._passed: dict[str, Any] | None = None
        self._fork = fork
        self._peer: Served | None = None

    def judge(self, case: Case, depth: str) -> CaseReport:
        """Run and judge one case.

        Raises:
            BindingError: if the kernel cannot be opened any more.
            HarnessError: if kfuzz's own side fails.
        """
        message = {"do": "judge", "case": encode(case), "depth": depth}
        report = self._judge(message, self._suspect_limit())
        if self.fault and is_fault(report) and _is_beside(case, self.fault.output):
            return faults.charged(report, self.fault)
        return report

    def judge_fresh(self, case: Case, depths: Sequence[str]) -> list[CaseReport]:
        """Run and judge one case in fresh children, at the full time limit.

        The children run side by side where there are processes. Where a hang is
        in question each is warmed up first, with a case that has returned.

        Args:
            case: the case.
            depths: how far each child judges it, one per child.
        """
        encoded = encode(case)
        messages = [{"do": "judge", "case": encoded, "depth": d} for d in depths]
        if self._fork is None:
            return [self._judge(m, self._hang_limit()) for m in messages]
        reports = self._side_by_side(messages, warm=self.hanging)
        if not any(map(is_fault, reports)):
            return reports
        found = self.locate(case)
        if found is None:
            return reports
        alignment = self.loaded.kernel.declaration.alignment
        failure = faults.measure(*found, self._dies, alignment)
        return [faults.charged(r, failure) if is_fault(r) else r for r in reports]

    @property
    def fences(self) -> bool:
        """Whether arguments may lie beside pages that fault when touched."""
        return self._fork is not None and self.place.backend == "cpu"

    def locate(self, case: Case) -> tuple[Case, Failure] | None:
        """Return the fence to blame for a case that died of a fault, if one is.

        Returns:
            The case with all values explicit and one argument at a fence, and the
            violation.
        """
        if not self.fences:
            return None
        given = self.loaded.kernel.declaration.out
        pinned = case if case.pinned and not given else self.pin(case)
        return faults.locate(pinned, self._dies)

    def _dies(self, case: Case) -> bool:
        """Whether a case ends a fresh child by a fault."""
        message = {"do": "judge", "case": encode(case), "depth": "base"}
        [report] = self._side_by_side([message], warm=False)
        return is_fault(report)

    def pin(self, case: Case) -> Case:
        """Return the case with all values explicit.

        Raises:
            HarnessError: if the values cannot be made.
        """
        peer = self._served()
        peer.send({"do": "pin", "case": encode(case)})
        reply = peer.wait(OPEN_SECONDS)
        return decode(Case, reply["case"], "case")

    def close(self) -> None:
        """End the child."""
        if self._peer is not None:
            self._peer.discard()
            self._peer = None

    def _judge(self, message: dict[str, Any], limit: float) -> CaseReport:
        peer = self._served()
        try:
            peer.send(message)
        except ChildDied:
            # It ended between two requests: nobody's case is to blame.
            self.close()
            peer = self._served()
            peer.send(message)
        start = time.perf_counter()
        report = self._take(peer, limit, established=False)
        if peer.lost:
            self._peer = None
        else:
            self._learn(time.perf_counter() - start)
            self._passed = message
        if report.error == _SUSPECT:
            return self._verify_hang(message)
        return report

    def _verify_hang(self, message: dict[str, Any]) -> CaseReport:
        """Decide a suspicion in two fresh children under the full limit."""
        if self.hanging:
            return hang_report(REDUCING_SECONDS)
        if self._fork is None:
            raise HarnessError("a hang was suspected without a process")
        start = time.perf_counter()
        reports = self._side_by_side([message, message], warm=True)
        spent = time.perf_counter() - start
        hung = [r for r in reports if is_hang(r)]
        if len(hung) == len(reports):
            return hung[0]
        # Only slow: expect that from now on.
        self.predicted = max(self.predicted, spent / SUSPECT_FACTOR)
        return next(r for r in reports if not is_hang(r))

    def _side_by_side(
        self, messages: Sequence[dict[str, Any]], *, warm: bool
    ) -> list[CaseReport]:
        """Judge each message in a fresh child of its own, all at once."""
        peers = [self._open() for _ in messages]
        limit = max(self._hang_limit(), FIRST_SECONDS)
        try:
            if warm and self._passed is not None:
                for peer in peers:
                    peer.send(self._passed)
                for peer in peers:
                    self._take(peer, FIRST_SECONDS, established=True)
                limit = self._hang_limit()
            for peer, message in zip(peers, messages, strict=True):
                peer.send(message)
            return [self._take(peer, limit, established=True) for peer in peers]
        finally:
            for peer in peers:
                peer.discard()

    def _take(self, peer: Served, limit: float, *, established: bool) -> CaseReport:
        """Return the report of the request under way, whatever happens."""
        try:
            reply = peer.wait(limit)
        except ChildTimeout:
            peer.kill()
            if established:
                return hang_report(limit)
            return CaseReport({}, error=_SUSPECT)
        except ChildDied as died:
            return death_report(died)
        except ChildRaised as raised:
            if raised.type == "BindingError":
                raise BindingError(raised.message) from None
            last = raised.traceback.strip().splitlines()[-3:]
            where = f"{raised.type}: {raised.message} ({' '.join(last)})"
            if raised.type == "MemoryError":  # in kfuzz's own part, for want of any
                peer.discard()
                where = f"out of memory: {where}"
            return CaseReport({}, error=where)
        if reply["spent"]:  # its device context can be used no more
            peer.discard()
        report = decode(CaseReport, reply["report"], "report")
        if lost_memory(report):
            peer.discard()
        return report

    def _suspect_limit(self) -> float:
        if self.hanging:
            return max(REDUCING_SECONDS, SUSPECT_FACTOR * self.predicted)
        return max(SUSPECT_SECONDS, SUSPECT_FACTOR * self.predicted)

    def _hang_limit(self) -> float:
        return max(HANG_SECONDS, HANG_FACTOR * self.predicted)

    def _learn(self, seconds: float) -> None:
        self.predicted = max(0.9 * self.predicted, seconds)

    def _served(self) -> Served:
        if self._peer is None or self._peer.lost:
            self._peer = self._open()
        return self._peer

    def _worker(self) -> Worker:
        """Return a worker in this process; it has the kernel at hand."""
        place = self.place
        setting = setting_of(place.device, place.budget, place.classes)
        worker = Worker()
        worker.adopt(Bench(self.loaded.kernel, setting))
        return worker

    def _open(self) -> Served:
        if self._fork is None:
            served = Served(InProcess(self._worker), None, self._expired)
        else:
            served = Served(self._fork(), new_pulse(), self._expired)
        source, place = self.loaded.source, self.place
        message = {
            "do": "open",
            "cwd": os.getcwd(),
            "root": str(place.root),
            "file": str(source.file) if source.file else "",
            "module": source.module,
            "name": self.loaded.kernel.name,
            "device": place.device,
            "budget": asdict(place.budget),
            "classes": list(place.classes),
            "fences": self.fences,
            "pulse": path_of(served.pulse),
        }
        where = self.loaded.target.node_id
        try:
            served.send(message)
            reply = served.wait(OPEN_SECONDS)
        except (ChildDied, ChildTimeout, ChildRaised) as fault:
            served.discard()
            raise HarnessError(
                f"the child that should run it did not get ready: {fault}",
                where=where,
                fix=_tail(fault),
            ) from None
        if "problem" in reply:
            served.discard()
            raise BindingError(reply["problem"], where=where)
        self.device_name = str(reply["device"])
        return served


_SUSPECT: Final = "suspected hang"


def _is_beside(case: Case, argument: str) -> bool:
    return case.edge is not None and case.edge.argument == argument


def _tail(fault: KfuzzError) -> str:
    tail = getattr(fault, "output_tail", "") or getattr(fault, "traceback", "")
    return str(tail)[-2000:]
