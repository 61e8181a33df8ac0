"""The children that serve one kernel: opened, proved, kept, replaced."""

import contextlib
import math
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from kfuzz.contracts.language import SECOND_CALL_SHARE
from kfuzz.core.budget import SizeBudget
from kfuzz.core.codec import decode
from kfuzz.core.dtypes import DTYPES
from kfuzz.core.errors import (
    BackendError,
    BindingError,
    BuildError,
    HarnessError,
    KfuzzError,
)
from kfuzz.core.finding import Finding
from kfuzz.core.recipe import Case, Edge
from kfuzz.core.verdict import (
    ILLEGAL_ADDRESS,
    Access,
    Allocation,
    CaseReport,
    Failure,
    Kind,
    Verdict,
)
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
from kfuzz.execution.device.backend import Capabilities
from kfuzz.execution.device.backends import BACKENDS
from kfuzz.execution.memory.allocations import EDGE_ALIGNMENT
from kfuzz.execution.processes import (
    Child,
    ChildDied,
    ChildRaised,
    ChildTimeout,
    InProcess,
    Zygote,
    ZygoteError,
)
from kfuzz.execution.processes.wire import FAULT_SIGNALS
from kfuzz.targets.load import LoadedKernel, request_for

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
            self.peer.close()
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


def processor_seconds(pid: int | None) -> float:
    """Return how long a process has computed, 0 where that cannot be told."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            # The name in parentheses may hold anything; utime and stime are the
            # 14th and 15th field (proc(5)).
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def new_pulse() -> int:
    """Return a descriptor of memory that has no name and so leaves no file."""
    descriptor = os.memfd_create("kfuzz-pulse")
    os.truncate(descriptor, PULSE_BYTES)
    return descriptor


def path_of(pulse: int | None) -> str:
    """Return the path at which a child can open a pulse."""
    return "" if pulse is None else f"/proc/{os.getpid()}/fd/{pulse}"


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
    what = died.signal_name or f"exit code {died.exit_code}"
    says = f"ends its process: {what}"
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


CONTRACT: Final = "K-MEM-01"

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
    for edge in _candidates(case, case.edge):
        found = replace(case, edge=edge)
        answer = ask(found)
        if answer.struck:
            return found, _told(found, answer, ask)
        if edge.allocation is not None:
            return None
    if case.edge.argument or not allocations:
        return None
    for number in range(MOST_ALLOCATIONS):
        found = replace(case, edge=Edge(case.edge.side, allocation=number))
        answer = ask(found)
        if answer.struck:
            return found, _told(found, answer, ask)
        if answer.beside is None:  # there are no more
            break
    return None


def _told(case: Case, answer: Answer, ask: Ask) -> Failure:
    """Return the violation of a case that touches its one fence."""
    assert case.edge is not None
    told = ask(replace(case, edge=replace(case.edge, readable=True)))
    if told.wrote:
        return _located(case, "store", answer.beside)
    # Beyond even the fence of a device, which can be read and written then.
    return _located(case, "access" if told.struck else "load", answer.beside)


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

    def strikes_at(steps: int) -> bool:
        assert case.edge is not None
        return ask(replace(case, edge=replace(case.edge, slack=steps * step))).struck

    # It faults without slack: it reaches beyond `low` steps, but not beyond `high`.
    low, high = 0, 1
    while strikes_at(high):
        low, high = high, 2 * high
        if high * step > FARTHEST_BYTES:
            far = f"more than {low * step // size} elements"
            return _failure(case, failure, far, low * step // size + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if strikes_at(middle) else (low, middle)
    gap = _gap(case, alignment, beside)
    least, most = (gap + low * step) // size + 1, (gap + high * step) // size
    far = f"{least} element{'s' if least != 1 else ''}"
    if least == most:
        return _failure(case, failure, far, least)
    far = f"{least} to {most} elements"
    named = case.edge.argument or "it"
    return _failure(case, failure, far, least, f"; {named} is aligned to {step} bytes")


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


def charged(report: CaseReport, failure: Failure) -> CaseReport:
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


def _candidates(case: Case, edge: Edge) -> Iterator[Edge]:
    """Yield edges of one argument each, those on the case's own side first."""
    if edge.argument or edge.allocation is not None:
        yield edge
        return
    other = "start" if edge.side == "end" else "end"
    for side in (edge.side, other):
        for name in (*case.tensors, *case.destinations):
            if case.memory(name).numel:
                yield Edge(side, name)


