"""The children that serve one kernel: opened, proved, kept, replaced."""

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from kfuzz.contracts.language import SECOND_CALL_SHARE
from kfuzz.core.budget import SizeBudget
from kfuzz.core.errors import BackendError, BindingError, HarnessError, KfuzzError
from kfuzz.engine.workers.jobs import LOOK_SECONDS, Stopped
from kfuzz.engine.workers.zygotes import OPEN_SECONDS
from kfuzz.evaluation.evaluator import Evaluator, setting_of
from kfuzz.evaluation.worker import (
    CALL_BYTES,
    COMPILING_BYTE,
    PULSE_BYTES,
    STACK_SIGNAL,
    Worker,
)
from kfuzz.execution.calls.compiling import Holder
from kfuzz.execution.device.backends import BACKENDS, Capabilities
from kfuzz.execution.processes.child import Child, InProcess, Zygote
from kfuzz.execution.processes.wire import (
    ChildDied,
    ChildRaised,
    ChildTimeout,
    ZygoteError,
    processor_seconds,
)
from kfuzz.targets.load import LoadedKernel, request_for

CONTRACT: Final = "K-MEM-01"

# A child that serves requests, its pulse, and waiting for it.

# A stack is a few kilobytes, written at once unless the machine is busy.
STACK_SECONDS: Final = 1.0
STACK_BYTES: Final = 8000
# A child that computes for more than this share of the time does not sleep, and is
# given at least this share of its limit in processor time: on a machine with more
# to do than processors a slow kernel is no hang.
_AWAKE: Final = 0.1
_SHARE: Final = 0.5
# A child that prints waits for who reads it. As long as it prints it gets this long.
PRINTING_SECONDS: Final = 120.0

# A call whose programs are interpreted one after the other does not hang as long as
# they come to their turn, up to so many times the limit: a grid may take longer than
# anybody waits.
PROGRESS_FACTOR: Final = 15.0


