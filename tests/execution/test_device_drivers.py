"""What is asked of CUDA and of HIP, by libraries that only pretend."""

import ctypes

import pytest

from kfuzz.core.verdict import ILLEGAL_ADDRESS
from kfuzz.cuda.driver import (
    Access,
    Driver,
    Properties,
    VirtualMemory,
)
from kfuzz.execution.device.backends import fault_name


class Library:
    """A driver as far as it is used, keeping what it is given.

    Args:
        prefix: of its functions: "cu" or "hip".
        fails: a function, and the error that it returns.
        lacks: a function that it does not have.
    """

    def __init__(self, prefix, fails="", lacks=""):
        self.calls = []
        self._functions = {}
        self._prefix, self._fails, self._lacks = prefix, fails, lacks

    def __getattr__(self, name):
        if not name.startswith(self._prefix) or name == self._lacks:
            raise AttributeError(name)

        def call(*arguments):
            if name == "hipGetErrorName":
                return b"hipErrorOutOfMemory"
            if name == "cuGetErrorName":
                known = {2: b"CUDA_ERROR_OUT_OF_MEMORY", 1: b"CUDA_ERROR_INVALID_VALUE"}
                arguments[1]._obj.value = known[arguments[0]]
                return 0
            self.calls.append((name, *map(_read, arguments)))
            gives = {
                "MemGetAllocationGranularity": 4096,
                "MemAddressReserve": 1 << 40,
                "MemCreate": 78,
            }
            given = gives.get(name.removeprefix(self._prefix))
            if given is not None:
                arguments[0]._obj.value = given
            return 2 if name == self._fails else 0

        return self._functions.setdefault(name, call)


def _read(argument):
    return getattr(argument, "_obj", argument)


def memory_of(library, index=0):
    return VirtualMemory(index, Driver(library, hip=library._prefix == "hip"))


@pytest.mark.parametrize("prefix", ["cu", "hip"])
def test_a_driver_is_asked_for_memory_of_the_device(prefix):
    library = Library(prefix)
    memory = memory_of(library, 2)
    assert memory.granularity() == 4096
    assert memory.reserve(8192) == 1 << 40
    handle = memory.create(4096)
    assert handle == 78
    memory.map(1 << 40, 4096, handle)
    memory.set_access(1 << 40, 4096)
    memory.unmap(1 << 40, 4096)
    memory.release(handle)
    memory.free(1 << 40, 8192)
    names = [name.removeprefix(prefix) for name, *_ in library.calls]
    assert names == [
        "MemGetAllocationGranularity", "MemAddressReserve", "MemCreate", "MemMap",
        "MemSetAccess", "MemUnmap", "MemRelease", "MemAddressFree",
    ]  # fmt: skip
    properties = library.calls[0][2]
    assert isinstance(properties, Properties)
    where = (properties.location.type, properties.location.id)
    assert (properties.type, properties.handle_type, *where) == (1, 0, 1, 2)
    assert library.calls[1][2:] == (8192, 0, None, 0)
    assert library.calls[3][1:] == (1 << 40, 4096, 0, 78, 0)
    access, count = library.calls[4][3:]
    assert isinstance(access, Access)
    assert (access.location.id, access.flags, count) == (2, 3, 1)


def test_structures_are_laid_out_as_in_the_headers():
    # Two enumerations, a location of two ints, a pointer, then flags.
    assert ctypes.sizeof(Properties) == 32
    assert Properties.location.offset == 8
    assert Properties.metadata.offset == 16
    assert (ctypes.sizeof(Access), Access.flags.offset) == (12, 8)


class _Numbered(RuntimeError):
    error_code = 700


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (_Numbered("whatever it says"), ILLEGAL_ADDRESS),
        (
            RuntimeError("CUDA error: an illegal memory access was encountered\nMore"),
            ILLEGAL_ADDRESS,
        ),
        (RuntimeError("CUDA error: device-side assert triggered"), "assert"),
        (RuntimeError("CUDA error: misaligned address"), "misaligned_address"),
        (RuntimeError("CUDA error: unspecified launch failure"), "launch_failure"),
        (RuntimeError("something else"), "device_error"),
    ],
)
def test_a_fault_has_the_name_that_the_device_gives_it(error, name):
    assert fault_name(error) == name
