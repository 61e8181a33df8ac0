"""Containment, applied by a child to itself before it imports anything foreign.

Each measure is tried; one that the system refuses is left out and told. None depends on
another, but that Landlock needs `no_new_privs`.
"""

import contextlib
import ctypes
import os
import resource
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from kfuzz.core.errors import End, Ended
from kfuzz.execution.parent import checked, libc, prctl
from kfuzz.execution.processes.wire import (
    allowance,
    descendants,
    listed,
    processor_seconds,
    stat_of,
)

WAYS: Final = ("namespaces", "landlock")
"""Ways of containing a child that are tried; each needs the system's consent: its own
users, processes, network, IPC and mounts, and rules of the kernel on what it may write
and connect to."""


@dataclass(frozen=True)
class Measure:
    """One thing that is kept from a child, or is not.

    Attributes:
        name: what it is about, such as "network".
        held: whether it is enforced here.
        text: how, or what is open instead; one plain sentence without a full stop.
    """

    name: str
    held: bool
    text: str


Containment = Mapping[str, Measure]
"""What contains a child on this machine: a measure for each subject, in an order."""


# Calls of the Linux kernel that Python has no functions for.
#
# Numbers and structures are those of <linux/sched.h>, <linux/mount.h>, <linux/prctl.h>,
# <linux/capability.h> and <linux/landlock.h>; the system call numbers from 424 on are
# the same on every architecture.

NEW_MOUNTS: Final = 0x0002_0000
NEW_UTS: Final = 0x0400_0000
NEW_IPC: Final = 0x0800_0000
NEW_USERS: Final = 0x1000_0000
NEW_PIDS: Final = 0x2000_0000
NEW_NETWORK: Final = 0x4000_0000

MS_RDONLY: Final = 1
MS_NOSUID: Final = 2
MS_NODEV: Final = 4
MS_NOEXEC: Final = 8
MS_BIND: Final = 1 << 12
MS_MOVE: Final = 1 << 13
MS_REC: Final = 1 << 14
MS_PRIVATE: Final = 1 << 18

PR_GET_DUMPABLE: Final = 3
PR_SET_DUMPABLE: Final = 4
PR_CAPBSET_DROP: Final = 24
PR_SET_NO_NEW_PRIVS: Final = 38
PR_CAP_AMBIENT: Final = 47
PR_CAP_AMBIENT_CLEAR_ALL: Final = 4

_MOUNT_SETATTR: Final = 442
_LANDLOCK_CREATE: Final = 444
_LANDLOCK_ADD: Final = 445
_LANDLOCK_RESTRICT: Final = 446

_AT_FDCWD: Final = -100
_AT_RECURSIVE: Final = 0x8000
_CAP_VERSION: Final = 0x2008_0522
_LAST_CAPABILITY: Final = 63  # of what two 32-bit words can hold


def _syscall(number: int, *arguments: object) -> int:
    """Call the kernel; integers are passed as machine words.

    Raises:
        OSError: the kernel refused, or lacks the call.
    """
    given = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return checked(libc.syscall(ctypes.c_long(number), *given))


def unshare(flags: int) -> None:
    """Move this process (the next child, for process ids) to new namespaces.

    Raises:
        OSError: the kernel refused.
    """
    checked(libc.unshare(ctypes.c_int(flags)))


def map_ids(user: int, group: int) -> None:
    """Map a user and a group in a fresh user namespace to themselves.

    Args:
        user: the effective one before the namespace was entered.
        group: alike.

    Raises:
        OSError: the kernel refused.
    """
    prctl(PR_SET_DUMPABLE, 1)  # else these files belong to root
    try:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    finally:
        prctl(PR_SET_DUMPABLE, 0)


def mount(
    source: str, target: str, kind: str | None, flags: int, data: str = ""
) -> None:
    """Mount a file system or move, bind or change a mount.

    Raises:
        OSError: the kernel refused.
    """
    checked(
        libc.mount(
            os.fsencode(source),
            os.fsencode(target),
            None if kind is None else kind.encode(),
            ctypes.c_ulong(flags),
            os.fsencode(data) or None,
        )
    )


