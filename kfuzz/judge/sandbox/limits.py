"""What a contained child may take and where it may write, and a watch on both."""

import contextlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from kfuzz.core.untrusted import End, Ended
from kfuzz.execution.processes.limits import allowance

MIB: Final = 1 << 20


@dataclass(frozen=True)
class Limits:
    """Limits on one child that runs foreign code; going past one ends it.

    Attributes:
        memory: bytes of memory beyond what it starts with, over all its processes, and
            as much again of what these share; 0 for half of what the machine has left.
        device_share: greatest part of a GPU's memory that torch gives it.
        cpu_seconds: processor time of one request, over all its processes.
        wall_seconds: seconds that one call may take before it counts as a hang.
        first_seconds: the same for the first call of a child, which may build or
            compile.
        open_seconds: the same for importing the file and building what it defines.
        processes: processes at once, its own included.
        files: open files of one process.
        file_bytes: size of one file.
        scratch_bytes: bytes in its folders, which it alone may write to.
        output_bytes: bytes that it may print, over its life.
        result_bytes: bytes of results that one call may bring where nothing is
            declared, and of one argument's memory.
    """

    memory: int = 0
    device_share: float = 0.5
    cpu_seconds: float = 900.0
    wall_seconds: float = 20.0
    first_seconds: float = 120.0
    open_seconds: float = 300.0
    processes: int = 128
    files: int = 1024
    file_bytes: int = 1024 * MIB
    scratch_bytes: int = 1024 * MIB
    output_bytes: int = 16 * MIB
    result_bytes: int = 8192 * MIB


_PASSED: Final = frozenset(
    {
        "PATH", "LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH", "CC", "CXX", "MAX_JOBS",
        "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER",
        "CUDA_MODULE_LOADING", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES",
        "ROCM_HOME", "ROCM_PATH", "HIP_PATH", "HIP_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES", "HSA_OVERRIDE_GFX_VERSION", "PYTORCH_ROCM_ARCH",
        "TORCH_CUDA_ARCH_LIST", "TRITON_PTXAS_PATH", "TRITON_LIBCUDA_PATH",
        "VIRTUAL_ENV",
    }
)  # fmt: skip
"""Variables that compilers and drivers need and that hold no secrets."""

_IMPORTED: Final = ("torch", "triton", "numpy")

# Always there; writing to them keeps nothing.
_DEVICES: Final = ("null", "zero", "full", "random", "urandom")
# What the drivers of GPUs open.
_GPU_DEVICES: Final = ("nvidia*", "kfd", "dri/*", "nvidia-caps/*", "dxg")


@dataclass(frozen=True)
class Rooms:
    """Where a child may write.

    Attributes:
        scratch: its home and temporary files; gone with it.
        cache: what it builds and compiles; its successors find it again.
    """

    scratch: Path
    cache: Path

    @property
    def work(self) -> Path:
        """Its working folder; programs seldom have their home for one."""
        return self.scratch / "work"

    def environment(self) -> dict[str, str]:
        """Return the variables that keep programs to these folders."""
        home, cache = str(self.scratch), self.cache
        return {
            "HOME": home,
            "TMPDIR": home,
            "XDG_CACHE_HOME": str(cache),
            "TRITON_CACHE_DIR": str(cache / "triton"),
            "TORCH_EXTENSIONS_DIR": str(cache / "extensions"),
            "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
            "CUDA_CACHE_PATH": str(cache / "cuda"),
        }


def scrubbed(
    environment: Mapping[str, str], *, added: Mapping[str, str]
) -> dict[str, str]:
    """Return what a child inherits of an environment."""
    kept = {
        name: value
        for name, value in environment.items()
        if name in _PASSED or name.startswith("LC_")
    }
    paths = environment.get("PYTHONPATH", "").split(os.pathsep)
    needed = [p for p in paths if p and any(Path(p, n).is_dir() for n in _IMPORTED)]
    if needed:
        kept["PYTHONPATH"] = os.pathsep.join(needed)
    kept["PYTHONDONTWRITEBYTECODE"] = "1"
    return kept | dict(added)


def devices(*, gpu: bool) -> list[Path]:
    """Return the device files that a child needs.

    Args:
        gpu: whether those of GPUs belong to them.
    """
    folder = Path("/dev")
    found = [folder / name for name in _DEVICES]
    for pattern in _GPU_DEVICES if gpu else ():
        found += sorted(p for p in folder.glob(pattern) if not p.is_dir())
    return [path for path in found if path.exists()]


DISK_SECONDS: Final = 0.25
"""Between two measurements of folders: they cost a call for each file."""

MOST_FILES: Final = 100_000
"""Files that are counted; more take too long to look at, and end the child too."""

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_BLOCK: Final = 512  # what st_blocks counts, everywhere
_FILE_BYTES: Final = 4096  # of one, empty or not


class Taken(NamedTuple):
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
        hoards = bool(self._memory) and now.memory - self._shared(now) > self._memory
        if hoards and now.processes <= limits.processes:
            # Forks share most of it, and by the dozen are more than that by now.
            own = taken_below(os.getpid(), shared_once=True)
            now = own if own.memory else now  # not every system tells
            hoards = now.memory - self._shared(now) > self._memory
        if now.processes > limits.processes:
            text = f"starts more than {limits.processes} processes"
            return Ended(End.PROCESSES, "process limit", text)
        if hoards:
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


def taken_below(pid: int, *, shared_once: bool = False) -> Taken:
    """Return what the descendants of a process take.

    Args:
        pid: of that process.
        shared_once: whether memory that several share is counted once, which takes some
            milliseconds for each.
    """
    pids = descendants(pid)
    memory, cpu = 0, 0.0
    file = "smaps_rollup" if shared_once else "status"
    counted = ("Pss_Anon:", "Pss_Shmem:") if shared_once else ("RssAnon:", "RssShmem:")
    for each in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            for line in Path(f"/proc/{each}/{file}").read_text().splitlines():
                if line.startswith(counted):
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
        with contextlib.suppress(OSError):
            for listed in Path(f"/proc/{pending.pop()}/task").glob("*/children"):
                with contextlib.suppress(OSError):
                    below = list(map(int, listed.read_text().split()))
                    found += below
                    pending += below
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
