"""Containment, applied by a child to itself before it imports anything foreign.

Each measure is tried; one that the system refuses is left out and told. None depends on
another, but that Landlock needs `no_new_privs`.
"""

import contextlib
import os
import resource
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from kfuzz.core.untrusted import Measures
from kfuzz.execution.processes.limits import allowance
from kfuzz.judge.sandbox import linux
from kfuzz.judge.sandbox.folders import Rooms, devices
from kfuzz.judge.sandbox.limits import Limits

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


def enter_mounts(facts: Facts, rooms: Rooms, limits: Limits, *, gpu: bool) -> Facts:
    """Give this process a view of the file system that it cannot write to.

    It is process 1 of its namespace. But for its two folders all is read-only.

    Args:
        facts: what holds already.
        rooms: its folders.
        limits: the size of its scratch folder.
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
    hidden = linux.MS_NOSUID | linux.MS_NODEV
    proc = hidden | linux.MS_NOEXEC
    facts.tried("own /proc", lambda: linux.mount("proc", "/proc", "proc", proc))
    scratch, cache = str(rooms.scratch), str(rooms.cache)
    size = f"size={limits.scratch_bytes},mode=700"
    quota = facts.tried(
        "tmpfs", lambda: linux.mount("tmpfs", scratch, "tmpfs", hidden, size)
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
    return replace(facts, quota=quota, own_devices=own, read_only=closed and quota)


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
    hidden = linux.MS_NOSUID | linux.MS_NODEV
    linux.mount("tmpfs", str(shared), "tmpfs", hidden, size)
    linux.mount(str(folder), "/dev", None, linux.MS_MOVE)
    folder.rmdir()


def restrict(
    facts: Facts, measures: Measures, rooms: Rooms, limits: Limits, *, gpu: bool
) -> Facts:
    """Limit this process: the last that is done before foreign code is imported.

    Args:
        facts: what holds already.
        measures: what is tried.
        rooms: where it may write.
        limits: what it may take.
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
    if version and facts.tried("Landlock", lambda: _landlock(facts, rooms, gpu=gpu)):
        facts = replace(facts, landlock=version)
    return facts


def _landlock(facts: Facts, rooms: Rooms, *, gpu: bool) -> None:
    folders = [rooms.scratch, rooms.cache]
    if facts.own_devices:
        folders.append(_SHM)
    linux.restrict_by_landlock(folders, devices(gpu=gpu))


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
