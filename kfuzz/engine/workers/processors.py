"""How many processors there are to use, which may be fewer than the machine has."""

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

SHARING: Final = 4
"""Kernels that share a GPU: a search mostly compiles, draws and confirms.

One H100, 16 processors, kernels of Liger-Kernel and fla-core: of 16 searched in four
commands at once, 14 had over 2,000 cases in a minute. Of 24 searched one after the
other in four minutes, with a device that was mostly idle, 14 had fewer than 500.
"""
PROCESSORS_EACH: Final = 4
"""For each of them: the campaign, a child that judges, and those that confirm."""
_GROUPS: Final = Path("/sys/fs/cgroup")
_OWN_GROUP: Final = Path("/proc/self/cgroup")


def processors(*, groups: Path = _GROUPS, own: Path = _OWN_GROUP) -> int:
    """Return how many processors this process keeps busy at most, at least 1.

    Those that it may run on, or what its control group's quota comes to, if that is
    less: a container that has two of 64 may run on all, a little.
    """
    quota = min(_quotas(groups, own), default=math.inf)
    allowed = len(os.sched_getaffinity(0))
    return max(allowed if quota >= allowed else math.ceil(quota), 1)


def _quotas(groups: Path, own: Path) -> Iterator[float]:
    """Yield the quotas of the control groups around this process, in processors."""
    folders = [groups, groups / "cpu"]  # of version 2, of version 1
    for line in _text(own).splitlines():
        _, kinds, path = line.split(":", 2)
        if not kinds or "cpu" in kinds.split(","):
            inner = (groups / "cpu" if kinds else groups) / path.lstrip("/")
            folders += [f for f in (inner, *inner.parents) if f.is_relative_to(groups)]
    for folder in dict.fromkeys(folders):
        told = _text(folder / "cpu.max").split() or [
            *_text(folder / "cpu.cfs_quota_us").split(),
            *_text(folder / "cpu.cfs_period_us").split(),
        ]
        # "max", or -1, is no quota.
        if len(told) == 2 and all(number.isdigit() and int(number) for number in told):
            yield int(told[0]) / int(told[1])


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
