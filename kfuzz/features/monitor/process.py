"""Judging in a child process, which finds the calls that break their contract.

It imports the monitored function's file, as `kfuzz run` does. Of the calls that break
their contract this process gathers the evidence itself.
"""

import os
import pickle
import threading
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from kfuzz.core.errors import HarnessError, KfuzzError
from kfuzz.execution.processes.child import OwnProcess
from kfuzz.features.monitor.seen import Seen, TensorCopy
from kfuzz.features.monitor.subjects import Judged, Outside, Subject, is_plain
from kfuzz.targets.load import Source, load

# Monitored functions by file, module where that is one of a package, and name: what the
# child looks up.
SUBJECTS: Final[dict[tuple[str, str, str], Subject]] = {}

CHILD: Final = "kfuzz.features.monitor.process:serve"
# The first answer takes the imports and a kernel's build, a minute at times. Beyond
# twice that the child hangs; meanwhile calls wait, and are dropped if too many do.
ANSWER_SECONDS = 120.0


class JudgeProcess:
    """A child that judges calls, one at a time; for the checking thread alone.

    Only `close` may be called by another thread, while this one waits for an answer.
    """

    def __init__(self) -> None:
        """Start no child yet."""
        self._child: OwnProcess | None = None
        self._asking = threading.Lock()
        self._is_closed = False

    def judge(self, subject: Subject, seen: Seen) -> Judged | None:
        """Return what came of a call; None if the child found that it conforms.

        Raises:
            Outside: if the contract does not cover it.
            HarnessError: if the child ended, gave no answer for `ANSWER_SECONDS`, or
                what it called raised; the next call has another child then.
            Exception: whatever a reference raises here.
        """
        # A list, since other threads add functions meanwhile.
        every = list(SUBJECTS.items())
        home = next((k for k, s in every if s is subject), None)
        leaves = () if seen.rest is None else seen.rest.scalars
        if home is None or not all(map(is_plain, leaves)):
            return subject.judge(seen)
        with self._asking:
            answer = self._answer((home, pickle.dumps(_portable(seen))))
        match answer:
            case ("outside", str(why)):
                raise Outside(why)
            case ("error", str(what)):
                raise HarnessError(what, where=subject.name)
            case ("conforms", True):
                return None
        return subject.judge(seen)

    def _answer(self, request: object) -> Any:
        if self._is_closed:
            raise HarnessError("the monitor was stopped")
        child = self._child
        if child is None:
            child = OwnProcess(CHILD, os.environ, start_new_session=True)
            self._child = child
        try:
            return child.ask(request, ANSWER_SECONDS)
        except HarnessError as error:
            self._child = None
            raise HarnessError(f"the judging process {error.what}") from None

    def close(self) -> None:
        """End the child; a thread that waits for its answer meets its end."""
        self._is_closed = True
        if self._child is not None:
            self._child.close()


def _portable(seen: Seen) -> Seen:
    """Return a call whose tensors hold no more than their elements."""

    def alone(x: Any) -> Any:
        return replace(x, values=x.values.clone()) if isinstance(x, TensorCopy) else x

    returned = seen.returned
    return replace(
        seen,
        tensors={name: alone(x) for name, x in seen.tensors.items()},
        returned=replace(returned, leaves=tuple(map(alone, returned.leaves))),
    )


# What runs in the judging process.

# Below whatever the monitored process does.
_NICE: Final = 5


def serve(connection: Connection) -> None:
    """Answer requests until there are no more."""
    import torch

    os.nice(_NICE)
    torch.set_num_threads(1)
    while True:
        home, call = connection.recv()
        try:
            answer = _answered(_found(*home), call)
        except Exception as error:
            text = str(error).strip().partition("\n")[0]
            answer = ("error", f"{type(error).__name__}: {text}")
        connection.send(answer)


def _answered(subject: Subject | None, call: bytes) -> tuple[str, Any]:
    """Return whether a call keeps its contract, None where that cannot be said here."""
    try:
        # It may be of a class that this process cannot import.
        seen = None if subject is None else pickle.loads(call)
    except Exception:
        seen = None
    if subject is None or seen is None:
        return "conforms", None
    try:
        return "conforms", subject.judge(seen).report.failure is None
    except Outside as error:
        return "outside", str(error)


def _found(file: str, module: str, name: str) -> Subject | None:
    """Return a monitored function, imported if need be; None if there is none."""
    if not any(home[0] == file for home in SUBJECTS):
        source = Source(module=module) if module else Source(file=Path(file))
        try:
            load(source, root=Path.cwd())
        except KfuzzError:
            return None
    return SUBJECTS.get((file, module, name))
