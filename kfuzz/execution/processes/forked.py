"""The child's side: what a process does between its fork and its end."""

import contextlib
import ctypes
import errno
import faulthandler
import os
import resource
import socket
import sys
from pathlib import Path
from typing import NoReturn

from kfuzz.execution import parent
from kfuzz.execution.processes import serving
from kfuzz.execution.processes.wire import Channel, Handler, WireClosed, WireError

# From <stdio.h> of glibc and musl: line buffering.
_IOLBF = 1

# sysexits.h EX_SOFTWARE: the serving loop itself failed, not the handler.
_EXIT_SOFTWARE = 70

# sysexits.h EX_IOERR: the descriptors of the connection were closed from inside.
EXIT_DESCRIPTORS = 74

_libc = ctypes.CDLL(None, use_errno=True)


def run(
    serve: serving.Serve, sock: socket.socket, output: int, zygote: int
) -> NoReturn:
    """Answer requests on `sock` until it closes, then end the process.

    Args:
        serve: called once; gives the handler; an `Attendant` is given the
            connection itself.
        sock: the child's end of its own connection to the campaign.
        output: descriptor that becomes 1 and 2.
        zygote: pid of the process that forked this one.
    """
    code = _EXIT_SOFTWARE
    try:
        _settle(output, zygote)
        channel = Channel(sock)
        # A process forked by the code under test must not hold the connection:
        # the campaign would not see that this one died.
        os.register_at_fork(after_in_child=channel.close)
        handler = serving.start(serve)
        if isinstance(handler, serving.Attendant):
            handler.attend(channel)
        else:
            _answer_all(channel, handler)
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
    _libc.setvbuf(ctypes.c_void_p.in_dll(_libc, "stdout"), None, _IOLBF, 0)
    faulthandler.enable(file=2)


def _answer_all(channel: Channel, handler: Handler) -> NoReturn:
    """Answer requests; raises `WireClosed` once there can be no more."""
    while True:
        message = channel.receive()
        envelope = serving.answer(handler, message)
        with contextlib.suppress(BaseException):
            _flush()
        try:
            channel.send(envelope)
        except WireClosed:
            raise
        except WireError as error:  # the reply is not JSON, or too long
            channel.send(serving.refusal(error))


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    _libc.fflush(None)
