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
import weakref
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import torch
from torch import Tensor

from kfuzz.core.errors import HarnessError
from kfuzz.cuda.driver import DriverError, VirtualMemory
from kfuzz.execution.device.backends import backend_of

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
            where="kfuzz.execution.memory.fences",
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


# Device memory beside pages that fault, and address space with memory in windows.
#
# A range of addresses is reserved, and physical memory mapped under a part of it. An
# access to the rest is an illegal address: it ends the context of its process, whether
# or not a loaded value is used, and costs nothing otherwise.

DEVICE_FENCE_BYTES: Final = 32 << 20
"""Width of a fence, a multiple of every granularity: an access that misses its
argument by a thousand rows still lands in it."""

Parts = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Fenced:
    """Memory between two fences.

    Attributes:
        memory: uint8; the fences too where they can be read.
        start: byte in `memory` where the fence in front ends.
        stop: byte in `memory` where the fence behind begins.
    """

    memory: Tensor
    start: int
    stop: int


class Range:
    """Reserved addresses with physical memory under some of them.

    They are given back, once, when the object goes. A process that ends gives nothing
    back itself: its driver does, and may be gone before the interpreter is.

    Args:
        driver: of the device.
        device: the device.
        nbytes: size, a multiple of the granularity.
        parts: (offset, size) of what is mapped, multiples of it too.

    Raises:
        NoAddressSpace: if there is not enough of either.
        DriverError: if the driver refuses for another reason.

    Attributes:
        address: of the first byte.
    """

    def __init__(
        self, driver: VirtualMemory, device: torch.device, nbytes: int, parts: Parts
    ) -> None:
        mapped: list[tuple[int, int]] = []
        try:
            self.address = driver.reserve(nbytes)
        except DriverError as error:
            raise _refused(error, nbytes) from None
        try:
            for offset, size in parts:
                handle = driver.create(size)
                try:
                    driver.map(self.address + offset, size, handle)
                finally:
                    driver.release(handle)  # mapped memory stays without
                mapped.append((self.address + offset, size))
                driver.set_access(self.address + offset, size)
        except DriverError as error:
            _give_back(driver, self.address, nbytes, mapped)
            raise _refused(error, nbytes) from None
        finalizer = weakref.finalize(
            self, _retire, driver, device, self.address, nbytes, mapped
        )
        finalizer.atexit = False


def _refused(error: DriverError, nbytes: int) -> HarnessError:
    if not error.out_of_memory:
        return error
    return NoAddressSpace(
        f"cannot map {nbytes / 2**30:.3g} GiB on the device: {error}",
        where="kfuzz.execution.memory.fences",
        fix="another process may hold its memory",
    )


def _retire(
    driver: VirtualMemory, device: torch.device, address: int, nbytes: int, parts: Parts
) -> None:
    """Give a range back once the device has done with it.

    After a fault the context is lost and takes no call; while a graph is captured
    the device cannot be waited for: both leave the range to the end of the process.
    """
    if backend_of(device).has.asynchronous:
        try:
            if torch.cuda.is_current_stream_capturing():
                return
            backend_of(device).wait(device)
        except RuntimeError:
            return
    _give_back(driver, address, nbytes, parts)


def _give_back(driver: VirtualMemory, address: int, nbytes: int, parts: Parts) -> None:
    try:
        for start, size in parts:
            driver.unmap(start, size)
        driver.free(address, nbytes)
    except DriverError:
        # The context is lost; nothing is wrong that its end does not mend.
        return


class _Memory:
    """What torch makes a tensor of, and keeps for as long as its storage."""

    def __init__(self, address: int, nbytes: int, keeps: object) -> None:
        self.keeps = keeps
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


def tensor_over(
    address: int, nbytes: int, keeps: object, device: torch.device
) -> Tensor:
    """Return a uint8 tensor over memory of a device.

    Args:
        address: of its first byte, mapped as all that follow.
        nbytes: its size.
        keeps: what has to live as long as the tensor's storage.
        device: where the memory is.
    """
    return torch.as_tensor(_Memory(address, nbytes, keeps), device=device)


@cache
def _driver_of(device: torch.device) -> VirtualMemory:
    return backend_of(device).virtual_memory(device)


def fenced_device_memory(
    nbytes: int,
    device: torch.device,
    *,
    readable: bool = False,
    driver: VirtualMemory | None = None,
) -> Fenced:
    """Return memory whose first byte follows a fence and whose last precedes one.

    Args:
        nbytes: rounded up to a power of two of the granularity, commonly 2 MiB.
        device: where.
        readable: map the fences as well: nothing faults, and a write there can be
            seen, for they are part of the tensor.
        driver: of the device; the one that torch runs on by default.

    Raises:
        HarnessError: if this system cannot do it.
    """
    return Pool(device, driver).take(nbytes, readable=readable)


class _Lease:
    """The use of one range by one tensor; the range is free again when it goes."""

    def __init__(self, made: Range, free: list[Range]) -> None:
        self.made = made
        weakref.finalize(self, free.append, made).atexit = False


class Pool:
    """Fenced memory that is used again as soon as no tensor lies in it.

    Args:
        device: where.
        driver: of the device; the one that torch runs on by default.
    """

    def __init__(
        self, device: torch.device, driver: VirtualMemory | None = None
    ) -> None:
        self._device = device
        self._driver = driver
        self._free: dict[tuple[int, bool], list[Range]] = defaultdict(list)

    def take(self, nbytes: int, *, readable: bool) -> Fenced:
        """Return fenced memory of at least this size, as `fenced_memory` does.

        Raises:
            HarnessError: if this system cannot do it.
        """
        driver = _driver_of(self._device) if self._driver is None else self._driver
        room = driver.granularity()
        while room < nbytes:
            room *= 2
        free = self._free[room, readable]
        whole, fence = room + 2 * DEVICE_FENCE_BYTES, DEVICE_FENCE_BYTES
        if not free:
            parts = [(0, whole)] if readable else [(fence, room)]
            free.append(Range(driver, self._device, whole, parts))
        made = free.pop()
        keeps = _Lease(made, free)
        if readable:
            memory = tensor_over(made.address, whole, keeps, self._device)
            return Fenced(memory, fence, fence + room)
        memory = tensor_over(made.address + fence, room, keeps, self._device)
        return Fenced(memory, 0, room)


@cache
def unavailable(device: torch.device) -> str:
    """Return why no fences can be made on a device, "" where they can.

    Tried once, with a small one that is written and read. That they fault is not
    tried here, for it would end the context: `kfuzz doctor` does.
    """
    try:
        memory = fenced_device_memory(1, device).memory
        memory.fill_(1)
        works = bool(memory[-1] == 1)
    except (HarnessError, RuntimeError) as error:
        return str(error).partition("\n")[0]
    return "" if works else "memory mapped beside a fence does not keep its bytes"