def set_read_only(path: str, *, read_only: bool = True, below: bool = False) -> None:
    """Make a mount read-only or not, with all mounts below it if asked.

    Raises:
        OSError: the kernel refused, or is older than 5.12.
    """
    wanted = (MS_RDONLY, 0) if read_only else (0, MS_RDONLY)
    attributes = struct.pack("4Q", *wanted, 0, 0)  # mount_attr: set, clear, …
    flags = _AT_RECURSIVE if below else 0
    given = os.fsencode(path), flags, attributes, len(attributes)
    _syscall(_MOUNT_SETATTR, _AT_FDCWD, *given)


def drop_capabilities() -> None:
    """Give up every capability, for good and for all programs run later.

    Raises:
        OSError: the kernel refused.
    """
    for number in range(_LAST_CAPABILITY + 1):
        with contextlib.suppress(OSError):  # beyond the last one, or not ours to drop
            prctl(PR_CAPBSET_DROP, number)
    with contextlib.suppress(OSError):
        prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    header, nothing = struct.pack("Ii", _CAP_VERSION, 0), bytes(6 * 4)
    checked(libc.capset(header, nothing))


# Rights of LANDLOCK_ACCESS_FS_*: writing to a file; removing, making, moving and
# truncating came with versions 1, 2 and 3.
_WRITE_FILE: Final = 1 << 1
_READ_FILE: Final = 1 << 2
_CHANGE_FOLDERS: Final = sum(1 << bit for bit in range(4, 13))
_REFER: Final = 1 << 13
_TRUNCATE: Final = 1 << 14
_NET_TCP: Final = 0b11  # bind, connect: version 4
_SCOPED: Final = 0b11  # abstract sockets, signals: version 6
_PATH_BENEATH: Final = 1


def landlock_version() -> int:
    """Return the version of Landlock's interface here, 0 where there is none."""
    try:
        return _syscall(_LANDLOCK_CREATE, 0, 0, 1)
    except OSError:
        return 0


def restrict_by_landlock(
    folders: Iterable[Path],
    files: Iterable[Path],
    readable: Iterable[Path] | None = None,
) -> None:
    """Keep this process from writing elsewhere, and from the network as far as can be.

    Running files stays allowed. From version 4 on TCP is refused; from
    version 6 on so are signals and abstract sockets to processes outside.

    Args:
        folders: what it may write below.
        files: devices and files that it may write to.
        readable: files, and folders whose files, it may read, besides the folders; None
            for all there are.

    Raises:
        OSError: the kernel refused; `PR_SET_NO_NEW_PRIVS` must be set before.
    """
    version = landlock_version()
    rights = _WRITE_FILE | _CHANGE_FOLDERS
    rights |= _REFER if version >= 2 else 0
    rights |= _TRUNCATE if version >= 3 else 0
    rights |= _READ_FILE if readable is not None else 0
    # landlock_ruleset_attr, as long as the version knows it: files, network, scopes.
    known = [rights, _NET_TCP, _SCOPED][: 1 + (version >= 4) + (version >= 6)]
    rules = struct.pack(f"{len(known)}Q", *known)
    ruleset = _syscall(_LANDLOCK_CREATE, rules, len(rules), 0)
    try:
        for folder in folders:
            _allow(ruleset, folder, rights)
        for file in files:
            _allow(ruleset, file, rights & (_WRITE_FILE | _TRUNCATE))
        for path in readable or ():
            with contextlib.suppress(OSError):  # none that rules can be about
                _allow(ruleset, path, _READ_FILE)
        _syscall(_LANDLOCK_RESTRICT, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: Path, rights: int) -> None:
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # a device that is not here
        return
    try:
        rule = struct.pack("=Qi", rights, opened)  # landlock_path_beneath_attr
        _syscall(_LANDLOCK_ADD, ruleset, _PATH_BENEATH, rule, 0)
    finally:
        os.close(opened)


# What a contained child may take and where it may write, and a watch on both.

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
        self._looked_at_disk = 0.0

    def settle(self) -> None:
        """Take what there is now for what a child starts with."""
        self._base = taken_below(os.getpid())

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
    return listed(Path("/proc/vmstat"), "oom_kill ") or 0


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
        memory += (listed(Path(f"/proc/{each}/{file}"), *counted) or 0) << 10
        cpu += processor_seconds(each)
    return Taken(len(pids), memory, cpu)


