"""What kfuzz asks of a device backend: one object for each, in a file of its own.

`kfuzz.execution.device.backends` has the table of them. Nothing here, and nothing that
a backend's file does when it is imported, imports torch: zygotes are begun before.
"""

import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from kfuzz.core.budget import SizeBudget
from kfuzz.core.errors import BuildError, HarnessError

if TYPE_CHECKING:
    import torch

    from kfuzz.cuda.code import Device
    from kfuzz.cuda.driver import VirtualMemory
    from kfuzz.execution.device.gpu_fences import Fenced, Pool
    from kfuzz.execution.device.surroundings import Surroundings

# What is set outside Python and changes what kernels compute, or how.
_VARIABLES: Final = (
    "ATEN_CPU_CAPABILITY", "CUBLAS_WORKSPACE_CONFIG", "CUDA_LAUNCH_BLOCKING",
    "HSA_OVERRIDE_GFX_VERSION", "MKL_CBWR", "NVIDIA_TF32_OVERRIDE",
    "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "TORCH_BLAS_PREFER_CUBLASLT",
    "TRITON_F32_DEFAULT", "TRITON_INTERPRET",
)  # fmt: skip
_LONGEST: Final = 80

Setting = tuple[str, Callable[[], object]]
"""The name of a setting in this process, and what reads it."""


@dataclass(frozen=True)
class Batches:
    """How cases of one structure are called as one batch.

    Attributes:
        elements: most elements of all items together, of arguments: the oracle needs
            some ten times as many bytes in float64 for each.
        first: batches in the first round of a kernel, which is short.
    """

    elements: int
    first: int


@dataclass(frozen=True)
class Limits:
    """What is ordinary on a backend.

    Attributes:
        sizes: of the tensors of a case.
        batches: how cases are batched; None where it does not pay, and each is called
            alone. Nothing else decides that.
        judged_elements: of one tensor, where a candidate's sizes are searched.
        oracle_elements: of the largest tensor of which an oracle and its bound are
            made at once.
        terms: of the longest sum that is probed.
        pairs: sums that the order of one may take while it is probed.
        rows: rows that are probed at once.
        sparse_bytes: views that span less are filled and compared as a whole.
        alignment: in bytes, what torch's own allocator gives.
    """

    sizes: SizeBudget
    batches: Batches | None
    judged_elements: int
    oracle_elements: int
    terms: int
    pairs: int
    rows: int
    sparse_bytes: int
    alignment: int


@dataclass(frozen=True)
class Capabilities:
    """What a backend has, and what calls on it have to be prepared for.

    Attributes:
        native: compiled code runs; else Triton's interpreter, which checks addresses.
        on_host: tensors lie in the memory of this process.
        asynchronous: a call returns before its work is done, on streams that can
            overlap, be kept busy and be captured in graphs. A fault comes late, and
            the device may be lost to its process; what else it does changes results.
        fences: arguments may lie beside pages that fault when touched.
        collectives: several devices can reduce a result together.
        sanitizer: compute-sanitizer sees what kernels do.
        large: billions of elements take seconds, not minutes.
    """

    native: bool = True
    on_host: bool = True
    asynchronous: bool = False
    fences: bool = True
    collectives: bool = False
    sanitizer: bool = False
    large: bool = False


