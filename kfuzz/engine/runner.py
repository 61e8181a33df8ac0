"""The campaign's side of one kernel: cases go out, reports come back.

Children die and hang; here that becomes a report like any other. A time-out is
a hang only after max(20 s, 50 x the predicted time) in two fresh children.
Before that it is a suspicion, raised after a shorter limit so that a search does
not stand still.
"""

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from kfuzz.contracts.bench import Bench, setting_of
from kfuzz.core.budget import SizeBudget
from kfuzz.core.codec import decode, encode
from kfuzz.core.errors import BindingError, HarnessError, KfuzzError
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CaseReport, Failure, Kind, Verdict
from kfuzz.execution.processes import (
    Child,
    ChildDied,
    ChildRaised,
    ChildTimeout,
    InProcess,
)
from kfuzz.targets.load import LoadedKernel
from kfuzz.targets.worker import PULSE_BYTES, Worker

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
# Between two looks whether the run is over.
LOOK_SECONDS: Final = 0.2
# Importing a user's file and, on a device, creating a context.
OPEN_SECONDS: Final = 300.0

_K_LIV: Final = "K-LIV-01"


class Peer(Protocol):
    """A child, or the same interface without a process."""

    def send(self, message: dict[str, Any]) -> None:
        """Send one request."""

    def wait(self, timeout: float | None) -> dict[str, Any]:
        """Return the reply."""

    def close(self) -> None:
        """End it."""

    def kill(self) -> None:
        """End it at once."""


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


class Stopped(Exception):
    """The run's time is over, or a signal ended it, while a child was busy."""


class Runner:
    """Runs cases of one kernel in children, replacing them as they die.

    Attributes:
        loaded: the kernel.
        place: where it runs.
        predicted: seconds that a run is expected to take.
        device_name: name of the device, known after the first case.
        hanging: whether a hang of this kernel is established, so that time-outs
            while reducing are short.

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
        self._passed: dict[str, Any] | None = None
        self._fork = fork
        self._peer: _Served | None = None

    def judge(self, case: Case, depth: str) -> CaseReport:
        """Run and judge one case.

        Raises:
            BindingError: if the kernel cannot be opened any more.
            HarnessError: if kfuzz's own side fails.
        """
        message = {"do": "judge", "case": encode(case), "depth": depth}
        return self._judge(message, self._suspect_limit())

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
        return self._side_by_side(messages, warm=self.hanging)

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
            return _hang_report(REDUCING_SECONDS)
        if self._fork is None:
            raise HarnessError("a hang was suspected without a process")
        start = time.perf_counter()
        reports = self._side_by_side([message, message], warm=True)
        spent = time.perf_counter() - start
        hung = [r for r in reports if _is_hang(r)]
        if len(hung) == len(reports):
            return hung[0]
        # Only slow: expect that from now on.
        self.predicted = max(self.predicted, spent / SUSPECT_FACTOR)
        return next(r for r in reports if not _is_hang(r))

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

    def _take(self, peer: "_Served", limit: float, *, established: bool) -> CaseReport:
        """Return the report of the request under way, whatever happens."""
        try:
            reply = peer.wait(limit)
        except ChildTimeout:
            peer.kill()
            if established:
                return _hang_report(limit)
            return CaseReport({}, error=_SUSPECT)
        except ChildDied as died:
            return _death_report(died)
        except ChildRaised as raised:
            if raised.type == "BindingError":
                raise BindingError(raised.message) from None
            last = raised.traceback.strip().splitlines()[-3:]
            where = f"{raised.type}: {raised.message} ({' '.join(last)})"
            return CaseReport({}, error=where)
        return decode(CaseReport, reply["report"], "report")

    def _suspect_limit(self) -> float:
        if self.hanging:
            return max(REDUCING_SECONDS, SUSPECT_FACTOR * self.predicted)
        return max(SUSPECT_SECONDS, SUSPECT_FACTOR * self.predicted)

    def _hang_limit(self) -> float:
        return max(HANG_SECONDS, HANG_FACTOR * self.predicted)

    def _learn(self, seconds: float) -> None:
        self.predicted = max(0.9 * self.predicted, seconds)

    def _served(self) -> "_Served":
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

    def _open(self) -> "_Served":
        if self._fork is None:
            served = _Served(InProcess(self._worker), None, self._expired)
        else:
            served = _Served(self._fork(), _new_pulse(), self._expired)
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
            "pulse": _path_of(served.pulse),
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


class _Served:
    """A peer with its pulse: the count of kernel calls that it shares."""

    def __init__(
        self, peer: Peer, pulse: int | None, expired: Callable[[], bool]
    ) -> None:
        self.peer = peer
        self.pulse = pulse
        self.lost = False
        self._expired = expired
        self._sent = time.monotonic()

    def send(self, message: dict[str, Any]) -> None:
        self._sent = time.monotonic()
        self.peer.send(message)

    def wait(self, limit: float) -> dict[str, Any]:
        """Return the reply; `limit` is per kernel call, not per request."""
        beat, since = self._beat(), self._sent
        while True:
            try:
                return self.peer.wait(min(limit, LOOK_SECONDS))
            except ChildTimeout:
                if self._expired():
                    self.discard()
                    raise Stopped from None
                now = self._beat()
                if now != beat:
                    beat, since = now, time.monotonic()
                elif time.monotonic() - since >= limit:
                    raise
            except ChildDied:
                self.discard()
                raise

    def kill(self) -> None:
        self.peer.kill()
        self.discard()

    def discard(self) -> None:
        """End the peer and forget its pulse."""
        if not self.lost:
            self.lost = True
            self.peer.kill()
            self.peer.close()
            if self.pulse is not None:
                os.close(self.pulse)

    def _beat(self) -> bytes:
        if self.pulse is None or self.lost:
            return b""
        return os.pread(self.pulse, PULSE_BYTES, 0)


_SUSPECT: Final = "suspected hang"


def _new_pulse() -> int:
    """Return a descriptor of memory that has no name and so leaves no file."""
    descriptor = os.memfd_create("kfuzz-pulse")
    os.truncate(descriptor, PULSE_BYTES)
    return descriptor


def _path_of(pulse: int | None) -> str:
    """Return the path at which a child can open a pulse."""
    return "" if pulse is None else f"/proc/{os.getpid()}/fd/{pulse}"


def _is_hang(report: CaseReport) -> bool:
    return report.failure is not None and report.failure.kind is Kind.HANG


def _hang_report(limit: float) -> CaseReport:
    failure = Failure(
        contract=_K_LIV,
        kind=Kind.HANG,
        message=f"does not return within {limit:.0f} s",
    )
    return CaseReport({_K_LIV: Verdict.VIOLATES}, failure=failure)


def _death_report(died: ChildDied) -> CaseReport:
    what = died.signal_name or f"exit code {died.exit_code}"
    if died.signal_name == signal.SIGKILL.name:
        # Nothing in a kernel sends SIGKILL: the machine ran out of memory.
        return CaseReport({}, error="the child was killed: out of memory?")
    failure = Failure(
        contract=_K_LIV,
        kind=Kind.CRASH,
        detail=what,
        message=f"ends its process: {what}",
        trace=died.output_tail[-4000:],
    )
    return CaseReport({_K_LIV: Verdict.VIOLATES}, failure=failure)


def _tail(fault: KfuzzError) -> str:
    tail = getattr(fault, "output_tail", "") or getattr(fault, "traceback", "")
    return str(tail)[-2000:]