def is_stopped(pid: int) -> bool:
    """Whether a process does not go on until a signal has it do so."""
    return stat_of(pid)[:1] in (["T"], ["t"])


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


_SHM: Final = Path("/dev/shm")

THREADS_EACH: Final = 8
"""Threads for each process that is allowed: the system counts both as one."""


@dataclass
class Facts:
    """What is in force in one child.

    Attributes:
        held: names of the measures that hold.
        refused: what the system said to those that do not.
        landlock: version of Landlock's rules that hold, 0 for none.
    """

    held: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    landlock: int = 0

    @property
    def pids(self) -> bool:
        """Whether it lies in a process id namespace of its own."""
        return self.hold("user namespace") or self.hold("process id namespace")

    def hold(self, *names: str) -> bool:
        """Whether all of some measures hold."""
        return set(names) <= set(self.held)

    def tried(self, name: str, action: Callable[[], object]) -> bool:
        """Do something; return whether the system let it, and note that."""
        try:
            action()
        except OSError as error:
            self.refused[name] = error.strerror or type(error).__name__
            return False
        self.held.append(name)
        return True


class Confinement:
    """What one child is kept to; its methods are called in this order, in processes.

    Args:
        message: what its supervisor is started with.

    Attributes:
        limits: what it may take.
        scratch: its home and temporary files, which it may write to; gone with it.
        cache: what it builds and compiles, alike; its successors find it again.
        facts: what holds so far.
    """

    def __init__(self, message: Mapping[str, Any]) -> None:
        self.limits = Limits(**message["limits"])
        self._ways = message["ways"]
        self._gpu = bool(message["gpu"])
        self._hidden = [Path(path) for path in message["hidden"]]
        # What judges it: nothing is to be seen in the place of that.
        self._package = Path(message["package"])
        self.scratch, self.cache = Path(message["scratch"]), Path(message["cache"])
        self.facts = Facts()

    def enter_namespaces(self) -> None:
        """Move to namespaces: users and, from the next child on, process ids."""
        if "namespaces" not in self._ways:
            return

        def with_users() -> None:
            user, group = os.geteuid(), os.getegid()  # nobody's from then on
            unshare(NEW_USERS | NEW_PIDS)
            map_ids(user, group)

        # Half of it cannot be undone, so that another process tries first.
        if self.facts.tried("user namespace", lambda: _rehearse(with_users)):
            with_users()
        else:
            # Where users have none, the administrator's processes may have the others.
            self.facts.tried("process id namespace", lambda: unshare(NEW_PIDS))

    def enter_mounts(self) -> None:
        """Give this process a view of the file system that it cannot write to.

        It is process 1 of its namespace. But for its two folders all is read-only.
        """
        tried, scratch, cache = self.facts.tried, str(self.scratch), str(self.cache)
        if not self.facts.pids:
            return
        network = NEW_NETWORK | NEW_IPC | NEW_UTS
        tried("network namespace", lambda: unshare(network))
        private = MS_REC | MS_PRIVATE
        if not (
            tried("mount namespace", lambda: unshare(NEW_MOUNTS))
            and tried("private mounts", lambda: mount("none", "/", None, private))
        ):
            return
        plain = MS_NOSUID | MS_NODEV
        proc = plain | MS_NOEXEC
        tried("own /proc", lambda: mount("proc", "/proc", "proc", proc))
        with contextlib.suppress(OSError):  # else it is process 2 every time
            number = 300 + int.from_bytes(os.urandom(2)) % 30_000
            Path("/proc/sys/kernel/ns_last_pid").write_text(str(number))
        # A mount names what it hides to whoever looks for mounts.
        if self._hidden and not ("landlock" in self._ways and landlock_version()):
            tried("hidden files", lambda: _cover(self._hidden))
        tried("hidden package", lambda: _cover([self._package]))
        size = f"size={self.limits.scratch_bytes},mode=700"
        writable = [cache]
        if tried("tmpfs", lambda: mount("tmpfs", scratch, "tmpfs", plain, size)):
            writable.append(scratch)
            if tried("own /dev", lambda: self._own_devices(size)):
                writable.append(str(_SHM))

        def close() -> None:
            mount(cache, cache, None, MS_BIND)
            set_read_only("/", below=True)
            for folder in writable:
                set_read_only(folder, read_only=False)

        tried("read-only mounts", close)

    def _own_devices(self, size: str) -> None:
        """Put a /dev in place that holds what is needed alone."""
        folder = self.scratch / ".dev"
        folder.mkdir()
        mount("tmpfs", str(folder), "tmpfs", MS_NOSUID, "size=1m,mode=755")
        for device in devices(gpu=self._gpu):
            place = folder / device.relative_to("/dev")
            place.parent.mkdir(exist_ok=True)
            place.touch()
            mount(str(device), str(place), None, MS_BIND)
        for name, target in (
            ("fd", "/proc/self/fd"), ("stdin", "/proc/self/fd/0"),
            ("stdout", "/proc/self/fd/1"), ("stderr", "/proc/self/fd/2"),
        ):  # fmt: skip
            (folder / name).symlink_to(target)
        shared = folder / "shm"
        shared.mkdir()
        plain = MS_NOSUID | MS_NODEV
        mount("tmpfs", str(shared), "tmpfs", plain, size)
        mount(str(folder), "/dev", None, MS_MOVE)
        folder.rmdir()

    def restrict(self) -> None:
        """Limit this process: the last that is done before foreign code is imported."""
        tried = self.facts.tried
        self._set_limits()
        tried("capabilities", drop_capabilities)
        tried("no_new_privs", lambda: prctl(PR_SET_NO_NEW_PRIVS, 1))
        version = landlock_version() if "landlock" in self._ways else 0
        if version and tried("Landlock", self._landlock):
            self.facts.landlock = version
            if self._hidden:
                self.facts.held.append("hidden files")

    def _landlock(self) -> None:
        folders = [self.scratch, self.cache]
        if self.facts.hold("own /dev"):
            folders.append(_SHM)
        readable = list(_all_but(self._hidden, Path("/"))) if self._hidden else None
        restrict_by_landlock(folders, devices(gpu=self._gpu), readable)

    def _set_limits(self) -> None:
        limits = self.limits
        wanted = {
            "open files": (resource.RLIMIT_NOFILE, limits.files),
            "file size": (resource.RLIMIT_FSIZE, limits.file_bytes),
            "core files": (resource.RLIMIT_CORE, 0),
        }
        memory = limits.memory or allowance()
        mapped = listed(Path("/proc/self/status"), "VmSize:")
        if not self._gpu and memory and mapped:
            # A CUDA context maps far more address space than it takes memory.
            wanted["address space"] = (resource.RLIMIT_AS, (mapped << 10) + memory)
        if self.facts.pids and os.geteuid():
            # Outside a user namespace this would count all that the user runs; the
            # administrator is not counted at all.
            most = THREADS_EACH * limits.processes
            wanted["processes"] = (resource.RLIMIT_NPROC, most)
        for name, given in wanted.items():
            self.facts.tried(f"limit of {name}", partial(_limit, *given))

    def environment(self) -> dict[str, str]:
        """Return the variables that keep programs to its folders."""
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


