"""What is asked of CUDA and of HIP, by libraries that only pretend."""

import ctypes
import enum
import importlib.util
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from kfuzz.core.errors import HarnessError
from kfuzz.core.verdict import ILLEGAL_ADDRESS
from kfuzz.execution.device.backends import backend_of
from kfuzz.execution.device.cuda import CudaMemory, bindings
from kfuzz.execution.device.driver import DriverError
from kfuzz.execution.device.gpu import fault_name
from kfuzz.execution.device.hip import Access, HipMemory, Properties

GRAIN = 2 << 20


class Number(int):
    """One of cuda-bindings' numbers with a type of their own."""


class Result(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2


class CudaModule:
    """The part of cuda.bindings.driver that is used, keeping what it is given."""

    CUmemAllocationProp = staticmethod(
        lambda: SimpleNamespace(location=SimpleNamespace())
    )
    CUmemAccessDesc = SimpleNamespace
    CUmemAllocationType = SimpleNamespace(CU_MEM_ALLOCATION_TYPE_PINNED="pinned")
    CUmemLocationType = SimpleNamespace(CU_MEM_LOCATION_TYPE_DEVICE="device")
    CUmemAllocationGranularity_flags = SimpleNamespace(
        CU_MEM_ALLOC_GRANULARITY_MINIMUM="minimum"
    )
    CUmemAccess_flags = SimpleNamespace(
        CU_MEM_ACCESS_FLAGS_PROT_READWRITE="read and write"
    )
    CUdeviceptr = Number
    CUmemGenericAllocationHandle = Number

    def __init__(self, **errors):
        self.calls, self.errors = [], errors

    def __getattr__(self, name):
        if not name.startswith("cuMem"):
            raise AttributeError(name)
        gives = {
            "cuMemGetAllocationGranularity": GRAIN,
            "cuMemAddressReserve": Number(1 << 40),
            "cuMemCreate": Number(77),
        }

        def call(*arguments):
            self.calls.append((name, *arguments))
            error = self.errors.get(name, Result.CUDA_SUCCESS)
            return (error, gives[name]) if name in gives else (error,)

        return call


def test_cuda_is_asked_for_memory_of_the_device():
    module = CudaModule()
    memory = CudaMemory(3, module)
    assert memory.granularity() == GRAIN
    assert memory.reserve(3 * GRAIN) == 1 << 40
    handle = memory.create(GRAIN)
    memory.map((1 << 40) + GRAIN, GRAIN, handle)
    memory.set_access((1 << 40) + GRAIN, GRAIN)
    memory.unmap((1 << 40) + GRAIN, GRAIN)
    memory.release(handle)
    memory.free(1 << 40, 3 * GRAIN)
    names = [name for name, *_ in module.calls]
    assert names == [
        "cuMemGetAllocationGranularity", "cuMemAddressReserve", "cuMemCreate",
        "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease",
        "cuMemAddressFree",
    ]  # fmt: skip
    properties, least = module.calls[0][1:]
    assert (properties.type, least) == ("pinned", "minimum")
    assert (properties.location.type, properties.location.id) == ("device", 3)
    assert module.calls[1][1:] == (3 * GRAIN, 0, 0, 0)
    assert module.calls[2][1:] == (GRAIN, properties, 0)
    assert module.calls[3][1:] == ((1 << 40) + GRAIN, GRAIN, 0, 77, 0)
    [access], count = module.calls[4][3:]
    assert count == 1
    assert access.location is properties.location
    assert access.flags == "read and write"
    assert module.calls[5][1:] == ((1 << 40) + GRAIN, GRAIN)


def test_cudas_errors_have_the_drivers_names():
    module = CudaModule(cuMemCreate=Result.CUDA_ERROR_OUT_OF_MEMORY)
    with pytest.raises(DriverError, match=r"cuMemCreate.*OUT_OF_MEMORY") as caught:
        CudaMemory(0, module).create(GRAIN)
    assert caught.value.out_of_memory
    module = CudaModule(cuMemMap=Result.CUDA_ERROR_INVALID_VALUE)
    with pytest.raises(DriverError) as caught:
        CudaMemory(0, module).map(0, GRAIN, 1)
    assert not caught.value.out_of_memory


def test_missing_bindings_are_named_with_the_way_to_get_them(monkeypatch):
    for name in ("cuda", "cuda.bindings", "cuda.bindings.driver", "cuda.cuda"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(HarnessError, match="pip install cuda-bindings"):
        bindings()


def test_the_module_of_older_versions_will_do(monkeypatch):
    old = ModuleType("cuda.cuda")
    monkeypatch.setitem(sys.modules, "cuda", ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    monkeypatch.setitem(sys.modules, "cuda.cuda", old)
    assert bindings() is old


@pytest.mark.skipif(
    importlib.util.find_spec("cuda") is None
    or importlib.util.find_spec("cuda.bindings") is None,
    reason="needs cuda-bindings",
)
def test_the_real_bindings_take_what_they_are_given():
    memory = CudaMemory(1)
    assert "id : 1" in str(memory._properties)
    if not torch.cuda.is_available():
        with pytest.raises(DriverError, match="cuMemCreate"):
            memory.create(GRAIN)


class HipLibrary:
    """HIP's runtime as far as it is used, keeping what it is given.

    Args:
        fails: a function, and the error that it returns.
        lacks: a function that it does not have.
    """

    def __init__(self, fails="", lacks=""):
        self.calls = []
        self._functions = {}
        self._fails, self._lacks = fails, lacks

    def __getattr__(self, name):
        if not name.startswith("hip") or name == self._lacks:
            raise AttributeError(name)

        def call(*arguments):
            if name == "hipGetErrorName":
                return b"hipErrorOutOfMemory"
            self.calls.append((name, *map(_read, arguments)))
            gives = {
                "hipMemGetAllocationGranularity": 4096,
                "hipMemAddressReserve": 1 << 40,
                "hipMemCreate": 78,
            }
            if name in gives:
                arguments[0]._obj.value = gives[name]
            return 2 if name == self._fails else 0

        return self._functions.setdefault(name, call)


def _read(argument):
    return getattr(argument, "_obj", argument)


def test_hip_is_asked_for_memory_of_the_device():
    library = HipLibrary()
    memory = HipMemory(2, library)
    assert memory.granularity() == 4096
    assert memory.reserve(8192) == 1 << 40
    handle = memory.create(4096)
    assert handle == 78
    memory.map(1 << 40, 4096, handle)
    memory.set_access(1 << 40, 4096)
    memory.unmap(1 << 40, 4096)
    memory.release(handle)
    memory.free(1 << 40, 8192)
    names = [name for name, *_ in library.calls]
    assert names == [
        "hipMemGetAllocationGranularity", "hipMemAddressReserve", "hipMemCreate",
        "hipMemMap", "hipMemSetAccess", "hipMemUnmap", "hipMemRelease",
        "hipMemAddressFree",
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


def test_hips_structures_are_laid_out_as_in_its_header():
    # Two enumerations, a location of two ints, a pointer, then two bytes and a short.
    assert ctypes.sizeof(Properties) == 32
    assert Properties.location.offset == 8
    assert Properties.metadata.offset == 16
    assert (ctypes.sizeof(Access), Access.flags.offset) == (12, 8)


def test_hips_errors_have_the_runtimes_names():
    memory = HipMemory(0, HipLibrary(fails="hipMemCreate"))
    with pytest.raises(DriverError, match="hipErrorOutOfMemory") as caught:
        memory.create(4096)
    assert caught.value.out_of_memory


def test_an_old_hip_is_told_by_what_it_lacks():
    with pytest.raises(HarnessError, match="no hipMemMap"):
        HipMemory(0, HipLibrary(lacks="hipMemMap"))


@pytest.mark.parametrize(("hip", "kind"), [(None, "CudaMemory"), ("6.4", "HipMemory")])
def test_the_driver_follows_torchs_build(monkeypatch, hip, kind):
    made = []
    monkeypatch.setattr(torch, "empty", lambda *a, device: made.append(device))
    monkeypatch.setattr(torch.version, "hip", hip, raising=False)
    module = "hip" if hip else "cuda"
    found = f"kfuzz.execution.device.{module}.{kind}"
    monkeypatch.setattr(found, lambda index: (kind, index))
    device = torch.device("cuda", 1)
    assert backend_of(device).virtual_memory(device) == (kind, 1)
    # An allocation of torch's comes first: it makes the context.
    assert made == [device]


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


def test_a_number_comes_before_the_text():
    error = _Numbered("CUDA error: device-side assert triggered")
    error.error_code = 716
    assert fault_name(error) == "misaligned_address"
