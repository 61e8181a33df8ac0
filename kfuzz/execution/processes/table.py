"""Looking processes up in /proc, to end those that outlive their owner."""

import contextlib
import os
import signal
from pathlib import Path


def children_of(pid: int) -> list[int]:
    """Return the living or unreaped children of a single-threaded process."""
    with contextlib.suppress(OSError):
        return [int(word) for word in _listing(pid).read_text().split()]
    return [each for each in _all_pids() if _parent(each) == pid]


def session_of(pid: int) -> list[int]:
    """Return every process in the session that `pid` leads, `pid` included."""
    found = []
    for each in _all_pids():
        with contextlib.suppress(OSError):
            if os.getsid(each) == pid:
                found.append(each)
    return found


def kill_group(pid: int) -> None:
    """Send SIGKILL to the process group that `pid` leads, if there is one."""
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)


def kill(pid: int) -> None:
    """Send SIGKILL to one process, if it is there."""
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)


def _listing(pid: int) -> Path:
    # Absent where the kernel was built without CONFIG_PROC_CHILDREN.
    return Path(f"/proc/{pid}/task/{pid}/children")


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _parent(pid: int) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    # The command's name, in brackets, may itself hold spaces and brackets.
    return int(stat.rpartition(")")[2].split()[1])
