"""A template: a child that imported what its own children need, and forks them.

What a user's file imports takes seconds. The zygote forks a template that imports it
once, and every child of that file is forked from there: it starts where the import
ended. A template is used only as long as a fork of it works: without a thread (what
another thread holds stays locked in a child), and without a device context (a driver
refuses to go on in a child).
"""

import contextlib
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from kfuzz.core.errors import HarnessError
from kfuzz.execution.processes import serving, table
from kfuzz.execution.processes.child import Child, forked_child
from kfuzz.execution.processes.client import Zygote
from kfuzz.execution.processes.closing import Closing
from kfuzz.execution.processes.faults import ChildFault, ZygoteError
from kfuzz.execution.processes.forking import Forking
from kfuzz.execution.processes.output import Sink
from kfuzz.execution.processes.wire import Channel, Message

# A fork copies page tables: tens of milliseconds with torch loaded, more under load.
REPLY_SECONDS: Final = 30.0
# Of a template when memory runs out: after its children, which have 1000.
_OOM_SCORE: Final = "500"
# Threads of libraries that see to forks by themselves, by the names that they give.
_SAFE: Final = frozenset({"jemalloc_bg_thd"})  # pyarrow brings it
# What drivers keep open once a context is made: CUDA's memory manager, AMD's driver.
_CONTEXTS: Final = ("/dev/nvidia-uvm", "/dev/kfd")


class Template(Closing):
    """The campaign's side of a template; `Warden` of its children.

    Threads may share one. Leaving it, as a context manager, ends it and its children.

    Args:
        zygote: what it is forked from.
        prepare: "module:function"; called in the template with `message`, it imports
            what the children need and returns what `wait` gives.
        message: for `prepare`.
        output: takes what the template and its children print.
    """

    def __init__(
        self,
        zygote: Zygote,
        prepare: str,
        message: Message,
        *,
        output: Sink | None = None,
    ) -> None:
        self._sink = output
        self._children: dict[int, Child] = {}
        self._lock = threading.RLock()
        self._asked = 0
        self._made: Message | None = None
        self._child = zygote.fork(output, serve=f"{__name__}:serve")
        self._child.send(
            {"prepare": prepare, "message": message, "serve": zygote.serve}
        )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._child.pid

    def wait(self, timeout: float | None) -> Message:
        """Return what was prepared.

        Returns:
            {"made": what `prepare` returned, "unforkable": why no child can be forked
            from it, "" where one can}.

        Raises:
            ChildTimeout: it imports still; wait again.
            ChildDied: the import ended the process.
            ChildRaised: `prepare` raised.
            ZygoteError: the zygote died.
        """
        with self._lock:
            if self._made is None:
                self._made = self._child.wait(timeout)
            return self._made

    def fork(self, output: Sink | None = None) -> Child:
        """Return a new child of a template that was waited for.

        Args:
            output: takes what this child prints, in place of the template's.

        Raises:
            ZygoteError: it died, or cannot fork.
        """
        with self._lock:
            ask = partial(self._ask, {"do": "fork"})
            child = forked_child(ask, self, output or self._sink)
            self._children[child.pid] = child
            return child

    def exit_of(self, pid: int) -> int | None:
        """Return how a child ended, None while it runs; see `Warden`."""
        found = self._ask({"do": "status", "pid": pid})["exit"]
        return found if isinstance(found, int) else None

    def kill(self, pid: int) -> None:
        """Send SIGKILL to a child's process group."""
        self._ask({"do": "kill", "pid": pid})

    def forget(self, pid: int) -> None:
        """Drop a child that is gone."""
        with self._lock:
            self._children.pop(pid, None)

    def close(self) -> None:
        """End it and its children."""
        with self._lock:
            for child in list(self._children.values()):
                child.abandon()
            with contextlib.suppress(HarnessError):
                self._child.kill()

    def _ask(self, request: Message, descriptors: Sequence[int] = ()) -> Message:
        """Return the answer to a request; one that is interrupted ends the template."""
        with self._lock:
            try:
                self._child.send(request)
                if descriptors:
                    self._child.send_descriptors(descriptors)
                return self._child.wait(REPLY_SECONDS)
            except ChildFault as fault:
                self.close()
                raise ZygoteError(
                    f"the process that imported the kernel's file died ({fault})",
                    output_tail=self._child.output_tail,
                ) from None
            except BaseException:
                self.close()
                raise


class _Attendant:
    """The template's own side."""

    def __call__(self, message: Message) -> Message:
        return {}  # never called: it attends

    def attend(self, channel: Channel) -> None:
        """Prepare as the first message says, then fork children until the end."""
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)
        request = channel.receive()
        prepare: Any = serving.resolve(request["prepare"])
        before = held()
        envelope = serving.answer(prepare, request["message"])
        if "raised" in envelope:
            channel.send(envelope)
            return
        why = unforkable(before)
        greeting = {"made": envelope["reply"], "unforkable": why}
        if why:
            channel.send({"reply": greeting})
            return
        serve = serving.resolve(request["serve"])
        Forking(channel, serve, _enveloped).run(_enveloped(greeting))


def serve() -> _Attendant:
    """Return what attends to the connection of a template."""
    return _Attendant()


@dataclass(frozen=True)
class Held:
    """What a process holds that forks would share, or miss.

    Attributes:
        threads: their numbers.
        shared: writable mappings that forks share.
        children: its processes.
    """

    threads: frozenset[str]
    shared: frozenset[str]
    children: frozenset[int]


def held() -> Held:
    """Return what this process holds.

    Threads that torch and numpy start as they are imported see to forks by themselves.
    """
    lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    shared = (line.split()[0] for line in lines if line.split()[1].startswith("rw-s"))
    return Held(
        frozenset(os.listdir("/proc/self/task")),
        frozenset(shared),
        frozenset(table.children_of(os.getpid())),
    )


def unforkable(before: Held) -> str:
    """Return why children of this process would not work alike, "" where they would.

    Args:
        before: what it held when it was known to be forkable.
    """
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{descriptor}").startswith(_CONTEXTS):
                return "it uses the device"
    running = _unsafe_threads(before)
    if running:
        # A library that sees to forks ends its threads as one begins, such as the
        # pools of OpenBLAS that scipy and others bring.
        _fork_once()
        running = _unsafe_threads(before)
    if running:
        names = {_comm(task) for task in running}
        names |= {t.name for t in threading.enumerate() if str(t.native_id) in running}
        return f"it leaves threads running ({', '.join(sorted(filter(None, names)))})"
    if held().shared - before.shared:
        return "it keeps memory that its forks would share"
    if set(table.children_of(os.getpid())) - before.children:
        return "it leaves processes running"
    return ""


def _unsafe_threads(before: Held) -> set[str]:
    """Return the threads that a fork would miss."""
    others = held().threads - {str(os.getpid())} - before.threads
    return {task for task in others if _comm(task) not in _SAFE}


def _fork_once() -> None:
    """Fork a process that ends at once."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    with contextlib.suppress(ChildProcessError):  # a handler was there first
        os.waitpid(pid, 0)


def _comm(task: str) -> str:
    try:
        return Path(f"/proc/self/task/{task}/comm").read_text().strip()
    except OSError:
        return ""


def _enveloped(reply: Message) -> Message:
    return {"reply": reply}