def _failure(
    case: Case, found: Failure, far: str, distance: int, why: str = ""
) -> Failure:
    """Return a violation with its distance, in words and in elements.

    `why` says what keeps it from being exact.
    """
    after = _is_after(case)
    [access] = found.accesses
    first = access.offset if after else 0  # as `_located` gave it
    return replace(
        found,
        message=_message(case, access, f"{far} ", why),
        accesses=(
            replace(
                access,
                distance=distance,
                offset=first + distance - 1 if after else -distance,
            ),
        ),
    )


def _located(case: Case, touches: str, beside: Allocation | None) -> Failure:
    """Return the violation of a case whose one fence is touched.

    Args:
        case: has that memory alone at a fence.
        touches: "load", "store", or "access" where that is unknown.
        beside: the kernel's own allocation, if it is one.
    """
    assert case.edge is not None
    name, after = case.edge.argument, _is_after(case)
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
        distance=1,
        offset=span if after else -1,
    )
    return Failure(
        contract=CONTRACT,
        kind=Kind.WRITE_OUTSIDE if touches == "store" else Kind.READ_OUTSIDE,
        output=name,
        message=_message(case, access, "", ""),
        accesses=(access,),
    )


def _message(case: Case, access: Access, far: str, why: str) -> str:
    side = "past the end" if _is_after(case) else "before the start"
    verb = _VERBS[access.access]
    return f"out-of-bounds {verb} {access.memory}: {far}{side} (guard page{why})"


def _is_after(case: Case) -> bool:
    return case.edge is not None and case.edge.side == "end"


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
        beside: variables under which a process sees the other devices too.
    """

    device: str
    backend: str
    budget: SizeBudget
    classes: tuple[str, ...]
    root: Path
    probes: float = 1 / SECOND_CALL_SHARE
    seen_as: str = ""
    beside: Mapping[str, str] = field(default_factory=dict)

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
        self.fenced = False
        self._fork = fork
        self._expired = expired
        self._anew = anew
        self._standing: Served | None = None
        self._importing: Served | None = None
        # By whether they import the kernel's file by themselves.
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
        return self._standing is not None and not self._standing.lost

    def standing(self) -> Served:
        """Return the one that stays, idle, opened if it is not there.

        One that owes a reply, since an exception came before it was taken, is ended:
        it would be taken for that to the next request.
        """
        if self._standing is not None and self._standing.busy:
            self.replace(self._standing)
        if self._standing is None or self._standing.lost:
            [self._standing] = self.fresh(1)
        return self._standing

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

    def importing(self, *, fresh: bool = False) -> Served:
        """Return the one that imported the kernel's file by itself, and stays.

        Args:
            fresh: whether it is to have been asked nothing.
        """
        served = self._importing
        if served is not None and (fresh or served.busy or served.lost):
            served.discard()
            served = None
        if served is None:
            served = self.fresh(1, anew=True)[0]
        self._importing = served
        return served

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
        stayed = served is self._standing and self.apart and self.place.has.asynchronous
        if stayed and not self._expired():
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
        if anew and (not self.forked or self._importing is not None):
            return
        while len(self._spares[anew]) < count:
            self._spares[anew].append(self._start(anew=anew))

    def close(self) -> None:
        """End the one that stays, and those that were prepared."""
        spares = [spare for spares in self._spares.values() for spare in spares]
        for served in (self._standing, self._importing, *spares):
            if served is not None:
                served.discard()
        self._standing = self._importing = None
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
            "beside": dict(place.beside),
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
        children: its children.
        predicted: seconds that a run is expected to take.
        hanging: whether a hang of this kernel is established, so that time-outs
            while reducing are short.
        fault: the violation that a fault beside a fence is, once established, so
            that it is not established again for every smaller case.
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
        self.compiled = 0.0
        self._expired = expired
        self._passed: dict[str, Any] | None = None
        # Who prefilters a batch whose answer nobody has asked for yet.
        self._prefiltering: Served | None = None
        self.children = Children(loaded, place, fork, expired, anew)

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
        report = self._take(peer, limit, established=False, patience=patience)
        if not peer.lost:
            self._learn(time.perf_counter() - start)
            self._passed = message
        if report.error == _SUSPECT:
            return self._verify_hang(message)
        return report

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
        if messages[0].get("large") and (len(messages) > 1 or self.children.stands):
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
    ) -> CaseReport:
        """Return the report of the request under way, whatever happens."""
        try:
            reply = self._reply(peer, limit, patience)
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