def _rehearse(action: Callable[[], None]) -> None:
    """Do something in a process that ends with it.

    Raises:
        OSError: it did not succeed there.
    """
    pid = os.fork()
    if pid == 0:
        code = 255
        try:
            action()
            code = 0
        except OSError as error:
            code = min(error.errno or 255, 255)
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code:
        raise OSError(code, os.strerror(code))


def _cover(paths: Sequence[Path]) -> None:
    """Mount nothing over files and folders that exist."""
    for path in paths:
        if path.is_dir():
            flags = MS_NOSUID | MS_NODEV | MS_RDONLY
            mount("tmpfs", str(path), "tmpfs", flags, "size=4k,mode=555")
        elif path.exists():
            mount("/dev/null", str(path), None, MS_BIND)


def _all_but(hidden: Sequence[Path], folder: Path) -> Iterator[Path]:
    """Yield the largest parts of a folder in which nothing hidden lies."""
    try:
        entries = list(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        if entry.is_symlink() or entry in hidden:
            continue
        if any(path.is_relative_to(entry) for path in hidden):
            yield from _all_but(hidden, entry)
        else:
            yield entry


def _limit(which: int, value: int) -> None:
    _, hard = resource.getrlimit(which)
    least = value if hard == resource.RLIM_INFINITY else min(value, hard)
    try:
        resource.setrlimit(which, (least, least))
    except ValueError as error:
        raise OSError(0, str(error)) from None


# The campaign's own memory, kept from processes of the same user.
_closing_lock: Final = threading.Lock()
_holders = 0
_before = 1


def close_to_others() -> None:
    """Refuse tracing of this process, and reading of its memory; to be undone once."""
    global _holders, _before
    with _closing_lock:
        _holders += 1
        if _holders == 1:
            with contextlib.suppress(OSError):
                _before = prctl(PR_GET_DUMPABLE)
                prctl(PR_SET_DUMPABLE, 0)


def open_to_others() -> None:
    """Undo what `close_to_others` did, once all that asked for it have."""
    global _holders
    with _closing_lock:
        _holders -= 1
        if _holders == 0 and _before == 1:
            with contextlib.suppress(OSError):
                prctl(PR_SET_DUMPABLE, 1)


# What contains a child, in words ----------------------------------------------------

# Versions of Landlock from which it refuses TCP, and signals to processes outside.
_LANDLOCK_TCP: Final = 4
_LANDLOCK_SCOPES: Final = 6


def describe(facts: Facts, limits: Limits, *, gpu: bool) -> Containment:
    """Return what is in force and what is open, subject by subject.

    Args:
        facts: what the child found to hold.
        limits: what it may take.
        gpu: whether it uses a GPU.
    """
    who, why = "the user who runs kfuzz", ""
    for name in ("user namespace", "mount namespace", "network namespace"):
        if name in facts.refused and not why:
            why = f" ({name}: {facts.refused[name].lower()})"
    landlock, gone = facts.landlock, "; then the child is killed"
    memory = _mib(limits.memory) if limits.memory else "half of what is free"
    but = "the reference and"
    but = f"but {but} the corpus, and" if facts.hold("hidden files") else but
    own = facts.hold("network namespace")
    network = own or landlock >= _LANDLOCK_TCP
    told = {
        "memory": (True, f"its processes may take {memory}{gone}"),
        "time": (True, (
            f"a call may take {limits.wall_seconds:g} s, or longer where longer is "
            f"expected, and {limits.cpu_seconds:g} s of processor time{gone}"
        )),
        "processes": (True, (
            f"there may be {limits.processes}{gone}"
            + ("; none outlives it" if facts.pids else "")
        )),
        "disk": (True, f"its folders may take {_mib(limits.scratch_bytes)}{gone}"),
        "output": (True, f"it may print {_mib(limits.output_bytes)}{gone}"),
        "files": (
            (True, "it can write to its folders alone")
            if landlock or facts.hold("read-only mounts", "own /dev")
            else (False, f"it can write wherever {who} can{why}")
        ),
        "network": (network, (
            "it has no network interface" if own
            else "TCP is blocked; UDP and other protocols are not" if network
            else f"it can use the network{why}"
        )),
        "other processes": (
            (True, "it cannot signal or trace them")
            if facts.pids or landlock >= _LANDLOCK_SCOPES
            else (False, "it can kill those of the same user")
        ),
        "privileges": (
            (True, "it has none and can gain none")
            if facts.hold("capabilities", "no_new_privs")
            else (False, f"it keeps those of {who}")
        ),
        "environment": (True, "it inherits what compilers and drivers need alone"),
        "reading": (False, (
            f"it can read every file that {who} can read, {but} unix sockets"
        )),
    }  # fmt: skip
    if gpu:
        told["device"] = (False, (
            f"torch gives it at most {limits.device_share:.0%} of the GPU's memory; "
            "calls of the driver, and faults of the device, are not limited"
        ))  # fmt: skip
    return {name: Measure(name, *rest) for name, rest in told.items()}


def _mib(size: int) -> str:
    return f"{size // MIB} MiB"
