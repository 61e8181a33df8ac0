"""A search in a process of its own, seen from the command line.

The command line imports no torch and no user's file: it has its first line out while
the other process imports both, and is there to say what an import did that ended it.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Final

from kfuzz.core.errors import BindingError, HarnessError, KfuzzError
from kfuzz.core.event import Event
from kfuzz.core.home import HOME
from kfuzz.engine.config import RunConfig
from kfuzz.engine.workers.jobs import LOOK_SECONDS
from kfuzz.execution.device.backends import environment_for, guess
from kfuzz.execution.processes.child import signal_name
from kfuzz.targets.load import resolve

_MODULE: Final = "kfuzz.cli.searching"
# What builds an extension as it is imported may take long.
IMPORT_SECONDS: Final = 1800.0
# An import heeds nothing; a search needs longer, and is waited for.
STOP_SECONDS: Final = 3.0
# From the last event to the end of the process.
END_SECONDS: Final = 10.0


class SearchError(HarnessError):
    """What kfuzz did not expect in the other process; its traceback is a note."""


def events(config: RunConfig, *, stop: threading.Event) -> Iterator[Event]:
    """Yield the events of a search that another process makes.

    Args:
        config: of the search.
        stop: ends it cleanly, once set.

    Raises:
        KfuzzError: as `kfuzz.engine.search.campaign.run`; what ends that process.
        KeyboardInterrupt: if it is to stop while it imports.
    """
    if config.isolate == "none":
        yield from _in_this_process(config, stop)
        return
    for target in config.targets:
        resolve(target)  # what is mistyped is said at once
    ours, theirs = socket.socketpair()
    path = [HOME, *filter(None, [os.environ.get("PYTHONPATH")])]
    with theirs:
        process = subprocess.Popen(
            # -P keeps the working directory, which holds users' files, off sys.path.
            [sys.executable, "-P", "-m", _MODULE, str(theirs.fileno())],
            env={**_environment(config), "PYTHONPATH": os.pathsep.join(path)},
            stdin=subprocess.DEVNULL,
            stdout=2,  # standard output is the report's alone
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # Ctrl-C is this process's to obey
        )
    connection = Connection(ours.detach())
    try:
        try:
            connection.send(config)
        except OSError:
            raise _ended(process, importing=False, config=config) from None
        yield from _heard(connection, process, config, stop)
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS)
    finally:
        connection.close()
        with suppress(OSError):  # with what it began, and what the user's file did
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.wait()


def _in_this_process(config: RunConfig, stop: threading.Event) -> Iterator[Event]:
    # Triton reads its variables as it is imported, which nobody has done here yet.
    os.environ.update(_environment(config))
    from kfuzz.engine.search import campaign
    from kfuzz.fuzz.source import GUIDES

    yield from campaign.run(config, stop=stop, guides=GUIDES)


def _environment(config: RunConfig) -> Mapping[str, str]:
    """Return that of children, of whom the process is to be the origin."""
    backend = guess(config.device)
    if backend is None:
        return os.environ
    return environment_for(backend, os.environ)


def _heard(
    connection: Connection,
    process: "subprocess.Popen[bytes]",
    config: RunConfig,
    stop: threading.Event,
) -> Iterator[Event]:
    """Yield the events as they come; raise what the process raised, or its end."""
    importing, began, asked = True, time.monotonic(), False
    while True:
        try:
            if stop.is_set() and not asked:
                asked, began = True, time.monotonic()
                connection.send("stop")
            message = None
            if connection.poll(LOOK_SECONDS):
                message = connection.recv()
            elif process.poll() is not None:  # another may hold its end open
                raise EOFError
        except (EOFError, OSError):
            raise _ended(process, importing, config) from None
        match message:
            case ("event", event):
                importing = False
                yield event
            case ("raised", error):
                raise error
            case "end":
                return
            case _ if importing and asked and _since(began) > STOP_SECONDS:
                raise KeyboardInterrupt
            case _ if importing and _since(began) > IMPORT_SECONDS:
                raise BindingError(
                    f"importing it takes more than {IMPORT_SECONDS:.0f} s",
                    where=" ".join(config.targets),
                    fix="kfuzz imports a target as Python does; see what waits there",
                )


def _since(moment: float) -> float:
    return time.monotonic() - moment


def _ended(
    process: "subprocess.Popen[bytes]", importing: bool, config: RunConfig
) -> Exception:
    """Return what is said where the process ended before its last event."""
    try:
        code = process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:  # it closed its end, and goes on
        process.kill()
        code = process.wait()
    how = f"exit code {code}" if code >= 0 else signal_name(code)
    if importing:
        return BindingError(
            f"importing it ends the process: {how}",
            where=" ".join(config.targets),
            fix="kfuzz imports a target as Python does; make it import cleanly",
        )
    return HarnessError(
        f"the process that searches ended: {how}",
        fix="What was found is in the corpus, `kfuzz corpus list` shows it",
    )


def portable(error: BaseException) -> Any:
    """Return an exception as it can travel from one process to another.

    The traceback of one that kfuzz did not expect goes with it as a note.
    """
    import pickle
    import traceback

    if not isinstance(error, KfuzzError):
        error.add_note("".join(traceback.format_exception(error)))
    with suppress(Exception):
        if type(pickle.loads(pickle.dumps(error))) is type(error):
            return error
    return SearchError(f"{type(error).__name__}: {error}")
