"""`Sandbox`: foreign code behind a supervisor, for a campaign that never imports it.

What is and what is not contained is told by `Sandbox.containment`, measured on this
machine; what the code can and cannot do to a verdict stands in `inside`.
"""

import contextlib
import math
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode

from kfuzz.core.errors import (
    BackendError,
    DecodeError,
    End,
    Ended,
    HarnessError,
    KernelEnded,
    KfuzzError,
)
from kfuzz.core.features import HOME
from kfuzz.execution.calls.results import RaisedElsewhere
from kfuzz.execution.device.backends import named
from kfuzz.execution.memory.allocations import GuardedAllocations
from kfuzz.execution.memory.poison import Poison
from kfuzz.execution.processes import wire
from kfuzz.execution.processes.child import (
    EXIT_SECONDS,
    SEND_SECONDS,
    Child,
    Zygote,
    signal_name,
)
from kfuzz.features.judge.sandbox.contain import (
    WAYS,
    Containment,
    Facts,
    Limits,
    close_to_others,
    describe,
    is_stopped,
    killed_for_memory,
    open_to_others,
    scrubbed,
    taken_below,
)
from kfuzz.features.judge.sandbox.meeting import PLAIN, Perturbations, Surroundings
from kfuzz.features.judge.sandbox.runner import program
from kfuzz.features.judge.sandbox.supervisor import SERVE
from kfuzz.features.judge.sandbox.wire import (
    WORDS,
    ArgumentRooms,
    Broken,
    Carrier,
    Entry,
    Given,
    Returned,
    packed,
    read_exception,
    returned,
    stand_in,
)
from kfuzz.numerics.run import Raised

MESSAGE_BYTES: Final = 1 << 20
"""Longest message that foreign code may send: a description, never data."""

# To end a child and all that it started; more than `supervisor.KILL_SECONDS`.
_SUPERVISOR_SECONDS: Final = 40.0
# Between two looks at what a request takes.
_LOOK_SECONDS: Final = 0.05
# How long a supervisor may be stopped.
_STOPPED_SECONDS: Final = 1.0


