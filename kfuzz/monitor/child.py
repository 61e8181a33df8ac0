"""What runs in the judging process: `python -m kfuzz.monitor.child HANDLE BYTES`."""

import json
import mmap
import os
import sys
from pathlib import Path
from typing import Any

import torch

from kfuzz.core.errors import KfuzzError
from kfuzz.monitor.process import SUBJECTS
from kfuzz.monitor.subjects.subject import Outside, Subject
from kfuzz.monitor.transfer import read
from kfuzz.targets.load import Source, load

# Below whatever the monitored process does.
_NICE = 5


def main() -> None:
    """Answer requests, a line each, until there are no more."""
    handle, capacity = (int(word) for word in sys.argv[1:])
    memory = torch.frombuffer(mmap.mmap(handle, capacity), dtype=torch.uint8)
    # What the user's file prints must not stand among the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.nice(_NICE)
    torch.set_num_threads(1)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = answered(request, memory)
        except Exception as error:
            text = str(error).strip().partition("\n")[0]
            answer = {"error": f"{type(error).__name__}: {text}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def answered(request: dict[str, Any], memory: torch.Tensor) -> dict[str, Any]:
    """Return whether a call keeps its contract, or why that cannot be said."""
    subject = found(*request["home"])
    if subject is None:
        return {"conforms": None}
    try:
        judged = subject.judge(read(request["seen"], memory))
    except Outside as error:
        return {"outside": str(error)}
    return {"conforms": judged.report.failure is None}


def found(file: str, module: str, name: str) -> Subject | None:
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
