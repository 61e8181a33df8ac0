"""Containment, applied by a child to itself before it imports anything foreign.

Each measure is tried; one that the system refuses is left out and told. None depends on
another, but that Landlock needs `no_new_privs`.
"""

import contextlib
import os
import resource
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from kfuzz.core.untrusted import Containment, Measure, Measures
from kfuzz.execution.processes.limits import allowance
from kfuzz.judge.sandbox import linux
from kfuzz.judge.sandbox.hiding import package
from kfuzz.judge.sandbox.limits import MIB, Limits, Rooms, devices

_SHM: Final = Path("/dev/shm")

THREADS_EACH: Final = 8
"""Threads for each process that is allowed: the system counts both as one."""


@dataclass(frozen=True)
class Facts:
    """What is in force in one child.

    Attributes:
        pids: whether it lies in a process id namespace of its own.
        network: whether it lies in a network namespace of its own.
        quota: whether its scratch folder is a file system of a fixed size.
        read_only: whether all else is mounted read-only.
        own_devices: whether /dev holds the devices that it needs and no others.
        landlock: version of the rules that hold, 0 for none.
        no_new_privileges: whether programs that it runs gain none.
        capabilities_dropped: whether it has no capability left.
        hidden: whether what it must not read cannot be read.
        limits: names of the resource limits that the system took.
        refused: what the system said to measures that do not hold.
    """

    pids: bool = False
    network: bool = False
    quota: bool = False
    read_only: bool = False
    own_devices: bool = False
    landlock: int = 0
    no_new_privileges: bool = False
    capabilities_dropped: bool = False
    hidden: bool = False
    limits: tuple[str, ...] = ()
    refused: dict[str, str] = field(default_factory=dict)

    def tried(self, name: str, action: Callable[[], object]) -> bool:
        """Do something; return whether the system let it, and note what it said."""
        try:
            action()
        except OSError as error:
            self.refused[name] = error.strerror or type(error).__name__
            return False
        return True


def enter_namespaces(facts: Facts) -> Facts:
    """Move to namespaces: users and, from the next child on, process ids."""

    def with_users() -> None:
        user, group = os.geteuid(), os.getegid()  # nobody's from then on
        linux.unshare(linux.NEW_USERS | linux.NEW_PIDS)
        linux.map_ids(user, group)

    # Half of it cannot be undone, so that another process tries first.
    if facts.tried("user namespace", lambda: _rehearse(with_users)):
        with_users()
        return replace(facts, pids=True)
    # Where users have none, the administrator's processes may have the others.
    alone = facts.tried("process id namespace", lambda: linux.unshare(linux.NEW_PIDS))
    return replace(facts, pids=alone)


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


def enter_mounts(
    facts: Facts,
    rooms: Rooms,
    limits: Limits,
    hidden: Sequence[Path] = (),
    *,
    gpu: bool,
) -> Facts:
    """Give this process a view of the file system that it cannot write to.

    It is process 1 of its namespace. But for its two folders all is read-only.

    Args:
        facts: what holds already.
        rooms: its folders.
        limits: the size of its scratch folder.
        hidden: files and folders in whose place there is nothing to read.
        gpu: whether it needs the devices of GPUs.
    """
    network = linux.NEW_NETWORK | linux.NEW_IPC | linux.NEW_UTS
    cut = facts.tried("network namespace", lambda: linux.unshare(network))
    facts = replace(facts, network=cut)
    if not facts.tried("mount namespace", lambda: linux.unshare(linux.NEW_MOUNTS)):
        return facts
    private = linux.MS_REC | linux.MS_PRIVATE
    if not facts.tried(
        "private mounts", lambda: linux.mount("none", "/", None, private)
    ):
        return facts
    plain = linux.MS_NOSUID | linux.MS_NODEV
    proc = plain | linux.MS_NOEXEC
    facts.tried("own /proc", lambda: linux.mount("proc", "/proc", "proc", proc))
    with contextlib.suppress(OSError):  # else it is process 2 every time
        number = 300 + int.from_bytes(os.urandom(2)) % 30_000
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(number))
    unseen = facts.tried("hidden files", lambda: _cover(hidden))
    facts.tried("hidden package", lambda: _cover([package()]))
    scratch, cache = str(rooms.scratch), str(rooms.cache)
    size = f"size={limits.scratch_bytes},mode=700"
    quota = facts.tried(
        "tmpfs", lambda: linux.mount("tmpfs", scratch, "tmpfs", plain, size)
    )
    own = quota and facts.tried("own /dev", lambda: _own_devices(rooms, size, gpu=gpu))

    def close() -> None:
        linux.mount(cache, cache, None, linux.MS_BIND)
        linux.set_read_only("/", below=True)
        for writable in (cache, *([scratch] if quota else ())):
            linux.set_read_only(writable, read_only=False)
        if own:
            linux.set_read_only(str(_SHM), read_only=False)

    closed = facts.tried("read-only mounts", close)
    return replace(
        facts,
        quota=quota,
        own_devices=own,
        read_only=closed and quota,
        hidden=unseen and bool(hidden),
    )


