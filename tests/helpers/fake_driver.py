"""A driver of virtual memory that maps the machine's own, where pages fault too."""

import ctypes
import mmap

import torch

from kfuzz.cuda.driver import DriverError
from kfuzz.execution.memory import fences as pages

GRAIN = 1 << 16
FENCE = 4 * GRAIN


class FakeDriver:
    """Keeps account of what is reserved, created and mapped, and refuses misuse.

    Attributes:
        calls: names of the calls, in order.
        refuses: a call's name and the error that it gives.
        reserved: size by address; mapped: likewise; handles: size by handle.
    """

    def __init__(self, refuses=None):
        self.calls = []
        self.refuses = dict(refuses or {})
        self.reserved, self.mapped, self.handles = {}, {}, {}
        self._memory = {}
        self._next = 1

    @property
    def empty(self):
        """Whether nothing is held."""
        return not (self.reserved or self.mapped or self.handles)

    def granularity(self):
        return GRAIN

    def reserve(self, nbytes):
        self._note("reserve")
        assert nbytes % GRAIN == 0
        memory = mmap.mmap(-1, nbytes + GRAIN, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        first = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        address = -(-first // GRAIN) * GRAIN
        self._memory[address] = memory
        self.reserved[address] = nbytes
        _protect(address, nbytes, 0)
        return address

    def free(self, address, nbytes):
        self._note("free")
        assert self.reserved.pop(address) == nbytes
        inside = [a for a in self.mapped if address <= a < address + nbytes]
        assert not inside
        _protect(address, nbytes, mmap.PROT_READ | mmap.PROT_WRITE)
        del self._memory[address]

    def create(self, nbytes):
        self._note("create")
        assert nbytes % GRAIN == 0
        assert nbytes > 0
        self._next += 1
        self.handles[self._next] = nbytes
        return self._next

    def release(self, handle):
        self._note("release")
        del self.handles[handle]

    def map(self, address, nbytes, handle):
        self._note("map")
        assert self.handles[handle] == nbytes
        assert address % GRAIN == 0
        self.mapped[address] = nbytes

    def unmap(self, address, nbytes):
        self._note("unmap")
        assert self.mapped.pop(address) == nbytes
        _protect(address, nbytes, 0)

    def set_access(self, address, nbytes):
        self._note("set_access")
        assert self.mapped[address] == nbytes
        _protect(address, nbytes, mmap.PROT_READ | mmap.PROT_WRITE)

    def _note(self, name):
        self.calls.append(name)
        if name in self.refuses:
            raise DriverError(name, self.refuses[name])


def _protect(address, nbytes, protection):
    libc = ctypes.CDLL(None)
    size = ctypes.c_size_t(nbytes)
    assert libc.mprotect(ctypes.c_void_p(address), size, protection) == 0


def tensor_over(address, nbytes, keeps, device):
    """Return what torch makes of memory on a device, for that of the machine."""

    class Kept(ctypes.c_ubyte * nbytes):
        pass

    memory = Kept.from_address(address)
    memory.keeps = keeps
    return torch.frombuffer(memory, dtype=torch.uint8)


def install(monkeypatch):
    """Have device memory be the machine's, with fences of few pages."""
    monkeypatch.setattr(pages, "tensor_over", tensor_over)
    monkeypatch.setattr(pages, "DEVICE_FENCE_BYTES", FENCE)