class Kept:
    """A child, and the supervisor that watches it.

    Attributes:
        ended: how it came to its end, None while it lives.
        facts: what contains it, once it is ready.
        asked: whether something was asked ahead, and its answer not yet taken.
    """

    def __init__(
        self, zygote: Zygote, scratch: Path, limits: Limits, start: Mapping[str, Any]
    ) -> None:
        """Start it without waiting.

        Args:
            zygote: what it is forked from.
            scratch: a folder of its own, made here.
            limits: what it may take.
            start: what the supervisor has to know of it besides.

        Raises:
            ZygoteError: no process can be had.
        """
        self.ended: Ended | None = None
        self.facts: Facts | None = None
        self.asked = False
        self._limits = limits
        self._scratch = scratch
        self._wrong: str | None = None
        self._killed = killed_for_memory()
        # It reports by itself that it is ready: the first answer.
        self._sent, self._answered = 1, 0
        self._deadline = time.monotonic() + limits.open_seconds
        self._cpu: float | None = None
        self._stopped = math.inf  # since when its supervisor is
        scratch.mkdir(parents=True)
        Path(start["cache"]).mkdir(parents=True, exist_ok=True)
        self._child: Child = zygote.fork(_print_nothing)
        ours, theirs = socket.socketpair()
        self._channel = wire.Channel(ours, limit=MESSAGE_BYTES)
        weakref.finalize(self, ours.close)
        message = {**start, "limits": asdict(limits), "scratch": str(scratch)}
        with theirs:
            try:
                self._child.send(message, [theirs.fileno()])
            except (wire.ChildDied, wire.ChildTimeout, wire.ZygoteError) as fault:
                self._lost(fault)

    def ready(self) -> str:
        """Wait until it is contained; return why its device does not work, or ""."""
        if self._wrong is None:
            answer = self._next()
            if isinstance(answer, Ended):
                last = answer.output.strip()[-500:]
                self._wrong = f"the child {answer.text} ({last})"
            else:
                self._wrong = str(answer["ailment"])
                self.facts = Facts(**answer["facts"])
        return self._wrong

    def ask(
        self, message: Mapping[str, Any], seconds: float, given: Sequence[int]
    ) -> None:
        """Ask a child, ready or not, without waiting for its answer.

        Args:
            message: what is asked.
            seconds: how long the child may take.
            given: descriptors to hand to it.
        """
        self.asked = True
        if self.ended is None and self._answered == self._sent:
            self._look()
            # One that was ended closed its connection.
            if self.ended is None and self._is_readable():
                self._unasked()
        if self.ended is not None:
            return
        self._sent += 1
        self._cpu = None
        now = time.monotonic()
        waiting = self._answered + 1 < self._sent
        self._deadline = (self._deadline if waiting else now) + seconds
        own = {"number": self._sent, "given": len(given)}
        try:
            self._channel.send({**message, **own}, SEND_SECONDS, given)
        except wire.WireTimeout:
            self._end(End.HANG, "", "does not read what it is asked")
        except wire.WireClosed:
            self._gone()

    def answer(self) -> dict[str, Any] | Ended:
        """Return the answer to what was asked, or the end that came instead."""
        self.asked = False
        self.ready()
        return self._next()

    def _next(self) -> dict[str, Any] | Ended:
        began = time.monotonic()
        while self.ended is None:
            left = self._deadline - time.monotonic()
            try:
                answer = self._channel.receive(max(min(left, _LOOK_SECONDS), 0))
            except wire.WireTimeout:
                self._look()
                if self.ended is None and left <= 0:
                    seconds = self._deadline - began
                    self._end(End.HANG, "", f"does not return within {seconds:.0f} s")
            except wire.WireClosed:
                self._gone()
            except wire.WireError as error:
                self._end(End.PROTOCOL, "protocol", f"sends no message: {error.what}")
            else:
                self._answered += 1
                if answer.pop("number", None) == self._answered:
                    return answer
                self._unasked()
        return self.ended

    def _is_readable(self) -> bool:
        poll = select.poll()  # select takes no descriptor above 1,023
        poll.register(self._channel.fileno(), select.POLLIN)
        return bool(poll.poll(0))

    def _unasked(self) -> None:
        """End one that sent, or closed, without being asked."""
        try:
            self._channel.receive(0)
        except wire.WireClosed:
            self._gone()
        except wire.WireError:
            pass
        if self.ended is None:
            self._end(End.PROTOCOL, "protocol", "answers what it was not asked")

    def _look(self) -> None:
        """End it if what it prints, or what a request takes, is past a limit."""
        limits, now = self._limits, time.monotonic()
        if not is_stopped(self._child.pid):
            self._stopped = math.inf
        elif now - (since := min(self._stopped, now)) < _STOPPED_SECONDS:
            self._stopped = since  # a debugger or profiler may look at it
        else:
            self._lost("it was stopped")  # it watches no more
            return
        if self._child.printed > limits.output_bytes:
            text = f"prints more than {limits.output_bytes >> 20} MiB"
            self._end(End.OUTPUT, "output limit", text)
            return
        cpu = taken_below(self._child.pid).cpu
        self._cpu = cpu if self._cpu is None else self._cpu
        if cpu - self._cpu > limits.cpu_seconds:
            text = f"takes more than {limits.cpu_seconds:g} s of processor time"
            self._end(End.CPU, "processor time limit", text)

    def _gone(self) -> None:
        """Note the end of one that closed its connection."""
        reply = self._ask_to_end(EXIT_SECONDS)
        if reply is None:
            return
        code = reply["code"]
        if reply["passed"]:
            told = reply["passed"]
            self._note(End(told["end"]), told["detail"], told["text"])
        elif code is None:
            text = "closes its connection and goes on"
            self._note(End.PROTOCOL, "protocol", text)
        elif code == 128 + signal.SIGKILL and killed_for_memory() > self._killed:
            text = "is killed by the system for want of memory"
            self._note(End.MEMORY, "machine", text)
        else:
            detail = signal_name(128 - code) if code > 128 else f"exit code {code}"
            self._note(End.CRASH, detail, f"ends its process: {detail}")

    def _end(self, end: End, detail: str, text: str) -> None:
        """End it, for good."""
        if self._ask_to_end(0.0) is not None:
            self._note(end, detail, text)

    def _ask_to_end(self, patience: float) -> dict[str, Any] | None:
        """Have its supervisor end it; return how it ended, None if that is noted."""
        try:
            self._child.wait(_SUPERVISOR_SECONDS)  # for what it was started with
            reply = self._child.request({"patience": patience}, _SUPERVISOR_SECONDS)
        except (wire.ChildDied, wire.ChildTimeout, wire.ZygoteError) as fault:
            self._lost(fault)
            return None
        except wire.ChildRaised as raised:
            raise HarnessError(f"the supervisor failed: {raised.what}") from None
        self._child.close()
        return reply

    def _note(self, end: End, detail: str, text: str) -> None:
        self.ended = Ended(end, detail, text, self._child.output_tail)

    def _lost(self, fault: object) -> None:
        """Note the end of a child whose supervisor is gone.

        A supervisor does not end by itself: its child found and ended it, unless that
        sees no process but its own, or the system ran out of memory meanwhile.
        """
        if self.facts is not None and self.facts.pids:
            text = f"is given up: another process ended its supervisor ({fault})"
            self._note(End.UNAVAILABLE, "supervisor", text)
        else:
            text = f"ends its supervisor process ({fault})"
            self._note(End.CRASH, "supervisor ended", text)
        if killed_for_memory() > self._killed:
            text = "ends as the system kills processes for want of memory"
            self._note(End.MEMORY, "machine", text)
        with contextlib.suppress(HarnessError):
            self._child.kill()

    def close(self) -> None:
        """End it and remove its scratch folder."""
        with contextlib.suppress(KfuzzError):
            self._child.wait(_SUPERVISOR_SECONDS)
        with contextlib.suppress(HarnessError):
            self._child.close()
        self._channel.close()
        shutil.rmtree(self._scratch, ignore_errors=True)