def _cover(paths: Sequence[Path]) -> None:
    """Mount nothing over files and folders that exist."""
    for path in paths:
        if path.is_dir():
            flags = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_RDONLY
            linux.mount("tmpfs", str(path), "tmpfs", flags, "size=4k,mode=555")
        elif path.exists():
            linux.mount("/dev/null", str(path), None, linux.MS_BIND)


def _own_devices(rooms: Rooms, size: str, *, gpu: bool) -> None:
    """Put a /dev in place that holds what is needed alone."""
    folder = rooms.scratch / ".dev"
    folder.mkdir()
    linux.mount("tmpfs", str(folder), "tmpfs", linux.MS_NOSUID, "size=1m,mode=755")
    for device in devices(gpu=gpu):
        place = folder / device.relative_to("/dev")
        place.parent.mkdir(exist_ok=True)
        place.touch()
        linux.mount(str(device), str(place), None, linux.MS_BIND)
    for name, target in (
        ("fd", "/proc/self/fd"), ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"), ("stderr", "/proc/self/fd/2"),
    ):  # fmt: skip
        (folder / name).symlink_to(target)
    shared = folder / "shm"
    shared.mkdir()
    plain = linux.MS_NOSUID | linux.MS_NODEV
    linux.mount("tmpfs", str(shared), "tmpfs", plain, size)
    linux.mount(str(folder), "/dev", None, linux.MS_MOVE)
    folder.rmdir()


def restrict(
    facts: Facts,
    measures: Measures,
    rooms: Rooms,
    limits: Limits,
    hidden: Sequence[Path] = (),
    *,
    gpu: bool,
) -> Facts:
    """Limit this process: the last that is done before foreign code is imported.

    Args:
        facts: what holds already.
        measures: what is tried.
        rooms: where it may write.
        limits: what it may take.
        hidden: files and folders that it may not read.
        gpu: whether it uses a GPU.
    """
    if measures.limits:
        facts = replace(facts, limits=_set_limits(facts, limits, gpu=gpu))
    if measures.privileges:
        dropped = facts.tried("capabilities", linux.drop_capabilities)
        facts = replace(facts, capabilities_dropped=dropped)
    if measures.privileges or measures.landlock:
        kept = facts.tried(
            "no_new_privs", lambda: linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
        )
        facts = replace(facts, no_new_privileges=kept)
    version = linux.landlock_version() if measures.landlock else 0
    if version and facts.tried(
        "Landlock", lambda: _landlock(facts, rooms, hidden, gpu=gpu)
    ):
        unread = facts.hidden or bool(hidden)
        facts = replace(facts, landlock=version, hidden=unread)
    return facts


def _landlock(facts: Facts, rooms: Rooms, hidden: Sequence[Path], *, gpu: bool) -> None:
    folders = [rooms.scratch, rooms.cache]
    if facts.own_devices:
        folders.append(_SHM)
    readable: list[Path] | None = None
    if hidden:
        readable = list(_all_but(hidden, Path("/")))
    linux.restrict_by_landlock(folders, devices(gpu=gpu), readable)


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


def _set_limits(facts: Facts, limits: Limits, *, gpu: bool) -> tuple[str, ...]:
    wanted = {
        "open files": (resource.RLIMIT_NOFILE, limits.files),
        "file size": (resource.RLIMIT_FSIZE, limits.file_bytes),
        "core files": (resource.RLIMIT_CORE, 0),
    }
    memory = limits.memory or allowance()
    mapped = _mapped_bytes()
    if not gpu and memory and mapped:
        # A CUDA context maps far more address space than it takes memory.
        wanted["address space"] = (resource.RLIMIT_AS, mapped + memory)
    if facts.pids and os.geteuid():
        # Outside a user namespace this would count all that the user runs; the
        # administrator is not counted at all.
        wanted["processes"] = (resource.RLIMIT_NPROC, THREADS_EACH * limits.processes)
    taken = []
    for name, (which, value) in wanted.items():

        def limit(which: int = which, value: int = value) -> None:
            _, hard = resource.getrlimit(which)
            least = value if hard == resource.RLIM_INFINITY else min(value, hard)
            try:
                resource.setrlimit(which, (least, least))
            except ValueError as error:
                raise OSError(0, str(error)) from None

        if facts.tried(f"limit of {name}", limit):
            taken.append(name)
    return tuple(taken)