class CompilesLong(Exception):
    """A request is given up, since something takes too long to compile for it."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"compiling for more than {seconds:.1f} s")
        self.seconds = seconds


class Served:
    """A peer with its pulse: the count of kernel calls that it shares.

    Attributes:
        peer: the child.
        pulse: descriptor of what it shares; None without a process.
        lost: whether it has ended.
        busy: whether a reply is still to come.
        compiled: seconds of the last wait in which something was compiled.
    """

    def __init__(
        self, peer: Child | InProcess, pulse: int | None, expired: Callable[[], bool]
    ) -> None:
        self.peer = peer
        self.pulse = pulse
        self.lost = self.busy = False
        self.compiled = 0.0
        self._expired = expired
        self._pid: int | None = getattr(peer, "pid", None)
        self._since = self._begun = self._now()
        self._progresses = False
        self._printed = 0

    def send(self, message: dict[str, Any]) -> None:
        """Send one request."""
        self._since = self._begun = self._now()
        self.busy = True
        self.peer.send(message)

    def wait(
        self,
        limit: float,
        *,
        on_device: float = math.inf,
        compiling: float = math.inf,
        until: float = math.inf,
    ) -> dict[str, Any]:
        """Return the reply; limits are per kernel call, not per request.

        They begin anew with each program of an interpreted call, within reason.

        Args:
            limit: seconds, of which a child that computes gets half in processor
                time.
            on_device: seconds for which a device alone may be waited for.
            compiling: seconds that compilations may take, all together.
            until: `time.monotonic()` after which nothing is waited for.

        Raises:
            ChildDied, ChildRaised: as the child does.
            ChildTimeout: once a limit has passed.
            CompilesLong: if compilations take longer than they may.
        """
        beat, self._progresses = self._beat(), False
        self.compiled, look = 0.0, min(limit, LOOK_SECONDS)
        while True:
            try:
                reply = self.peer.wait(look)
                self.busy = False
                return reply
            except ChildRaised:
                self.busy = False
                raise
            except ChildTimeout:
                if self._expired():
                    calling = self._calling()
                    self.discard()
                    raise Stopped(calling) from None
                if until < math.inf and time.monotonic() >= until:
                    raise
                now = self._beat()
                if now and now[COMPILING_BYTE]:
                    self.compiled += look
                    if self.compiled >= compiling:
                        raise CompilesLong(self.compiled) from None
                if now[:CALL_BYTES] != beat[:CALL_BYTES]:
                    beat, self._since = now, self._now()
                    self._begun = self._since
                elif now != beat:
                    beat, self._since = now, self._now()
                    _, self._progresses = self._had(
                        PROGRESS_FACTOR * limit, self._begun
                    )
                    if self._progresses:
                        raise
                elif self._is_over(self.limit(limit, on_device=on_device)):
                    raise
            except ChildDied:
                self.discard()
                raise

    def is_in_kernel(self) -> bool:
        """Whether the kernel has the peer's process; True where it cannot be told."""
        beat = self._beat()
        return not beat or beat[1] != Holder.KFUZZ

    def limit(self, limit: float, *, on_device: float) -> float:
        """Return how long what the peer does now may take, see `wait`."""
        if self._progresses:
            return PROGRESS_FACTOR * limit
        beat = self._beat()
        waits = beat and beat[1] == Holder.DEVICE
        return min(limit, on_device) if waits else limit

    def stack(self) -> str:
        """Return where the threads of a busy peer are, in Python; "" if it cannot say.

        It is told to the pulse's file, so that nothing is printed.
        """
        if self.pulse is None or self._pid is None or self.lost:
            return ""
        with contextlib.suppress(OSError):
            os.kill(self._pid, STACK_SIGNAL)
        size, deadline = PULSE_BYTES, time.monotonic() + STACK_SECONDS
        while time.monotonic() < deadline:
            time.sleep(STACK_SECONDS / 20)
            now = os.fstat(self.pulse).st_size
            if now > PULSE_BYTES and now == size:  # it writes no more
                break
            size = now
        told = os.pread(self.pulse, STACK_BYTES, PULSE_BYTES)
        return told.decode(errors="replace")

    def discard(self) -> None:
        """End the peer and forget its pulse."""
        if not self.lost:
            self.lost = True
            self.peer.kill()
            if self.pulse is not None:
                os.close(self.pulse)

    def _calling(self) -> float:
        """Return for how long the kernel has not returned, 0 where it is not called."""
        beat = self._beat()
        if not beat or beat[COMPILING_BYTE] or not self.is_in_kernel():
            return 0.0
        return self._now()[0] - self._since[0]

    def _is_over(self, limit: float) -> bool:
        """Whether a call has had its time."""
        elapsed, over = self._had(limit, self._since)
        before, self._printed = self._printed, getattr(self.peer, "printed", 0)
        prints = self._printed != before and elapsed < PRINTING_SECONDS
        return over and not prints

    def _had(self, limit: float, since: tuple[float, float]) -> tuple[float, bool]:
        """Return how long ago that was, and whether a limit has passed since then.

        It has not where other processes had the processor.
        """
        elapsed, computed = (
            now - then for now, then in zip(self._now(), since, strict=True)
        )
        starved = _AWAKE * elapsed < computed < _SHARE * limit
        return elapsed, elapsed >= limit and not starved

    def _now(self) -> tuple[float, float]:
        """Return the time, and the processor time that the peer has had, in seconds."""
        return time.monotonic(), processor_seconds(self._pid)

    def _beat(self) -> bytes:
        if self.pulse is None or self.lost:
            return b""
        return os.pread(self.pulse, PULSE_BYTES, 0)


def new_pulse() -> int:
    """Return a descriptor of memory that has no name and so leaves no file."""
    descriptor = os.memfd_create("kfuzz-pulse")
    os.truncate(descriptor, PULSE_BYTES)
    return descriptor


def path_of(pulse: int | None) -> str:
    """Return the path at which a child can open a pulse."""
    return "" if pulse is None else f"/proc/{os.getpid()}/fd/{pulse}"


@dataclass(frozen=True)
class Place:
    """Where and how a kernel runs.

    Attributes:
        device: what whoever runs it calls the device, "cpu" or "cuda:0".
        backend: the backend's name.
        budget: limits on sizes.
        classes: ids of the contract classes in force.
        root: the project.
        probes: share of the cases that get the sampled probes.
        seen_as: what the campaign calls the device, where that is another name.
    """

    device: str
    backend: str
    budget: SizeBudget
    classes: tuple[str, ...]
    root: Path
    probes: float = 1 / SECOND_CALL_SHARE
    seen_as: str = ""

    @property
    def label(self) -> str:
        """What messages call the device."""
        return self.seen_as or self.device

    @property
    def has(self) -> Capabilities:
        """What the backend has."""
        return BACKENDS[self.backend].has