class DeviceBackend(Protocol):
    """Where kernels run. Methods without a body of their own are the host's answers.

    Attributes:
        name: as `--device` and stored findings have it.
        torch_type: what torch calls its devices; it names the lists of torch's own
            kernels, of witnesses and of calibration statements too. Of several backends
            with one type the native one answers for a tensor.
        place: in a sentence: "on the CPU".
        has: its capabilities.
        limits: what is ordinary on it.
        preload: what a zygote imports before its children need it.
        environment: variables of children, besides those of this process.
        without_triton: the name of the backend that a kernel of no Triton has the
            limits of; its own by default.
        numbered: whether a device may be named by a number.
    """

    name: str
    torch_type: str
    place: str
    has: Capabilities
    limits: Limits
    preload: tuple[str, ...]
    environment: Mapping[str, str]
    without_triton: str
    numbered: bool

    def is_likely(self) -> bool:
        """Whether a device is there by the look of the machine; imports no torch."""
        return True

    def devices(self) -> tuple[str, ...]:
        """Return torch's names of the devices that are there; touches none of them."""
        return (self.torch_type,)

    def only(self, devices: Sequence[str], outer: Mapping[str, str]) -> dict[str, str]:
        """Return variables under which a process sees some of the devices, no other.

        Args:
            devices: names as this process has them.
            outer: its environment, which may say already what is seen.
        """
        return {}

    def alone(self, device: str) -> str:
        """Return what a process that sees one device alone calls it."""
        return device

    def select(self, device: str) -> None:
        """Have what this process runs from now on meet a device as the current one."""
        return None

    def device_name(self, device: str) -> str:
        """Return a device's name as its driver gives it, "" for the host's."""
        return ""

    def describe(self, device: str) -> tuple[str, str]:
        """Return (name, driver) of a device; a fact that is not known is "".

        The first call for a GPU makes a context in this process.
        """
        return self.device_name(device), self.versions(device)

    def versions(self, device: str) -> str:
        """Return the versions of driver and runtime, "" for none; makes no context."""
        return ""

    def settings(self) -> Iterable[Setting]:
        """Return the settings in this process that change what kernels compute."""
        return ()

    def flags(self) -> tuple[str, ...]:
        """Return the settings and variables in this process that change results.

        Returns:
            Each as "name=value"; what this torch does not know is left out.
        """
        found = {name: os.environ[name] for name in _VARIABLES if os.environ.get(name)}
        for name, read in self.settings():
            # One that was made through a newer name cannot be read by an older.
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found[name] = str(read())
            except (AttributeError, RuntimeError):
                continue
        printable = {n: "".join(filter(str.isprintable, found[n])) for n in found}
        return tuple(f"{n}={printable[n][:_LONGEST]}" for n in sorted(found))

    def ailment(self, device: "torch.device") -> str | None:
        """Return why a device can do no work in this process, None if it can."""
        return None

    def fault(self, device: "torch.device") -> str:
        """Return the fault for which a device can do nothing more in this process.

        Waits for the device.

        Returns:
            Such as `ILLEGAL_ADDRESS` or `ASSERT`; "device_error" for one without a
            name here; "" where the device works.
        """
        return ""

    def lack_of_gpu(self, error: BaseException) -> str:
        """Return the line of an exception that says that a GPU is needed, "" for none.

        What was caught on the way counts too: a kernel that makes another exception
        of it fares no better.
        """
        return ""

    def wait(self, device: "torch.device") -> None:
        """Wait until a device has done what it was asked.

        Raises:
            RuntimeError: if that ended in a fault.
        """
        return None

    def free_bytes(self, device: "torch.device") -> int | None:
        """Return how much memory there is to have, None where nothing limits it."""
        from kfuzz.execution.processes.limits import allowance

        return allowance()

    def give_back_memory(self) -> None:
        """Give back what torch's allocator keeps for later."""
        return None

    def generators(self, device: "torch.device") -> "list[torch.Generator]":
        """Return torch's own generators that a call on a device may draw from."""
        import torch

        return [torch.default_generator]

    def surroundings(self, device: "torch.device") -> "Surroundings | None":
        """Return what calls on a device are made to meet; None for the host."""
        return None

    def virtual_memory(self, device: "torch.device") -> "VirtualMemory":
        """Return the calls of the driver that map memory on a device.

        Raises:
            HarnessError: if they cannot be had; says what is missing.
        """
        raise HarnessError(f"no driver maps memory for torch device {device}")

    def loader(self, device: "torch.device") -> "Device":
        """Return what loads CUDA C++ or HIP code for a device.

        Raises:
            BuildError: if such code does not run there: no kernel causes that.
        """
        raise BuildError(
            f"CUDA C++ does not run on {device}", fix="it needs --device cuda and a GPU"
        )

    def selected(self, device: "torch.device") -> AbstractContextManager[object]:
        """Return a context in which a device is torch's current one."""
        return nullcontext()

    def fenced_memory(
        self, nbytes: int, device: "torch.device", *, readable: bool
    ) -> "Fenced":
        """Return memory between two fences.

        Args:
            nbytes: least size; rounded up to whole pages.
            device: where.
            readable: whether the fences may be read, so that writes alone are seen.

        Raises:
            HarnessError: if this system cannot make it.
        """
        from kfuzz.execution.device.gpu_fences import Fenced
        from kfuzz.execution.memory import host_fences as pages

        memory = pages.fenced_memory(nbytes, readable=readable)
        return Fenced(memory, 0, memory.numel())

    def pool(self, device: "torch.device") -> "Pool | None":
        """Return fenced memory for what kernels allocate; None where there is none."""
        return None

    def unfenced(self, device: "torch.device") -> str:
        """Return why nothing can lie beside a page that faults, "" where it can."""
        from kfuzz.execution.memory import host_fences as pages

        return "" if pages.available() else "pages that fault cannot be made here"
