"""What kfuzz asks of a device backend: one object for each, in a file of its own.

`kfuzz.execution.device.backends` has the table of them. Nothing here, and nothing that
a backend's file does when it is imported, imports torch: zygotes are begun before.
"""

import os
import platform
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kfuzz.core.budget import SizeBudget
from kfuzz.core.errors import BuildError, HarnessError, message_of

if TYPE_CHECKING:
    import torch

    from kfuzz.cuda.code import Device
    from kfuzz.cuda.driver import VirtualMemory
    from kfuzz.execution.device.surroundings import Surroundings
    from kfuzz.execution.memory.fences import Fenced, Pool


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


# The CPU: compiled code in the memory of this process.

_PROCESSOR: Final = re.compile(r"^model name\s*:\s*(.+)$", re.MULTILINE)

# What torch, Triton, the runtimes of CUDA and HIP, and bindings to them say where there
# is no GPU, no driver for it, or no code for anything else. Lower case.
_SIGNS: Final = (
    "not compiled with cuda enabled",
    "without aten_cuda library",
    "requires cuda support",
    "tried to instantiate dummy base class",
    "nvtx functions not installed",
    "'torch._c' has no attribute '_cuda_",
    "torch.cuda.is_available() is false",
    "cannot access accelerator device when none is available",
    "expected a cuda device, but got",
    "from the 'cuda' backend",
    "from the 'hip' backend",
    "found no nvidia driver",
    "nvidia driver on your system is too old",
    "cuda driver initialization failed",
    "unexpected error from cudagetdevicecount",
    "unexpected error from hipgetdevicecount",
    "no cuda gpus are available",
    "no hip gpus are available",
    "no cuda-capable device is detected",
    "no rocm-capable device is detected",
    "cuda driver version is insufficient",
    "cudaerrornodevice",
    "cuda_error_no_device",
    "hiperrornodevice",
    "0 active drivers",
    "cannot be accessed from triton (cpu tensor?)",
    "cannot find any gpu",
    "cuda driver library cannot be found",
    "cuda_home environment variable is not set",
    "libcuda.so",
    "libcudart.so",
    "libnvrtc.so",
    "libamdhip64.so",
)
_IN_WORDS: Final = re.compile(
    r"\b(cuda|hip|rocm|gpus?) (is|are) (not available|unavailable)\b"
    r"|\bno (cuda |nvidia |amd )?gpus? (is |are )?(available|found|detected)\b"
)
# An operator that has a kernel for CUDA and none for the CPU.
_FOR_OTHERS: Final = re.compile(
    r"from the 'cpu' backend.* is only available for these backends: \[([^]]*)",
    re.DOTALL,
)


class DeviceBackend:
    """Where kernels run. What others do not override are the CPU's answers.

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

    name = torch_type = "cpu"
    place = "on the CPU"
    has = Capabilities()
    limits = Limits(
        # 256 GiB of address space cost nothing, and the smallest address spaces have
        # twice that.
        sizes=SizeBudget(elements=1 << 16, rows=1 << 12, span=1 << 38),
        batches=Batches(elements=1 << 18, first=8),
        judged_elements=1 << 14,
        oracle_elements=1 << 22,
        terms=256,
        pairs=1 << 14,
        rows=64,
        sparse_bytes=64 << 20,
        alignment=64,
    )
    preload: tuple[str, ...] = (
        "kfuzz.execution.processes.forking:keep_bytecode",
        "torch",
        "triton",
    )
    environment: Mapping[str, str] = {}
    without_triton = ""
    numbered = False

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

    def versions(self, device: str) -> str:
        """Return the versions of driver and runtime, "" for none; makes no context."""
        return ""

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

    def wait(self, device: "torch.device") -> None:
        """Wait until a device has done what it was asked.

        Raises:
            RuntimeError: if that ended in a fault.
        """
        return None

    def free_bytes(self, device: "torch.device") -> int | None:
        """Return how much memory there is to have, None where nothing limits it."""
        from kfuzz.execution.processes.wire import allowance

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
        from kfuzz.execution.memory import fences as pages
        from kfuzz.execution.memory.fences import Fenced

        memory = pages.fenced_memory(nbytes, readable=readable)
        return Fenced(memory, 0, memory.numel())

    def pool(self, device: "torch.device") -> "Pool | None":
        """Return fenced memory for what kernels allocate; None where there is none."""
        return None

    def unfenced(self, device: "torch.device") -> str:
        """Return why nothing can lie beside a page that faults, "" where it can."""
        from kfuzz.execution.memory import fences as pages

        return "" if pages.available() else "pages that fault cannot be made here"

    def describe(self, device: str) -> tuple[str, str]:
        """Return the model with the instruction set of torch's kernels, and ""."""
        import torch

        found = _PROCESSOR.search(text_of("/proc/cpuinfo"))
        model = found[1].strip() if found else platform.processor()
        capability = torch.backends.cpu.get_cpu_capability()
        return (f"{model}, {capability}" if model else capability), ""

    def settings(self) -> Iterator[Setting]:
        """Yield the settings in this process that change what kernels compute."""
        import torch

        yield "deterministic_algorithms", torch.are_deterministic_algorithms_enabled
        yield "cpu_capability", torch.backends.cpu.get_cpu_capability

    def lack_of_gpu(self, error: BaseException) -> str:
        """Return the line of an exception that says that a GPU is needed, "" for none.

        What was caught on the way counts too: a kernel that makes another exception
        of it fares no better.
        """
        for seen in _related(error):
            text = message_of(seen).strip()
            if _says_so(text.lower()):
                return text.splitlines()[0][:300]
        return ""


def _says_so(text: str) -> bool:
    if any(sign in text for sign in _SIGNS) or _IN_WORDS.search(text):
        return True
    there = _FOR_OTHERS.search(text)
    names = there.group(1).split(", ") if there else []
    return "cpu" not in names and bool({"cuda", "hip"} & set(names))


def _related(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception, and all that caused it or was handled when it was raised."""
    left, known = [error], set[int]()
    while left:
        seen = left.pop()
        if id(seen) in known:
            continue
        known.add(id(seen))
        yield seen
        left += [e for e in (seen.__context__, seen.__cause__) if e is not None]


def text_of(path: str) -> str:
    """Return the text of a file of the system's, "" if there is none."""
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


CPU: Final = DeviceBackend()


# Triton's interpreter on the CPU.


class Interpreted(DeviceBackend):
    """Triton's interpreter: Triton kernels run as Python, program by program."""

    name = "interpret"
    place = "in Triton's interpreter"
    # Each address is checked instead of what lies beside an argument.
    has = replace(CPU.has, native=False, fences=False)
    # 64 programs, about 1 ms each, some 10 of attention.
    limits = replace(
        CPU.limits,
        sizes=SizeBudget(elements=1 << 16, rows=64, span=1 << 38, tall=1100),
        # A program takes a millisecond, and every call is watched by itself: batches
        # would gain 1.1 to 1.2 only.
        batches=None,
        judged_elements=1 << 12,
        terms=64,
        pairs=4096,
        rows=16,
    )
    preload = (*CPU.preload, "kfuzz.execution.interpreter.watch:for_interpret")
    # Triton reads it when it is imported.
    environment: Mapping[str, str] = {"TRITON_INTERPRET": "1"}
    without_triton = "cpu"


INTERPRET: Final = Interpreted()