def _print_nothing(piece: bytes) -> None:
    """Take what foreign code prints: it is nobody's to read but where it ends."""


class Built(NamedTuple):
    """What a file's class was built to, or its function.

    Attributes:
        state: names of the parameters and buffers of a module.
        loaded: names of those that the entry's weights were loaded into.
        alike: names of the other weights that it holds all the same, elsewhere.
    """

    state: tuple[str, ...] = ()
    loaded: tuple[str, ...] = ()
    alike: tuple[str, ...] = ()


_UNBUILT: Final = Built()


@dataclass(frozen=True)
class Called:
    """What one request came to: an answer, an exception or an end.

    Attributes:
        returned: what a call returned, in the campaign's memory; None if it did not.
        raised: the exception that left it.
        ended: how the child came to its end; the next call has a fresh one.
        seconds: from the request to the answer, by the campaign's clock.
        built: what importing the file and building what it defines gave.
    """

    returned: Returned | None = None
    raised: Raised | None = None
    ended: Ended | None = None
    seconds: float = 0.0
    built: Built = _UNBUILT

    @property
    def spoilt(self) -> bool:
        """Whether its child is of no further use: it may keep what it took."""
        raised = self.raised
        lost = raised is not None and (raised.memory or bool(raised.fault))
        return lost or self.ended is not None


def _read(
    answer: dict[str, Any] | Ended, made: Callable[[dict[str, Any]], Called]
) -> Called:
    """Return what an answer says; one that is none counts as an end.

    Args:
        answer: the child's, or how it ended.
        made: reads one that is no exception.

    Raises:
        torch.OutOfMemoryError: the campaign has no memory for the results.
    """
    if isinstance(answer, Ended):
        return Called(ended=answer)
    try:
        if "raised" in answer:
            return Called(raised=read_exception(answer["raised"]))
        return made(answer)
    except torch.OutOfMemoryError:
        raise
    # A dtype without a size, or strides that overlap: whatever torch says of those.
    except (
        Broken, DecodeError, ArithmeticError, KeyError, OSError, RuntimeError,
        TypeError, ValueError,
    ) as error:  # fmt: skip
        text = f"does not report what it built or returned: {error}"
        return Called(ended=Ended(End.PROTOCOL, "protocol", text))


