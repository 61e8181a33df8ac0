"""Calls of the Linux kernel that Python has no functions for.

Numbers and structures are those of <linux/sched.h>, <linux/mount.h>, <linux/prctl.h>,
<linux/capability.h> and <linux/landlock.h>; the system call numbers from 424 on are the
same on every architecture.
"""

import contextlib
import ctypes
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

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

PR_SET_PDEATHSIG: Final = 1
PR_GET_DUMPABLE: Final = 3
PR_SET_DUMPABLE: Final = 4
PR_CAPBSET_DROP: Final = 24
PR_SET_CHILD_SUBREAPER: Final = 36
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

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def _syscall(number: int, *arguments: object) -> int:
    """Call the kernel; integers are passed as machine words.

    Raises:
        OSError: the kernel refused, or lacks the call.
    """
    given = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return _checked(_libc.syscall(ctypes.c_long(number), *given))


def prctl(option: int, value: int = 0) -> int:
    """Get or set a property of this process.

    Raises:
        OSError: the kernel refused.
    """
    return _checked(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0))


def unshare(flags: int) -> None:
    """Move this process (the next child, for process ids) to new namespaces.

    Raises:
        OSError: the kernel refused.
    """
    _checked(_libc.unshare(ctypes.c_int(flags)))


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
    _checked(
        _libc.mount(
            os.fsencode(source),
            os.fsencode(target),
            None if kind is None else kind.encode(),
            ctypes.c_ulong(flags),
            os.fsencode(data) or None,
        )
    )


class _MountAttributes(ctypes.Structure):
    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("users", ctypes.c_uint64),
    )


def set_read_only(path: str, *, read_only: bool = True, below: bool = False) -> None:
    """Make a mount read-only or not, with all mounts below it if asked.

    Raises:
        OSError: the kernel refused, or is older than 5.12.
    """
    wanted = (MS_RDONLY, 0) if read_only else (0, MS_RDONLY)
    attributes = _MountAttributes(*wanted, 0, 0)
    _syscall(
        _MOUNT_SETATTR, _AT_FDCWD, os.fsencode(path), _AT_RECURSIVE if below else 0,
        ctypes.byref(attributes), ctypes.sizeof(attributes),
    )  # fmt: skip


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


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
    header = _CapabilityHeader(_CAP_VERSION, 0)
    nothing = (ctypes.c_uint32 * 6)()
    _checked(_libc.capset(ctypes.byref(header), ctypes.byref(nothing)))


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


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("files", ctypes.c_uint64),
        ("network", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


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
    rules = _Ruleset(
        rights, _NET_TCP if version >= 4 else 0, _SCOPED if version >= 6 else 0
    )
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = _syscall(_LANDLOCK_CREATE, ctypes.byref(rules), size, 0)
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
        rule = _PathRule(rights, opened)
        _syscall(_LANDLOCK_ADD, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(opened)
