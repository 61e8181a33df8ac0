"""What a child's processes take, measured from outside."""

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kfuzz.core.untrusted import End, Ended
from kfuzz.execution.processes.limits import allowance
from kfuzz.judge.sandbox.limits import MIB, Limits

DISK_SECONDS: Final = 0.25
"""Between two measurements of folders: they cost a call for each file."""

MOST_FILES: Final = 100_000
"""Files that are counted; more take too long to look at, and end the child too."""

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_BLOCK: Final = 512  # what st_blocks counts, everywhere
_FILE_BYTES: Final = 4096  # of one, empty or not


@dataclass(frozen=True)
class Taken:
    """What some processes take together.

    Attributes:
        processes: how many there are.
        memory: bytes that are theirs and no file's.
        cpu: seconds of processor time, of those that live.
    """

    processes: int
    memory: int
    cpu: float


class Watch:
    """Looks whether the processes below this one keep to limits.

    Args:
        limits: the limits.
        folders: whose size counts, where no file system limits it.
    """

    def __init__(self, limits: Limits, folders: list[Path]) -> None:
        self._limits = limits
        self._folders = folders
        self._memory = limits.memory or allowance() or 0
        self._base: Taken | None = None
        self._cpu = 0.0
        self._looked_at_disk = 0.0

    def settle(self) -> None:
        """Take what there is now for what a child starts with."""
        self._base = taken_below(os.getpid())

    def begin(self) -> None:
        """A request begins: its processor time counts from here."""
        self._cpu = taken_below(os.getpid()).cpu

    def excess(self) -> Ended | None:
        """Return which limit is passed, None if none is."""
        now, limits = taken_below(os.getpid()), self._limits
        if now.processes > limits.processes:
            text = f"starts more than {limits.processes} processes"
            return Ended(End.PROCESSES, "process limit", text)
        if self._memory and now.memory - self._shared(now) > self._memory:
            text = f"takes more than {self._memory // MIB} MiB of memory"
            return Ended(End.MEMORY, "memory limit", text)
        if now.cpu - self._cpu > limits.cpu_seconds:
            text = f"takes more than {limits.cpu_seconds:g} s of processor time"
            return Ended(End.CPU, "processor time limit", text)
        if time.monotonic() - self._looked_at_disk < DISK_SECONDS:
            return None
        self._looked_at_disk = time.monotonic()
        if sum(map(size_of, self._folders)) > limits.scratch_bytes:
            text = f"writes more than {limits.scratch_bytes // MIB} MiB to its folders"
            return Ended(End.DISK, "disk limit", text)
        return None

    def _shared(self, now: Taken) -> int:
        """Return the bytes that are not counted: what processes may share.

        A process that was forked is counted with the pages that it shares with the
        first one. To tell them apart takes longer than hundreds of forks, so that as
        much is let pass for each, but no more than the limit in all.
        """
        base = self._base
        if base is None:
            return now.memory
        each = base.memory // max(base.processes, 1)
        more = each * max(now.processes - base.processes, 0)
        return base.memory + min(more, self._memory)


def killed_for_memory() -> int:
    """Return how many processes the system has killed for want of memory, ever."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def taken_below(pid: int) -> Taken:
    """Return what the descendants of a process take."""
    pids = descendants(pid)
    memory, cpu = 0, 0.0
    for each in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            status = Path(f"/proc/{each}/status").read_text()
            for line in status.splitlines():
                if line.startswith(("RssAnon:", "RssShmem:")):
                    memory += int(line.split()[1]) << 10
            # The command's name, in brackets, may itself hold brackets.
            stat = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
            cpu += (int(stat[11]) + int(stat[12])) / _TICKS
    return Taken(len(pids), memory, cpu)


def descendants(pid: int) -> list[int]:
    """Return the living processes below one, those that changed their group too."""
    found: list[int] = []
    pending = [pid]
    while pending:
        below = _children(pending.pop())
        found += below
        pending += below
    return found


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                listed = Path(f"/proc/{pid}/task/{task}/children").read_text()
                found += map(int, listed.split())
    return found


def size_of(folder: Path) -> int:
    """Return the bytes that the files below a folder take on the disk."""
    total = count = 0
    pending = [str(folder)]
    while pending:
        with contextlib.suppress(OSError), os.scandir(pending.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    stat = entry.stat(follow_symlinks=False)
                    total += max(stat.st_blocks * _BLOCK, _FILE_BYTES)
                    count += 1
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
        if count > MOST_FILES:
            return 1 << 62
    return total