def _built(answer: dict[str, Any]) -> Called:
    told = [answer[part] for part in ("state", "loaded", "alike")]
    return Called(built=Built(*(tuple(str(n)[:500] for n in t) for t in told)))


# What a process needs that children are forked from; the first one runs it.
_ROOTS: Final = (
    "kfuzz.execution.processes.zygote",
    "kfuzz.features.judge.sandbox.inside",
    "kfuzz.features.judge.sandbox.supervisor",
)
_CLOSE: Final = "kfuzz.features.judge.sandbox.contain:close_to_others"
_SMALL_RESULTS: Final = 64 << 20
_RESULT_FACTOR: Final = 8
# Seconds that a call may go on once nobody waits for it: it may be about to return.
_AFTERWARDS: Final = 0.5
# How much longer than the longest first call so far one may take.
_FIRSTS: Final = 10.0


def zygote_for(device: str, *, output: wire.Sink | None = None) -> Zygote:
    """Return what children for a device are forked from; a context manager.

    They see that device alone, as their first: much of what runs on a GPU takes the
    current one for the one that its arguments lie on.

    Args:
        device: as `Sandbox` is given it.
        output: takes what kfuzz's own processes print, not the foreign code.
    """
    backend = named(device)
    seen = backend.only([device], os.environ)
    env = scrubbed(os.environ, added={**backend.environment, **seen})
    begin = partial(
        Zygote, SERVE, env=env, output=output, program=partial(program, HOME, _ROOTS),
        preload=("torch", "triton", "__main__:load_all", _CLOSE),
    )  # fmt: skip
    if "kfuzz" not in sys.prefix:
        return begin()
    # A link of another name: every file of torch's would name the judge.
    folder = tempfile.mkdtemp()
    link = os.path.join(folder, "env")
    os.symlink(sys.prefix, link)
    zygote = begin(prefix=link)
    weakref.finalize(zygote, _remove_in, os.getpid(), folder)
    return zygote


def _remove_in(pid: int, folder: str) -> None:
    if os.getpid() == pid:  # not in a fork
        shutil.rmtree(folder, ignore_errors=True)


