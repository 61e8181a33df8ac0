"""A search in a process of its own, seen from the command line.

The command line imports no torch and no user's file: it has its first line out while
the other process imports both, and is there to say what an import did that ended it.
"""

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, Literal

from kfuzz.core.errors import (
    HarnessError,
    KfuzzError,
    class_name,
    message_of,
    trace_text,
)
from kfuzz.core.event import Event
from kfuzz.engine.config import RunConfig
from kfuzz.engine.workers.jobs import LOOK_SECONDS
from kfuzz.execution.device.backends import environment_for, guess
from kfuzz.execution.processes.own import OwnProcess
from kfuzz.targets import importing as imports
from kfuzz.targets.load import resolve

_MODULE: Final = "kfuzz.cli.searching"
# An import handles no signal; a search needs longer, and is waited for.
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
    imports.limit_to(config.import_seconds)
    if config.isolate == "none":
        yield from _in_this_process(config, stop)
        return
    for target in config.targets:
        resolve(target)  # what is mistyped is said at once
    # Ctrl-C is this process's to obey.
    with OwnProcess(_MODULE, _environment(config), start_new_session=True) as process:
        try:
            process.send(config)
        except OSError:
            raise _ended(process, target=False) from None
        yield from _heard(process, config, stop)
        process.ended(END_SECONDS)


def _in_this_process(config: RunConfig, stop: threading.Event) -> Iterator[Event]:
    # Triton reads its variables as it is imported, which nobody has done here yet.
    os.environ.update(_environment(config))
    from kfuzz.engine.search import campaign
    from kfuzz.fuzz.source import Atheris

    yield from campaign.run(config, stop=stop, guide=Atheris())


def _environment(config: RunConfig) -> Mapping[str, str]:
    """Return that of children, of whom the process is to be the origin."""
    backend = guess(config.device)
    if backend is None:
        return os.environ
    return environment_for(backend, os.environ)


def _heard(
    process: OwnProcess, config: RunConfig, stop: threading.Event
) -> Iterator[Event]:
    """Yield the events as they come; raise what the process raised, or its end."""
    importing, target, began, asked = True, "", time.monotonic(), False
    while True:
        try:
            if stop.is_set() and not asked:
                asked, began = True, time.monotonic()
                process.send("stop")
            message = process.receive() if process.ready(LOOK_SECONDS) else None
        except (EOFError, OSError):
            ended = importing and (target or " ".join(config.targets))
            raise _ended(process, ended) from None
        match message:
            case ("event", event):
                importing = False
                yield event
            case ("importing", str(target)):
                began = began if asked else time.monotonic()
            case ("raised", error):
                raise error
            case "end":
                return
            case _ if importing and asked and _since(began) > STOP_SECONDS:
                raise KeyboardInterrupt
            case _ if target and _since(began) > imports.limit():
                raise imports.overdue(target, imports.limit())


def _since(moment: float) -> float:
    return time.monotonic() - moment


def _ended(process: OwnProcess, target: str | Literal[False]) -> Exception:
    """Return what is said where the process ended before its last event.

    Args:
        process: the process.
        target: what it was importing; False where it was searching.
    """
    how = process.ended(END_SECONDS)
    if target is not False:
        return imports.ended(target, how)
    return HarnessError(
        f"the process that searches ended: {how}",
        fix="What was found is in the corpus, `kfuzz corpus list` shows it",
    )


def portable(error: BaseException) -> Any:
    """Return an exception as it can travel from one process to another.

    The traceback of one that kfuzz did not expect goes with it as a note.
    """
    import pickle

    if not isinstance(error, KfuzzError):
        error.add_note(trace_text(error))
    with suppress(Exception):
        if type(pickle.loads(pickle.dumps(error))) is type(error):
            return error
    return SearchError(f"{class_name(error)}: {message_of(error)}")
