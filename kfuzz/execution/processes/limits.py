"""How much memory a child may take, so that it fails before the machine does.

The limit is on the data of the process (RLIMIT_DATA): an allocation beyond it fails
like any other, as MemoryError in Python and as torch's own error, and the child goes
on. Without it the system's out-of-memory killer would choose a victim. Address space
without memory (sparse views, files, a device's mappings) does not count, which a limit
on address space (RLIMIT_AS) would forbid.
"""

import contextlib
import os
import resource
from pathlib import Path
from typing import Final

VARIABLE: Final = "KFUZZ_CHILD_MEMORY"
"""Environment variable: MiB that a child may take; 0 for no limit."""

SHARE: Final = 0.5
"""Part of the free memory that one child may take: others run beside it."""

_CGROUPS: Final = Path("/sys/fs/cgroup")


def limit_memory() -> None:
    """Limit what this process may allocate from now on; best effort."""
    room = allowance()
    held = _kilobytes(Path("/proc/self/status"), "VmData:")
    if room is None or held is None:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = held + room
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))


def allowance() -> int | None:
    """Return how many bytes a child may take, None for no limit.

    What `VARIABLE` says, else a share of what the machine, or the control group that
    this process lies in, has left.
    """
    given = os.environ.get(VARIABLE, "")
    if given.isdigit():
        return int(given) << 20 or None
    free = _kilobytes(Path("/proc/meminfo"), "MemAvailable:")
    left = [n for n in (free, _left_in_group()) if n is not None]
    return int(SHARE * min(left)) if left else None


def _kilobytes(path: Path, label: str) -> int | None:
    """Return the bytes that a line of a file in /proc gives in kB."""
    with contextlib.suppress(OSError, ValueError):
        for line in path.read_text().splitlines():
            if line.startswith(label):
                return int(line.split()[1]) << 10
    return None


def _left_in_group() -> int | None:
    """Return the least that this process's control group and those above have left."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            number, controllers, path = line.split(":", 2)
            if number == "0":
                folder, most, now = _CGROUPS, "memory.max", "memory.current"
            elif "memory" in controllers.split(","):
                folder = _CGROUPS / "memory"
                most, now = "memory.limit_in_bytes", "memory.usage_in_bytes"
            else:
                continue
            group = folder / path.lstrip("/")
            # In a container the path may be the host's, which is not mounted here.
            groups = [g for g in (group, *group.parents) if g.is_relative_to(folder)]
            left = [_left(g / most, g / now, g / "memory.stat") for g in groups]
            found = [n for n in left if n is not None]
            if found:
                return min(found)
    return None


def _left(most: Path, now: Path, stat: Path) -> int | None:
    try:
        limit, used = most.read_text().strip(), int(now.read_text())
    except (OSError, ValueError):
        return None
    if not limit.isdigit():  # "max"
        return None
    # Cached files are counted as used, and are given up when memory is short.
    cached = 0
    with contextlib.suppress(OSError, ValueError):
        for line in stat.read_text().splitlines():
            if line.startswith("inactive_file "):
                cached = int(line.split()[1])
    return max(int(limit) - used + cached, 0)