class Sandbox(wire.Closing):
    """Runs what an entry defines in contained children, one at a time.

    A context manager. While it is open other processes of the same user cannot trace
    this one. Not for use by two threads at once.

    Args:
        entry: what to import and build; None to look at the containment alone.
        device: "cpu", "cuda:0" and so on, or "interpret" for Triton's interpreter.
        limits: what a child may take.
        ways: which of containing it are tried, the first given up first.
        zygote: what children are forked from, as `zygote_for` makes it; the caller's to
            close. One of its own by default.
        hidden: files and folders that the code must not read.
        lingers: whether `close` returns before its processes are gone.

    Attributes:
        device: what torch here calls the device of the calls.
        limits: what a child may take.
        always_open: names of the measures that hold nowhere.
        used: how many children have been the one that is called.
        until: returns the `time.monotonic()` after which nobody waits for a call.
        cut_off: calls that were given up at that moment.
    """

    always_open = frozenset({"reading", "device"})

    def __init__(
        self,
        entry: Entry | None,
        *,
        device: str,
        limits: Limits | None = None,
        ways: Sequence[str] = WAYS,
        zygote: Zygote | None = None,
        hidden: Sequence[Path] = (),
        lingers: bool = False,
    ) -> None:
        self._hidden = [path.resolve() for path in hidden]
        self._entry = entry
        self._device_name, backend = device, named(device)
        self._gpu = not backend.has.on_host
        self.device = torch.device(device if backend.has.native else backend.torch_type)
        self.limits = limits or Limits()
        self.used = self._forked = 0
        self.cut_off = 0
        self.until: Callable[[], float] = lambda: math.inf
        self._ending: list[threading.Thread] = []
        self._ways = tuple(ways)
        self._zygote = zygote
        self._own_zygote = zygote is None
        self._lingers = lingers
        self._root: Path | None = None
        self._kept: Kept | None = None
        # Children that get ready meanwhile.
        self._spares: list[Kept] = []
        self._opened: Called | None = None
        self._containment: Containment | None = None
        self._called_before = False
        self._first_took = 0.0
        self._given = Given()

    @property
    def containment(self) -> Containment:
        """What contains the child; starts one if there is none.

        Raises:
            HarnessError: none can be started.
        """
        if self._containment is None:
            self._contained()
        assert self._containment is not None
        return self._containment

    @property
    def alive(self) -> bool:
        """Whether there is a child that was not found ended."""
        return self._kept is not None and self._kept.ended is None

    @property
    def warm(self) -> bool:
        """Whether the present child has answered a call."""
        return self.alive and self._called_before

    def start(self) -> Called:
        """Return how the entry opens, in the present child or a fresh one.

        Raises:
            HarnessError: no child can be started.
            BackendError: the device does not work in one.
        """
        if self.alive and self._opened is not None:
            return self._opened
        if self._entry is None:
            raise HarnessError("a sandbox without an entry makes no calls")
        kept = self._contained()
        if not kept.asked:
            self._open(self._entry, [kept])
        opened = _read(kept.answer(), _built)
        self._called_before = False
        if opened.ended is not None:
            self.fresh()
        else:
            self._opened = opened
        return opened

    def call(
        self,
        tensors: Sequence[Tensor],
        *,
        poison: Poison = Poison.NAN,
        around: Surroundings = PLAIN,
        predicted: float = 0.0,
    ) -> Called:
        """Call the entry on tensors, in the child; what it writes to them comes back.

        A tensor that kfuzz placed travels with the guard zones around it, any other
        with its whole storage; each keeps strides, offset and alignment.

        Args:
            tensors: the arguments, on `device`; memory for a multiple of their bytes is
                shared for results.
            poison: what memory holds that it allocates.
            around: what surrounds the call.
            predicted: seconds that the call is expected to take.

        Raises:
            HarnessError: no child can be started, or an argument cannot be carried.
            OSError: there is no shared memory.
        """
        opened = self.start()
        if opened.ended is not None or opened.raised is not None:
            return opened
        assert self._kept is not None
        rooms = ArgumentRooms(tensors, self.limits.result_bytes)
        most = max(_SMALL_RESULTS, _RESULT_FACTOR * rooms.nbytes)
        nbytes = min(most, self.limits.result_bytes)
        with (
            Carrier("arguments", rooms.nbytes) as carried,
            Carrier("results", nbytes) as results,
        ):
            rooms.write(carried)
            request = {
                "do": "call",
                "rooms": rooms.told,
                "tensors": rooms.tensors,
                "poison": str(poison),
                "around": asdict(around),
            }
            began = time.monotonic()
            patience = self.patience(predicted)
            left = max(self.until() - began, 0.0)
            given = [carried.descriptor, results.descriptor]
            self._kept.ask(request, min(patience, left + _AFTERWARDS), given)
            answer = self._kept.answer()
            seconds = time.monotonic() - began
            if isinstance(answer, Ended):
                self.fresh()
                if answer.end is End.HANG and seconds < patience:
                    self.cut_off += 1
                    text = f"was cut off after {seconds:.0f} s: the time was up"
                    answer = Ended(End.UNAVAILABLE, "time", text, answer.output)
                return Called(ended=answer, seconds=seconds)
            if not self._called_before:
                self._first_took = max(self._first_took, seconds)
            self._called_before = True

            def made(answer: dict[str, Any]) -> Called:
                rooms.read(carried)
                given = self._given
                told = answer["returned"]
                return Called(returned(told, results, tensors, self.device, given))

            called = _read(answer, made)
            if called.spoilt:
                self.fresh()
            return replace(called, seconds=seconds)

    def patience(self, predicted: float = 0.0) -> float:
        """Return the seconds after which the next call counts as a hang."""
        limits = self.limits
        least = limits.wall_seconds
        if not self._called_before:
            # What a first call builds is there for those of later children.
            known = max(least, _FIRSTS * self._first_took)
            least = limits.first_seconds
            least = min(least, known) if self._first_took else least
        return max(least, 50 * predicted)

    def enter(self, entry: Entry) -> None:
        """Have the next call made in a child that builds another entry."""
        self.fresh()
        self._entry = entry
        for kept in [k for k in self._spares if k.asked]:
            self._spares.remove(kept)
            self._end(kept)

    def prepare(self, children: int) -> None:
        """Have children get ready and build the entry, to be called in turn.

        They do so all at once, and share what one may have of a device's memory. Where
        there is no entry yet they only get ready.
        """
        self._spares += [self._fork() for _ in range(children - len(self._spares))]
        if self._entry is not None:
            unasked = [kept for kept in self._spares[:children] if not kept.asked]
            self._open(self._entry, unasked, share=1 / children)

    def close(self) -> None:
        """End every process and remove the folders."""
        self.fresh()
        self._end_spares()
        own = self._zygote if self._own_zygote else None
        rest = partial(_clear, self._ending, own, self._root)
        self._ending, self._root = [], None
        if own is not None:
            self._zygote = None
        if self._lingers:
            threading.Thread(target=rest, daemon=True).start()
        else:
            rest()

    def _contained(self) -> Kept:
        """Return a child that is contained and has imported nothing foreign.

        Where a device does not work under a measure, children go without.

        Raises:
            BackendError: the device does not work without either.
        """
        if self._kept is not None and self._kept.ended is None:
            return self._kept
        self.fresh()
        while True:
            ahead = bool(self._spares)
            self._kept = self._spares.pop(0) if ahead else self._fork()
            self.used += 1
            wrong = self._kept.ready()
            if not wrong:
                assert self._kept.facts is not None
                facts, gpu = self._kept.facts, self._gpu
                self._containment = describe(facts, self.limits, gpu=gpu)
                # The next one gets ready meanwhile; on a GPU it makes its context.
                if not (self._spares or self._kept.asked):
                    self._spares.append(self._fork())
                return self._kept
            self.fresh()
            if ahead:  # it may have been ended since, by whoever
                continue
            if not self._ways:
                raise BackendError(
                    f"no contained child can be started: {wrong}",
                    where=str(self.device),
                    fix="`kfuzz doctor` prints what works here",
                )
            self._ways = self._ways[1:]

    def _fork(self) -> Kept:
        if self._root is None:
            self._root = Path(tempfile.mkdtemp())
            close_to_others()
        if self._zygote is None:
            self._zygote = zygote_for(self._device_name)
        self._forked += 1
        start = {
            "ways": self._ways,
            "cache": str(self._root / "cache"),
            "gpu": self._gpu,
            "inside": named(self._device_name).alone(str(self.device)),
            "hidden": [str(path) for path in self._hidden],
            "package": os.path.join(HOME, "kfuzz"),
        }
        scratch = self._root / f"scratch-{self._forked}"
        return Kept(self._zygote, scratch, self.limits, start)

    def fresh(self) -> None:
        """End the child, so that the next call has another."""
        ended = None if self._kept is None else self._kept.ended
        self._end(self._kept)
        if ended is not None and ended.end is End.MEMORY:
            # Begun before: it would take that want of memory for its own.
            self._end_spares()
        self._kept = self._opened = None
        self._given.clear()

    def _end(self, kept: Kept | None) -> None:
        """End a child without waiting: a driver takes long to take a context down."""
        if kept is not None:
            thread = threading.Thread(target=kept.close, daemon=True)
            thread.start()
            self._ending = [t for t in self._ending if t.is_alive()] + [thread]

    def _end_spares(self) -> None:
        for kept in self._spares:
            self._end(kept)
        self._spares = []

    def _open(
        self, entry: Entry, children: Sequence[Kept], *, share: float = 1.0
    ) -> None:
        """Ask children to open an entry.

        Args:
            entry: the entry.
            children: some, ready or not.
            share: of what each may have of a device's memory.
        """
        given = {
            **vars(entry),
            "path": str(entry.path.resolve()),
            "device_share": share * self.limits.device_share,
        }
        with packed(given) as memory:
            for kept in children:
                kept.ask({"do": "open"}, self.limits.open_seconds, [memory])


