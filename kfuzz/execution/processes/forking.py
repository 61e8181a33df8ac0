"""From a serve function to replies: the same in a child and in process."""

import contextlib
import ctypes
import errno
import faulthandler
import gc
import importlib._bootstrap_external as external
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NoReturn

from kfuzz.core.errors import HarnessError, class_name, message_of, trace_text
from kfuzz.execution import parent
from kfuzz.execution.processes import wire
from kfuzz.execution.processes.wire import (
    Channel,
    ChildRaised,
    Handler,
    Message,
    WireClosed,
    WireError,
)
from kfuzz.store.files import cache_folder

Serve = Callable[[], Any]
"""Gives a handler, or what attends to the connection itself: `attend(channel)`."""

# Both are for people; an exception whose text is a printed tensor is cut.
MESSAGE_CHARACTERS = 4_000
TRACEBACK_CHARACTERS = 32_000


def resolve(serve: str) -> Callable[..., Any]:
    """Return the function that "package.module:function" names.

    Raises:
        HarnessError: the text has no such form, or there is no such function.
        ImportError: the module cannot be imported.
    """
    module_name, _, name = serve.partition(":")
    if not module_name or not name:
        raise HarnessError(f"{serve!r} is not of the form module:function")
    found = getattr(import_module(module_name), name, None)
    if not callable(found):
        raise HarnessError(f"{module_name} has no function {name!r}")
    return found  # type: ignore[no-any-return]


def load_modules(names: Iterable[str]) -> None:
    """Import modules, and call functions named "module:function".

    Raises:
        HarnessError, ImportError: as `resolve`.
    """
    with uncollected():
        for name in names:
            if ":" in name:
                resolve(name)()
            else:
                import_module(name)


