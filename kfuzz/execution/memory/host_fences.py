"""Memory beside pages that fault when touched, and address space without memory.

Both come from mmap. What lies between two fences is ordinary memory; touching a
fence ends the process with SIGSEGV (SIGBUS on macOS), so that an access outside is
seen even where its value is unused. Sparse memory costs what is touched of it,
which is how a view of few elements can reach past 2^31 of them.
"""

import contextlib
import ctypes
import mmap
import sys
from functools import cache
from typing import Final

import torch
from torch import Tensor

from kfuzz.core.errors import HarnessError

FENCE_BYTES: Final = 1 << 20
"""Width of a fence, a multiple of every page size: it costs address space only, and
an access that misses its argument by a few rows still lands in it."""

# From <sys/mman.h>.
_PROT_NONE: Final = 0
_PROT_READ: Final = 1
# Linux's number on x86 and Arm; macOS overcommits without it.
_MAP_NORESERVE: Final = 0x4000 if sys.platform == "linux" else 0
_MADV_NOHUGEPAGE: Final = 15


class NoAddressSpace(HarnessError):
    """The system does not give as much address space as a view spans."""


@cache
def available() -> bool:
    """Whether fences can be made here: tried once, with a small one."""
    try:
        fenced_memory(1)
    except HarnessError:
        return False
    return True


def fenced_memory(nbytes: int, *, readable: bool = False) -> Tensor:
    """Return memory whose first byte follows a fence and whose last precedes one.

    Args:
        nbytes: rounded up to whole pages.
        readable: let reads of the fences pass, so that only writes fault.

    Returns:
        A uint8 tensor. Its storage includes the fences: slice the storage before
        any operation that touches all of one.

    Raises:
        HarnessError: if this system cannot do it.
    """
    room = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    whole = _mapped(room + 2 * FENCE_BYTES, private=True)
    protection = _PROT_READ if readable else _PROT_NONE
    for start in (0, FENCE_BYTES + room):
        _protect(whole.data_ptr() + start, FENCE_BYTES, protection)
    return whole[FENCE_BYTES : FENCE_BYTES + room]


def sparse_memory(nbytes: int) -> Tensor:
    """Return zeroed memory of which only touched pages exist, as uint8.

    It is shared memory, so that a limit on a process's data leaves it out.

    Raises:
        NoAddressSpace: if there is not as much address space.
    """
    return _mapped(nbytes, private=False)


def _mapped(nbytes: int, *, private: bool) -> Tensor:
    sharing = mmap.MAP_PRIVATE if private else mmap.MAP_SHARED
    flags = sharing | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    try:
        mapping = mmap.mmap(-1, nbytes, flags=flags)
    except (OSError, OverflowError, ValueError) as error:
        raise NoAddressSpace(
            f"cannot map {nbytes / 2**30:.3g} GiB of address space: {error}",
            where="kfuzz.execution.memory.host_fences",
            fix="vm.overcommit_memory=2 and ulimit -v prevent it",
        ) from None
    if sys.platform == "linux":
        # One touched byte must not cost a page of 2 MiB; not every kernel has those.
        with contextlib.suppress(OSError):
            mapping.madvise(_MADV_NOHUGEPAGE)
    # The tensor keeps the mapping; the last of its storages to go unmaps it.
    return torch.frombuffer(mapping, dtype=torch.uint8)


def _protect(address: int, nbytes: int, protection: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    call = getattr(libc, "mprotect", None)
    if call is None:
        raise HarnessError("this system has no mprotect")
    if call(ctypes.c_void_p(address), ctypes.c_size_t(nbytes), protection):
        raise HarnessError(f"mprotect failed, errno {ctypes.get_errno()}")