@dataclass(frozen=True)
class Anew:
    """Children that import the kernel's file by themselves, where others do not.

    What a file does as it is imported may not hold in a fork of the process that did
    it: a helper's pipe, a number of a process, memory that is shared.

    Attributes:
        fork: begins one.
        differs: whether other children are forked from what has imported the file.
        distrust: has all children import it from now on, for a reason.
        own_zygote: returns one that no other kernel's children are forked from.
    """

    fork: Callable[[], Child]
    differs: Callable[[], bool]
    distrust: Callable[[str], None]
    own_zygote: Callable[[], Zygote]


class Children:
    """Opens children for one kernel: one that stays, others for a question each.

    Attributes:
        loaded: the kernel.
        place: where it runs.
        apart: whether they are processes; else all is done in this one.
        device_name: name of the device, known after the first child is ready.
        flags: settings in the children that change results, known then too.
        unfenced: why a child that was to make fences cannot, "" where it can.
        free: bytes that the device had to give when a child opened; 0 for the host.
        fenced: whether a child has said that it can.

    Every method that waits raises `Stopped` once `expired` says so.
    """

    def __init__(
        self,
        loaded: LoadedKernel,
        place: Place,
        fork: Callable[[], Child] | None,
        expired: Callable[[], bool],
        anew: Anew | None = None,
    ) -> None:
        self.loaded = loaded
        self.place = place
        self.apart = fork is not None
        self.device_name = ""
        self.flags: tuple[str, ...] = ()
        self.unfenced = ""
        self.free = 0
        self.fenced = False
        self._fork = fork
        self._expired = expired
        self._anew = anew
        # By whether they import the kernel's file by themselves.
        self._standing: dict[bool, Served] = {}
        self._spares: dict[bool, list[Served]] = {False: [], True: []}

    @property
    def fences(self) -> bool:
        """Whether arguments may lie beside pages that fault when touched.

        On a GPU whether they can be made is known in the children alone.
        """
        if not self.apart:
            return False
        if self.place.has.asynchronous and CONTRACT not in self.place.classes:
            return False
        return self.place.has.fences

    @property
    def stands(self) -> bool:
        """Whether the one that stays is there."""
        return False in self._standing and not self._standing[False].lost

    def standing(self, *, anew: bool = False, fresh: bool = False) -> Served:
        """Return the one that stays, idle, opened if it is not there.

        One that owes a reply, since an exception came before it was taken, is ended:
        it would be taken for that to the next request.

        Args:
            anew: whether it is to have imported the kernel's file by itself; another
                one stays for that.
            fresh: whether it is to have been asked nothing.
        """
        served = self._standing.get(anew)
        if served is not None and (fresh or served.busy):
            self.replace(served)
        if served is None or served.lost:
            [served] = self.fresh(1, anew=anew)
            self._standing[anew] = served
        return served

    @property
    def forked(self) -> bool:
        """Whether children are forks of a process that imported the kernel's file."""
        return self._anew is not None and self._anew.differs()

    def distrust(self, why: str) -> None:
        """Have all children import the kernel's file from now on."""
        if self._anew is not None:
            self._anew.distrust(why)
        self.close()

    @contextmanager
    def lone(self) -> Iterator[None]:
        """Have children that share no process with other kernels' while the block runs.

        What they are forked from died; whoever's call ended it does so again.

        Raises:
            HarnessError: it dies again.
        """
        fork, anew = self._fork, self._anew
        if anew is None:  # this block is under way
            raise HarnessError(_DEADLY, where=self.loaded.node_id)
        self.close()
        with anew.own_zygote() as zygote:
            self._fork, self._anew = zygote.fork, None
            try:
                self.standing()
                yield
            except ZygoteError as error:
                what = f"{_DEADLY}: {error.what}"
                raise HarnessError(what, where=self.loaded.node_id) from None
            finally:
                self.close()
                self._fork, self._anew = fork, anew

    def fresh(self, count: int, *, anew: bool = False) -> list[Served]:
        """Return children that are ready, those that were prepared first.

        Args:
            count: how many.
            anew: whether each is to have imported the kernel's file by itself.

        Raises:
            BackendError: if a device does no work in a fresh child either.
            BindingError: if the kernel cannot be opened.
            HarnessError: if a child does not get ready.
        """
        started: list[Served] = []
        try:
            while self._spares[anew] and len(started) < count:
                started.append(self._spares[anew].pop(0))
            while len(started) < count:
                started.append(self._start(anew=anew))
            for number, served in enumerate(started):
                ailment = self._ready(served)
                if ailment:
                    started[number] = self._start(anew=anew)
                    served.discard()
                    ailment = self._ready(started[number])
                if ailment:
                    raise _gone(self.place.label, ailment)
        except BaseException:
            for served in started:
                served.discard()
            raise
        return started

    def replace(self, served: Served) -> None:
        """End a child; on a device another one gets ready meanwhile.

        Creating a context and importing the user's file take longer than writing down
        what the last one did.
        """
        stayed = served is self._standing.get(False) and self.apart
        if stayed and self.place.has.asynchronous and not self._expired():
            self.prepare(1)
        served.discard()

    def discard(self, peers: Sequence[Served]) -> None:
        """End several children at once: each takes a while to let go of a device."""
        with ThreadPoolExecutor(max(len(peers), 1)) as pool:
            list(pool.map(Served.discard, peers))

    def prepare(self, count: int, *, anew: bool = False) -> None:
        """Have children get ready, so many that at least `count` wait to be used.

        Args:
            count: how many.
            anew: whether they import the kernel's file by themselves; none are needed
                where all do, or where one that did stays.
        """
        if anew and (not self.forked or True in self._standing):
            return
        while len(self._spares[anew]) < count:
            self._spares[anew].append(self._start(anew=anew))

    def close(self) -> None:
        """End the one that stays, and those that were prepared."""
        spares = [spare for spares in self._spares.values() for spare in spares]
        for served in (*self._standing.values(), *spares):
            served.discard()
        self._standing = {}
        self._spares = {False: [], True: []}

    def _worker(self) -> Worker:
        """Return a worker in this process; it has the kernel at hand."""
        place = self.place
        setting = setting_of(
            place.device, place.budget, place.classes, probes=place.probes
        )
        worker = Worker()
        worker.adopt(Evaluator(self.loaded.kernel, setting))
        return worker

    def _start(self, *, anew: bool = False) -> Served:
        """Return a child that has been told to get ready."""
        fork = self._anew.fork if anew and self._anew is not None else self._fork
        if fork is None:
            served = Served(InProcess(self._worker), None, self._expired)
        else:
            served = Served(fork(), new_pulse(), self._expired)
        place = self.place
        message = {
            "do": "open",
            **request_for(self.loaded.source, place.root, self.loaded.kernel.name),
            "device": place.device,
            "budget": asdict(place.budget),
            "classes": list(place.classes),
            "fences": self.fences,
            "probes": place.probes,
            "pulse": path_of(served.pulse),
        }
        try:
            served.send(message)
        except (ChildDied, ChildTimeout) as fault:
            served.discard()
            raise self._unready(fault) from None
        return served

    def _ready(self, served: Served) -> str:
        """Wait until a child has got ready; return why its device does not work, or "".

        Raises:
            BindingError: if the kernel cannot be opened.
            HarnessError: if the child does not get ready.
        """
        try:
            reply = served.wait(OPEN_SECONDS)
        except (ChildDied, ChildTimeout, ChildRaised) as fault:
            raise self._unready(fault) from None
        if reply.get("ailment"):
            return str(reply["ailment"])
        if "problem" in reply:
            raise BindingError(reply["problem"], where=self.loaded.node_id)
        self.device_name = str(reply["device"])
        self.flags = tuple(map(str, reply.get("flags", ())))
        self.unfenced = str(reply.get("unfenced", ""))
        self.free = int(reply.get("free") or 0)
        self.fenced = self.fences and not self.unfenced
        return ""

    def _unready(self, fault: KfuzzError) -> HarnessError:
        return HarnessError(
            f"the child that should run it did not get ready: {fault}",
            where=self.loaded.node_id,
            fix=_tail(fault),
        )


_DEADLY: Final = "its calls end the process that its children are forked from"


def _gone(device: str, ailment: str) -> BackendError:
    """Return what ends a run whose device works in no fresh child either."""
    return BackendError(
        f"the device does not work any more: {ailment}",
        where=device,
        fix="The findings so far are saved in the corpus, `kfuzz corpus list` shows "
        "them; see what `nvidia-smi` or `rocm-smi` prints, end what else holds the "
        "device or reset it, then run kfuzz again",
    )


def _tail(fault: KfuzzError) -> str:
    tail = getattr(fault, "output_tail", "") or getattr(fault, "traceback", "")
    return str(tail)[-2000:]