def _clear(
    ending: Sequence[threading.Thread], zygote: Zygote | None, root: Path | None
) -> None:
    """Wait for a sandbox's processes, and remove what was theirs."""
    for thread in ending:
        thread.join()
    if zygote is not None:
        zygote.close()
    if root is not None:
        open_to_others()
        shutil.rmtree(root, ignore_errors=True)


# `RemoteKernel`: foreign code in a child, callable like an implementation.

_MOST_NAMES: Final = 256


class RemoteKernel:
    """Calls a sandbox's entry on tensors of the campaign's.

    Bound like any implementation, `kernel(operator, name=…)(RemoteKernel(sandbox))`, it
    lets `kfuzz.evaluation.evaluator.Evaluator` judge in the campaign's process what
    runs in another: arguments travel with their guard zones and come back as the kernel
    left them, results are copies. Every call is made with the poison and the seed that
    the evaluator asks for. Where the child ends, the next call has a fresh one. A call
    that does not return in time is made once more in a fresh child, and is a hang if
    that one does not return either.

    It raises `KernelEnded` where the kernel ended its process, and `RaisedElsewhere`
    for what the kernel raised; both are understood by what calls kernels.

    Args:
        sandbox: where the entry runs; the caller opens and closes it.
        nesting: how results are to be nested, as `results.nesting` says it.

    Attributes:
        predicted: seconds that a call is expected to take, at most what calls took.
        calls: calls that returned.
        late: calls after which results still changed.
        words: what the child said that it did in any call, as of `WORDS`.
        perturbations: what draws what surrounds each call.
    """

    def __init__(self, sandbox: Sandbox, *, nesting: str = "") -> None:
        self.sandbox = sandbox
        self.perturbations = Perturbations()
        self._nesting = nesting
        self.predicted = 0.0
        self.calls = 0
        self.late = 0
        self.words: dict[str, dict[str, None]] = {name: {} for name in WORDS}
        # Calls that overlap in the campaign's threads take turns.
        self._lock = threading.Lock()

    def __call__(self, *tensors: Tensor) -> Any:
        """Call the kernel; returns what it returned, as tensors of kfuzz's own."""
        mode = _get_current_dispatch_mode()
        guarded = mode if isinstance(mode, GuardedAllocations) else None
        poison = Poison.NAN if guarded is None else guarded.poison
        seed = torch.default_generator.initial_seed()
        first = not self.sandbox.warm
        with self._lock, torch._C._DisableTorchDispatch():
            called = self._called(tensors, poison, seed)
        returned = called.returned
        if returned is None:
            raise RaisedElsewhere(called.raised or Raised("Exception", "", ""))
        self.calls += 1
        self.late += returned.late
        if not first:  # a child's first call may build and compile
            self.predicted = max(0.9 * self.predicted, called.seconds)
        for name, known in self.words.items():
            if len(known) < _MOST_NAMES:
                known.update(dict.fromkeys(returned.words[name]))
        if guarded is not None:
            guarded.foreign.update(dict.fromkeys(returned.words["operators"]))
        if returned.nesting != self._nesting:
            return stand_in(returned.type)
        return returned.value

    def _called(self, tensors: Sequence[Tensor], poison: Poison, seed: int) -> Called:
        """Call the child, twice where it does not return in time.

        Raises:
            KernelEnded: it ended instead of answering.
        """
        if not self.sandbox.alive:
            self.perturbations.renew()
        around = self.perturbations.of(seed, tensors)
        time.sleep(around.pause)
        for attempt in range(2):
            try:
                called = self.sandbox.call(
                    tensors, poison=poison, around=around, predicted=self.predicted
                )
            except (OSError, KfuzzError) as error:
                text = f"cannot be called: {error}"
                raise KernelEnded(Ended(End.UNAVAILABLE, "", text)) from None
            if called.ended is None:
                break
            if called.ended.end is not End.HANG or attempt:
                raise KernelEnded(called.ended)
        return called