@contextmanager
def uncollected() -> Iterator[None]:
    """Collect no garbage while modules are imported: hardly anything of it is garbage.

    Measured, torch, triton and Liger-Kernel on an AMD EPYC: 6.1 s with, 5.1 s without.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def start(serve: Serve) -> Any:
    """Return what `serve` gives, or a handler that raises the error that it raised."""
    try:
        return serve()
    except BaseException as error:  # `sys.exit` in a user's file included
        raised = error

        def failed(message: Message) -> Message:
            raise raised

        return failed


def answer(
    handler: Handler, message: Message, *, interruptible: bool = False
) -> Message:
    """Return the envelope that reports how the handler took `message`.

    Args:
        handler: called with `message`.
        message: the request.
        interruptible: let KeyboardInterrupt through, which is the user's.
    """
    try:
        return {"reply": handler(message)}
    except BaseException as error:  # `sys.exit` in a kernel is an answer too
        if interruptible and isinstance(error, KeyboardInterrupt):
            raise
        return refusal(error)


def refusal(error: BaseException) -> Message:
    """Return the envelope for an exception."""
    return {
        "raised": {
            "type": class_name(error),
            "message": message_of(error)[:MESSAGE_CHARACTERS],
            "traceback": trace_text(error)[-TRACEBACK_CHARACTERS:],
        }
    }


def unwrap(envelope: Message, pid: int) -> Message:
    """Return the reply in an envelope.

    Raises:
        ChildRaised: it reports an exception.
        HarnessError: it is no envelope.
    """
    match envelope:
        case {"reply": dict(reply)}:
            return reply
        case {
            "raised": {
                "type": str(type_name),
                "message": str(message),
                "traceback": str(trace),
            }
        }:
            raise ChildRaised(pid, type_name, message, trace)
        case _:
            raise HarnessError(
                "the handler returned no dictionary", where=f"child {pid}"
            )


# The child's side: what a process does between its fork and its end.

# From <stdio.h> of glibc and musl: line buffering.
_IOLBF = 1

# sysexits.h EX_SOFTWARE: the serving loop itself failed, not the handler.
_EXIT_SOFTWARE = 70

# sysexits.h EX_IOERR: the descriptors of the connection were closed from inside.
EXIT_DESCRIPTORS = 74


def run(serve: Serve, channel: Channel, output: int, zygote: int) -> NoReturn:
    """Answer requests on `channel` until it closes, then end the process.

    Args:
        serve: called once.
        channel: the child's end of its own connection to the campaign.
        output: descriptor that becomes 1 and 2.
        zygote: pid of the process that forked this one.
    """
    code = _EXIT_SOFTWARE
    try:
        _settle(output, zygote)
        # A process forked by the code under test must not hold the connection:
        # the campaign would not see that this one died.
        os.register_at_fork(after_in_child=channel.close)
        handler = start(serve)
        getattr(handler, "attend", partial(_answer_all, handler))(channel)
        code = 0
    except WireClosed as closed:
        gone = isinstance(closed.__cause__, OSError) and closed.__cause__.errno
        code = EXIT_DESCRIPTORS if gone in (errno.EBADF, errno.ENOTSOCK) else 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(BaseException):
            _flush()
        # No atexit hooks, no joining of threads: foreign code left those behind.
        os._exit(code)


def _settle(output: int, zygote: int) -> None:
    os.setpgid(0, 0)
    parent.end_with(zygote)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # If memory runs out, the kernel under test goes first, not the campaign.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    # Lines printed before a crash must be in the pipe when it comes.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    sys.stderr.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    stdout = ctypes.c_void_p.in_dll(parent.libc, "stdout")
    parent.libc.setvbuf(stdout, None, _IOLBF, 0)
    faulthandler.enable(file=2)


def _answer_all(handler: Handler, channel: Channel) -> NoReturn:
    """Answer requests; raises `WireClosed` once there can be no more."""
    while True:
        message = channel.receive()
        envelope = answer(handler, message)
        with contextlib.suppress(BaseException):
            _flush()
        try:
            channel.send(envelope)
        except WireClosed:
            raise
        except WireError as error:  # the reply cannot be written, or is too long
            channel.send(refusal(error))


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    parent.libc.fflush(None)


# The loop of a process that forks children: they are begun, watched, and reaped.

# How often dead children are looked for while no request comes. What a dead
# child left running is killed then, which also closes its copies of the pipes.
REAP_MILLISECONDS = 250

# At the end, for children to die; one stuck inside a device driver cannot.
END_SECONDS = 2.0

# A fork request is followed by one byte that carries two descriptors.
DESCRIPTORS = 2


class Forking:
    """The forking loop and its books: which children live, how others ended.

    Args:
        control: to the campaign; children speak as it does.
        serve: "module:function", what children serve unless a request names another.
    """

    def __init__(self, control: Channel, serve: str) -> None:
        self._control = control
        resolve(serve)  # imports it before any child is forked
        self._serve = serve
        self._pid = os.getpid()
        self._alive: set[int] = set()
        self._ended: dict[int, int] = {}
        self._on_child: Any = None

    def run(self, greeting: Message) -> None:
        """Obey the campaign until it is gone, then end every child.

        Args:
            greeting: sent before the first request is read.
        """
        # What a file asked for as it was imported is its children's: how they end is
        # found by waiting for them, here.
        self._on_child = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, 0)
        # What a child leaves behind that has lost its parent comes here.
        parent.prctl(parent.PR_SET_CHILD_SUBREAPER, 1)
        # Objects that live for ever are kept out of the collector's sight: a child's
        # first collection would otherwise copy every page that they lie on.
        gc.collect()
        gc.freeze()
        poll = select.poll()
        poll.register(self._control.fileno(), select.POLLIN)
        try:
            self._control.send({"reply": greeting})
            while True:
                if poll.poll(REAP_MILLISECONDS if self._alive else None):
                    request = self._control.receive()
                    reply = self._obey(request)
                    reply["number"] = request.get("number")
                    self._control.send({"reply": reply})
                self._reap()
        except WireError:
            self._end()

    def _obey(self, request: Message) -> Message:
        match request:
            case {"do": "fork"}:
                return self._fork(request.get("serve") or self._serve)
            case {"do": "status", "pid": int(pid)}:
                self._reap()
                return {"exit": self._ended.pop(pid, None)}
            case {"do": "kill", "pid": int(pid)}:
                if pid in self._alive:
                    wire.kill_group(pid)
                return {}
            case _:
                return {"error": f"unknown request {request!r}"}

    def _fork(self, serve: str) -> Message:
        connection, output = self._control.receive_descriptors(DESCRIPTORS)
        try:
            pid = os.fork()
        except OSError as error:
            os.close(connection)
            os.close(output)
            return {"error": f"cannot fork: {error}"}
        if pid == 0:
            self._control.close()
            if self._on_child is not None:
                signal.signal(signal.SIGCHLD, self._on_child)
            sock = socket.socket(fileno=connection)
            channel = Channel(sock, pickled=self._control.pickled)
            run(lambda: resolve(serve)(), channel, output, self._pid)
        os.close(connection)
        os.close(output)
        # On both sides, so that the group exists whichever runs first.
        with contextlib.suppress(OSError):  # it may have ended already
            os.setpgid(pid, pid)
        self._alive.add(pid)
        return {"pid": pid}

    def _reap(self) -> None:
        died = False
        while (ended := wire.any_ended()) is not None:
            ours = ended in self._alive
            if ours:
                # Before the pid is given free: no other group can bear it yet.
                wire.kill_group(ended)
            _, status = os.waitpid(ended, 0)
            if ours:
                self._alive.discard(ended)
                self._ended[ended] = os.waitstatus_to_exitcode(status)
                died = True
        if died:
            self._kill_strays()

    def _kill_strays(self) -> None:
        # As subreaper the zygote inherits what left its child's group and lost
        # its parent; nobody else will ever end those.
        for pid in wire.children_of(self._pid):
            if pid not in self._alive and _group(pid) not in self._alive:
                wire.kill(pid)

    def _end(self) -> None:
        deadline = time.monotonic() + END_SECONDS
        while time.monotonic() < deadline:
            for pid in wire.children_of(self._pid):
                wire.kill_group(pid)
                wire.kill(pid)
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                return
            time.sleep(0.002)


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return 0


# Bytecode kept in kfuzz's cache where Python itself keeps none.
#
# An installation that cannot be written to, or an environment that forbids bytecode,
# has every process compile every source anew: for large libraries that takes longer
# than all else that importing them does.

# The function by which Python's importer names the file of a source's bytecode.
_NAME: Final = "cache_from_source"


def keep_bytecode() -> None:
    """Have this process, and those forked from it, find and leave bytecode there.

    Bytecode that lies beside its source is used as ever, and what may be written
    there is.
    """
    named = getattr(external, _NAME, None)
    if named is None or hasattr(named, "kept_in"):
        return
    try:
        folder = str(cache_folder("bytecode"))
    except OSError:
        return
    setattr(external, _NAME, _kept(named, folder, forbidden=sys.dont_write_bytecode))
    write = external._write_atomic  # type: ignore[attr-defined]

    def written(path: str, data: bytes, *mode: int) -> None:
        write(path, data, *mode)
        if os.stat(path).st_size < len(data):  # the disk is full: it is never whole
            os.unlink(path)

    external._write_atomic = written  # type: ignore[attr-defined]
    sys.dont_write_bytecode = False  # what is written goes to that folder


def _kept(
    named: Callable[..., str], folder: str, *, forbidden: bool
) -> Callable[..., str]:
    """Return a function that names the file of a source's bytecode.

    Args:
        named: Python's own.
        folder: where it lies, by the path of its source, if not beside that.
        forbidden: whether nothing may be written beside sources.
    """

    def kept(path: Any, *args: Any, **options: Any) -> str:
        own = named(path, *args, **options)
        if os.path.exists(own) or (not forbidden and _is_writable(own)):
            return own
        return os.path.join(folder, os.path.abspath(own).lstrip(os.sep) + _age(path))

    kept.kept_in = folder  # type: ignore[attr-defined]
    return kept


def _age(source: Any) -> str:
    """Return what distinguishes two forms of a source, within a second too."""
    try:
        found = os.stat(source)
    except (OSError, TypeError, ValueError):
        return ""
    return f".{found.st_mtime_ns}.{found.st_size}"


def _is_writable(file: str) -> bool:
    """Whether a file can be made, with the folder that it is to lie in."""
    folder = os.path.dirname(file)
    if not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return os.access(folder, os.W_OK)