def _mapped_bytes() -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        return pages * resource.getpagesize()
    return 0


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
                _before = linux.prctl(linux.PR_GET_DUMPABLE)
                linux.prctl(linux.PR_SET_DUMPABLE, 0)


def open_to_others() -> None:
    """Undo what `close_to_others` did, once all that asked for it have."""
    global _holders
    with _closing_lock:
        _holders -= 1
        if _holders == 0 and _before == 1:
            with contextlib.suppress(OSError):
                linux.prctl(linux.PR_SET_DUMPABLE, 1)


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
    network, others, files = _of_network(facts), _of_others(facts), _of_files(facts)
    room = _mib(limits.memory) if limits.memory else "half of what is free"
    memory = f"its processes are watched and killed beyond {room}"
    if "address space" in facts.limits:
        memory = f"address space is limited, so that allocating fails; {memory}"
    elif gpu:
        memory += " (on a GPU address space cannot be limited)"
    room = _mib(limits.scratch_bytes)
    disk = "its folders are measured several times a second, and it is killed beyond "
    if facts.quota:
        disk = f"a file system in memory of {room}; builds go to a folder that is "
        disk += "measured, and it is killed beyond "
    alone = "none outlives the child" if facts.pids else ""
    but = "the reference and"
    if facts.hidden:
        but = "but the reference and the corpus, and"
    included = "" if facts.hidden else " included"
    told = {
        "memory": (True, memory),
        "time": (True, (
            f"a call may take {limits.wall_seconds:g} s, or longer where longer is "
            f"expected, and {limits.cpu_seconds:g} s of processor time; then the child "
            "is killed"
        )),
        "processes": (True, (
            f"counted, and all killed beyond {limits.processes}; "
            f"{alone or 'one that forks faster than it is looked for wins'}"
        )),
        "disk": (True, disk + room),
        "output": (True, (
            "what it prints is read and dropped; past "
            f"{_mib(limits.output_bytes)} it is killed"
        )),
        "files": files,
        "network": network,
        "other processes": others,
        "privileges": (
            (True, "it has none and can gain none")
            if facts.capabilities_dropped and facts.no_new_privileges
            else (False, "it keeps those of the user who runs kfuzz")
        ),
        "environment": (True, (
            "it inherits a short list of variables that compilers and drivers need"
        )),
        "reading": (False, (
            f"it can read every file that the user who runs kfuzz can read, {but} unix "
            f"sockets by path{included}"
        )),
    }  # fmt: skip
    if gpu:
        told["device"] = (False, (
            f"torch gives it at most {limits.device_share:.0%} of the GPU's memory; "
            "calls of the driver are not limited, and a fault of the driver or the "
            "device itself reaches every process on that GPU"
        ))  # fmt: skip
    return Containment(tuple(Measure(name, *rest) for name, rest in told.items()))


def _of_files(facts: Facts) -> tuple[bool, str]:
    landlock = f"Landlock {facts.landlock} prevents writes outside its folders"
    if facts.read_only:
        text = "all but its folders is mounted read-only"
        if facts.landlock:
            return True, f"{text}; {landlock}"
        if facts.own_devices:
            return True, f"{text}, and it has no devices but its own"
        return False, f"{text}, but it can write to devices that the user can open"
    if facts.landlock:
        return True, landlock
    return False, "it can write wherever the user who runs kfuzz can" + _why(facts)


def _of_network(facts: Facts) -> tuple[bool, str]:
    if facts.network:
        return True, "it has no network interface"
    if facts.landlock >= _LANDLOCK_TCP:
        return True, "TCP is blocked; UDP and other protocols are not"
    return False, "it can use the network" + _why(facts)


def _of_others(facts: Facts) -> tuple[bool, str]:
    if facts.pids or facts.landlock >= _LANDLOCK_SCOPES:
        return True, "it cannot signal or trace them"
    if facts.landlock:
        return False, (
            "it cannot trace them or read their memory, but can kill those of the same "
            "user"
        )
    return False, "it can kill those of the same user; kfuzz's own cannot be traced"


def _why(facts: Facts) -> str:
    for name in ("user namespace", "mount namespace", "network namespace"):
        if name in facts.refused:
            return f" ({name}: {facts.refused[name].lower()})"
    return ""


def _mib(size: int) -> str:
    return f"{size // MIB} MiB"
