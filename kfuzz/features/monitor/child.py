"""What runs in the judging process; see `process`."""

import os
import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from kfuzz.core.errors import KfuzzError
from kfuzz.execution.processes.child import served
from kfuzz.features.monitor.process import SUBJECTS
from kfuzz.features.monitor.subjects import Outside, Subject
from kfuzz.targets.load import Source, load

# Below whatever the monitored process does.
_NICE = 5


def main() -> None:
    """Answer requests until there are no more."""
    os.nice(_NICE)
    torch.set_num_threads(1)
    connection = served()
    with suppress(EOFError):
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


if __name__ == "__main__":
    main()
