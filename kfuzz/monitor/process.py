"""Judging in a child process: records go through shared memory, verdicts come back.

The child imports the monitored function's file, as `kfuzz run` does, and tells which
calls break their contract; of those this process gathers the evidence itself.
"""

import json
import mmap
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import torch

from kfuzz.core.errors import HarnessError
from kfuzz.monitor.seen import Seen
from kfuzz.monitor.subject import Judged, Outside, Subject
from kfuzz.monitor.transfer import Writer, can_send, room_for

# Monitored functions by file, module where that is one of a package, and name: what the
# child looks up.
SUBJECTS: Final[dict[tuple[str, str, str], Subject]] = {}


class JudgeProcess:
    """A child that judges calls, one at a time; for the checking thread alone."""

    def __init__(self, capacity: int) -> None:
        """Make the shared memory; the child is started when it is needed.

        Args:
            capacity: bytes of the shared memory.
        """
        self._handle = os.memfd_create("kfuzz-monitor")
        os.ftruncate(self._handle, capacity)
        self._map = mmap.mmap(self._handle, capacity)
        memory = torch.frombuffer(self._map, dtype=torch.uint8)
        self._capacity = capacity
        self._writer = Writer(memory)
        self._child: subprocess.Popen[str] | None = None

    def conforms(self, subject: Subject, seen: Seen) -> bool | None:
        """Whether a call keeps its contract; None where the child cannot tell.

        Raises:
            Outside: if the contract says nothing of it.
            HarnessError: if the child ended, or what it called raised.
        """
        home = next((k for k, s in SUBJECTS.items() if s is subject), None)
        fits = can_send(seen) and room_for(seen) <= self._capacity
        if home is None or not fits:
            return None
        request = {"home": home, "seen": self._writer.written(seen)}
        answer = self._asked(json.dumps(request))
        if answer.get("outside"):
            raise Outside(answer["outside"])
        if answer.get("error"):
            raise HarnessError(answer["error"], where=subject.name)
        conforms = answer.get("conforms")
        return conforms if isinstance(conforms, bool) else None

    def _asked(self, line: str) -> dict[str, Any]:
        if self._child is None or self._child.poll() is not None:
            self._child = self._started()
        child = self._child
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            child.stdin.write(line + "\n")
            child.stdin.flush()
            answer = child.stdout.readline()
        except OSError:
            answer = ""
        if not answer:
            code = child.wait()
            raise HarnessError(f"the judging process ended with code {code}")
        made: dict[str, Any] = json.loads(answer)
        return made

    def _started(self) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "kfuzz.monitor.child"]
        command += [str(self._handle), str(self._capacity)]
        root = str(Path(__file__).resolve().parents[2])
        paths = [root, os.environ.get("PYTHONPATH", "")]
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=[self._handle],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        )

    def close(self) -> None:
        """End the child, and give the memory back."""
        if self._child is not None:
            self._child.kill()
            self._child.communicate()  # closes its pipes
            self._child = None
        os.close(self._handle)


def judged_by(child: JudgeProcess, subject: Subject, seen: Seen) -> Judged | None:
    """Return what came of a call; None if the child found that it conforms.

    Raises:
        Outside, HarnessError: as `JudgeProcess.conforms`.
        Exception: whatever a reference raises here.
    """
    return None if child.conforms(subject, seen) else subject.judge(seen)
