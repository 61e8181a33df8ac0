"""Device backends: what kfuzz asks of one, each as one object, and the table of them.

The CPU, Triton's interpreter on it, and the GPUs that torch has under the name of CUDA:
NVIDIA's, AMD's in a ROCm build. Nothing that this does when it is imported imports
torch: zygotes are begun before.
"""

import os
import platform
import re
import subprocess
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kfuzz.core.budget import SizeBudget
from kfuzz.core.errors import BackendError, BuildError, HarnessError, message_of
from kfuzz.core.verdict import ILLEGAL_ADDRESS

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
        largest: of a case that is called under a limit of time alone.
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
    largest: SizeBudget
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
        large: billions of elements take seconds, not minutes.
    """

    native: bool = True
    on_host: bool = True
    asynchronous: bool = False
    fences: bool = True
    large: bool = False


# The CPU: compiled code in the memory of this process.

_PROCESSOR: Final = re.compile(r"^model name\s*:\s*(.+)$", re.MULTILINE)

# What torch, Triton, the runtimes of CUDA and HIP, and bindings to them say where there
# is no GPU, no driver for it, or no code for anything else. Lower case.
_SIGNS: Final = (
    "not compiled with cuda enabled", "without aten_cuda library",
    "requires cuda support", "tried to instantiate dummy base class",
    "nvtx functions not installed", "'torch._c' has no attribute '_cuda_",
    "torch.cuda.is_available() is false",
    "cannot access accelerator device when none is available",
    "expected a cuda device, but got", "from the 'cuda' backend",
    "from the 'hip' backend", "found no nvidia driver",
    "nvidia driver on your system is too old", "cuda driver initialization failed",
    "unexpected error from cudagetdevicecount",
    "unexpected error from hipgetdevicecount", "no cuda gpus are available",
    "no hip gpus are available", "no cuda-capable device is detected",
    "no rocm-capable device is detected", "cuda driver version is insufficient",
    "cudaerrornodevice", "cuda_error_no_device", "hiperrornodevice", "0 active drivers",
    "cannot be accessed from triton (cpu tensor?)", "cannot find any gpu",
    "cuda driver library cannot be found", "cuda_home environment variable is not set",
    "libcuda.so", "libcudart.so", "libnvrtc.so", "libamdhip64.so",
)  # fmt: skip
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
        largest=SizeBudget(elements=1 << 22, rows=1 << 16, span=1 << 38),
        batches=Batches(elements=1 << 18, first=8),
        judged_elements=1 << 14,
        oracle_elements=1 << 20,
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
    if {"cuda", "hip"} & set(names):
        return "cpu" not in names
    # Of torch's own, as "aten::mm.dtype" of Helion's eager mode, a build for the CPU
    # alone names GPUs by the gradients there only.
    if "autogradcuda" not in names or "could not run 'aten::" not in text:
        return False
    return not any(n.endswith("cpu") for n in names if not n.startswith("auto"))


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
        sizes=SizeBudget(elements=1 << 16, rows=64, span=1 << 38, tall=1 << 11),
        largest=SizeBudget(elements=1 << 20, rows=256, span=1 << 38, tall=1 << 17),
        # A program takes a millisecond, and every call is watched by itself: batches
        # would gain 1.1 to 1.2 only.
        batches=None,
        judged_elements=1 << 12,
        oracle_elements=1 << 16,
        terms=64,
        pairs=4096,
        rows=16,
    )
    preload = (*CPU.preload, "kfuzz.execution.interpreter.watch:for_interpret")
    # Triton reads it when it is imported.
    environment: Mapping[str, str] = {"TRITON_INTERPRET": "1"}
    without_triton = "cpu"

    def is_likely(self) -> bool:
        """Whether Helion's eager mode, which excludes it, is not asked for."""
        return os.environ.get("HELION_INTERPRET", "0") in ("", "0")


INTERPRET: Final = Interpreted()


# GPUs that torch has under the name of CUDA: NVIDIA's, AMD's in a ROCm build.

# Whatever of these is there, torch is likely to find a GPU.
_DEVICE_FILES: Final = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")

# What says which devices a process sees, and as which number.
_VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
_VISIBLE_TO_HIP: Final = "HIP_VISIBLE_DEVICES"

_NVIDIA: Final = re.compile(r"Kernel Module\D*\s(\d+(?:\.\d+)+)\s")
_SECONDS: Final = 10.0

# Written and read back to see whether a device works.
_WORDS: Final = 1024
_VALUE: Final = 0x5A17

# cudaError_t of driver_types.h; HIP numbers those that it has alike. What lies in
# the texts is what cudaGetErrorString says, for a torch that gives no number.
ASSERT: Final = "assert"
_FAULTS: Final = {
    700: (ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    702: ("launch_timeout", "the launch timed out"),
    710: (ASSERT, "device-side assert triggered"),
    714: ("hardware_stack_error", "hardware stack error"),
    715: ("illegal_instruction", "an illegal instruction was encountered"),
    716: ("misaligned_address", "misaligned address"),
    717: ("invalid_address_space", "operation not supported on global/shared"),
    718: ("invalid_pc", "invalid program counter"),
    719: ("launch_failure", "unspecified launch failure"),
}


class Gpu(DeviceBackend):
    """GPUs, each named by its number."""

    name = torch_type = "cuda"
    place = "on a GPU"
    has = Capabilities(on_host=False, asynchronous=True, large=True)
    limits = Limits(
        sizes=SizeBudget(elements=1 << 22, rows=1 << 16, tall=1 << 22),
        # A call that takes longer than 20 s is reported to hang. One thread that goes
        # over so many elements takes some 5 s. Over 2^26, of which an H200 judges a
        # case in 0.2 s, it would be reported, and two pinned arguments would be half a
        # gigabyte.
        largest=SizeBudget(elements=1 << 24, rows=1 << 16, tall=1 << 22),
        batches=Batches(elements=1 << 23, first=16),
        judged_elements=1 << 20,
        oracle_elements=1 << 26,
        terms=1024,
        pairs=1 << 16,
        rows=256,
        sparse_bytes=1 << 30,  # less is filled and compared in milliseconds
        alignment=512,
    )
    preload = (*CPU.preload, "kfuzz.execution.interpreter.watch:for_cuda")
    environment: Mapping[str, str] = {}
    without_triton = ""
    numbered = True

    def is_likely(self) -> bool:
        """Whether a GPU is there by the look of the machine; imports no torch."""
        return any(Path(file).exists() for file in _DEVICE_FILES)

    def devices(self) -> tuple[str, ...]:
        """Return torch's names of the GPUs; NVML counts them, without a context."""
        import torch

        return tuple(f"cuda:{number}" for number in range(torch.cuda.device_count()))

    def only(self, devices: Sequence[str], outer: Mapping[str, str]) -> dict[str, str]:
        """Return the variable under which a process sees some GPUs, no other.

        What is said already is chosen from: numbers, UUIDs of GPUs and of MIG slices.
        HIP obeys its own variable first, and CUDA's where that is not set.
        """
        name = _VISIBLE if _is_nvidia() else _VISIBLE_TO_HIP
        said = outer.get(name, outer.get(_VISIBLE))
        listed = [each.strip() for each in said.split(",")] if said else []
        numbers = [int(device.partition(":")[2] or 0) for device in devices]
        seen = [listed[n] if n < len(listed) else str(n) for n in numbers]
        return {name: ",".join(seen)}

    def alone(self, device: str) -> str:
        """Return the name of the one GPU that a process sees."""
        return f"{self.torch_type}:0"

    def select(self, device: str) -> None:
        """Make a GPU torch's current one."""
        import torch

        torch.cuda.set_device(device)

    def device_name(self, device: str) -> str:
        """Return a GPU's name as its driver gives it."""
        import torch

        return torch.cuda.get_device_name(device)

    def versions(self, device: str) -> str:
        """Return the versions of driver and runtime; makes no context."""
        return _versions()

    def describe(self, device: str) -> tuple[str, str]:
        """Return (name, driver) of a device; the first call makes a context."""
        return self.device_name(device), self.versions(device)

    def lack_of_gpu(self, error: BaseException) -> str:
        """Return "": a GPU is there."""
        return ""

    def settings(self) -> Iterator[Setting]:
        """Yield the settings in this process that change what kernels compute."""
        import torch

        yield "deterministic_algorithms", torch.are_deterministic_algorithms_enabled
        matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
        yield "float32_matmul_precision", torch.get_float32_matmul_precision
        yield "matmul.allow_tf32", partial(getattr, matmul, "allow_tf32")
        for kind in ("fp16", "bf16"):
            name = f"allow_{kind}_reduced_precision_reduction"
            yield f"matmul.{name}", partial(getattr, matmul, name)
        for name in ("allow_tf32", "benchmark", "deterministic"):
            yield f"cudnn.{name}", partial(getattr, cudnn, name)

    def ailment(self, device: "torch.device") -> str | None:
        """Return why a device can do no work in this process, None if it can.

        It fills a little memory, reads it back and asks how much is free.
        """
        import torch

        try:
            with torch.cuda.device(device):
                memory = torch.full((_WORDS,), _VALUE, dtype=torch.int32, device=device)
                read = memory.cpu()
                torch.cuda.synchronize(device)
                torch.cuda.mem_get_info(device)
        except Exception as error:  # whatever torch, or the driver below it, raises
            lines = str(error).strip().splitlines()
            return lines[0] if lines else type(error).__name__
        wrong = int((read != _VALUE).sum())
        if wrong:
            return f"{wrong} of {_WORDS} words that were written read back as others"
        return None

    def fault(self, device: "torch.device") -> str:
        """Return the fault for which a device can do nothing more in this process."""
        try:
            self.wait(device)
        except RuntimeError:
            try:  # an error that does not last is reported once
                self.wait(device)
            except RuntimeError as error:
                return fault_name(error)
        return ""

    def wait(self, device: "torch.device") -> None:
        """Wait until a device has done what it was asked.

        Raises:
            RuntimeError: if that ended in a fault.
        """
        import torch

        torch.cuda.synchronize(device)

    def free_bytes(self, device: "torch.device") -> int:
        """Return how much of its memory a device has to give now."""
        import torch

        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info(device)[0])

    def give_back_memory(self) -> None:
        """Give back what torch's allocator keeps for later."""
        import torch

        torch.cuda.empty_cache()

    def generators(self, device: "torch.device") -> "list[torch.Generator]":
        """Return torch's own generators that a call on a device may draw from."""
        import torch

        torch.cuda.init()  # type: ignore[no-untyped-call]
        index = torch.cuda.current_device() if device.index is None else device.index
        return [torch.default_generator, torch.cuda.default_generators[index]]

    def surroundings(self, device: "torch.device") -> "Surroundings":
        """Return what calls on a device are made to meet."""
        from kfuzz.execution.device import surroundings

        return surroundings.surroundings_on(device)

    def virtual_memory(self, device: "torch.device") -> "VirtualMemory":
        """Return the calls of the driver under torch's build, CUDA's or HIP's.

        Raises:
            HarnessError: if they cannot be had; says what is missing.
        """
        import torch

        from kfuzz.cuda.driver import VirtualMemory, load_driver

        # Its first allocation makes torch's own context the current one.
        torch.empty(1, device=device)
        index = torch.cuda.current_device() if device.index is None else device.index
        return VirtualMemory(index, load_driver())

    def loader(self, device: "torch.device") -> "Device":
        """Return what loads CUDA C++, in a ROCm build HIP code, for a device."""
        import torch

        from kfuzz.cuda.code import Device

        index = torch.cuda.current_device() if device.index is None else device.index
        return Device(torch.device("cuda", index))

    def selected(self, device: "torch.device") -> "torch.cuda.device":
        """Return a context in which a device is torch's current one."""
        import torch

        return torch.cuda.device(device)

    def fenced_memory(
        self, nbytes: int, device: "torch.device", *, readable: bool
    ) -> "Fenced":
        """Return memory between two fences, mapped through the driver."""
        from kfuzz.execution.memory import fences as pages

        return pages.fenced_device_memory(nbytes, device, readable=readable)

    def pool(self, device: "torch.device") -> "Pool":
        """Return fenced memory for what kernels allocate."""
        from kfuzz.execution.memory.fences import Pool

        return Pool(device)

    def unfenced(self, device: "torch.device") -> str:
        """Return why nothing can lie beside a page that faults, "" where it can."""
        from kfuzz.execution.memory import fences as pages

        return pages.unavailable(device)


def _is_nvidia() -> bool:
    """Whether the GPUs are NVIDIA's by the look of the machine; imports no torch."""
    return not Path(_DEVICE_FILES[-1]).exists() or Path(_DEVICE_FILES[0]).exists()


def fault_name(error: RuntimeError) -> str:
    """Return the name of the device's fault that torch raised an error for."""
    named = _FAULTS.get(getattr(error, "error_code", 0))
    if named is not None:
        return named[0]
    text = str(error)
    found = (name for name, says in _FAULTS.values() if says in text)
    return next(found, "device_error")


@cache
def _versions() -> str:
    import torch

    runtime = torch.version.hip or torch.version.cuda
    kind = "HIP" if torch.version.hip else "CUDA"
    parts = (_driver(), f"{kind} {runtime}" if runtime else "")
    return ", ".join(filter(None, parts))


def _driver() -> str:
    """Return the version of NVIDIA's driver, from the kernel or its own tool."""
    if found := _NVIDIA.search(text_of("/proc/driver/nvidia/version")):
        return found[1]
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        made = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    lines = made.stdout.split()
    return lines[0] if lines else ""


GPU: Final = Gpu()


# The device backends there are, and the one that a name or a device stands for.
#
# A new backend is a class and its line in `BACKENDS`.

AUTO: Final = "auto"

BACKENDS: Final[dict[str, DeviceBackend]] = {
    backend.name: backend for backend in (GPU, INTERPRET, CPU)
}
"""By name; `--device auto` takes the first of which a device is there."""


def resolve(asked: str) -> tuple[DeviceBackend, tuple[str, ...]]:
    """Return the backend that `--device` asks for, and torch's names of its devices.

    Returns:
        Kernels may be divided among the devices: among all, unless some are named,
        such as "cuda:0,cuda:2". The first is the one that has a kernel for itself.

    Raises:
        BackendError: if the device is not there.
    """
    if asked == AUTO:
        able = (b for b in BACKENDS.values() if b.numbered or b.is_likely())
        found = ((backend, backend.devices()) for backend in able)
        return next((backend, devices) for backend, devices in found if devices)
    if "," in asked:
        each = [resolve(one.strip()) for one in asked.split(",")]
        if any(backend is not each[0][0] for backend, _ in each):
            raise BackendError(
                f"devices of different kinds: {asked!r}",
                fix="name GPUs only, or one backend",
            )
        listed = (device for _, devices in each for device in devices)
        return each[0][0], tuple(dict.fromkeys(listed))
    name, numbered, index = asked.partition(":")
    backend = BACKENDS.get(name)
    number = int(index or "0") if (index or "0").isdigit() else None
    if backend is None or number is None or (numbered and not backend.numbered):
        every = BACKENDS.values()
        valid = sorted([*BACKENDS, *(f"{b.name}:i" for b in every if b.numbered)])
        raise BackendError(
            f"unknown device {asked!r}", fix=f"valid: {', '.join([AUTO, *valid])}"
        )
    devices = backend.devices()
    if number >= len(devices):
        kind = name.upper()
        seen = f"{len(devices)} {kind} devices" if devices else f"no {kind} GPU"
        raise BackendError(
            f"no device {asked!r}: torch sees {seen}",
            fix="--device interpret runs Triton kernels on the CPU; kfuzz doctor "
            "prints what works",
        )
    return backend, (devices[number],) if numbered else devices


def alike(backend: DeviceBackend, devices: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of a backend's devices that are of the first one's kind."""
    kinds = {each: backend.device_name(each) for each in devices}
    return tuple(each for each in devices if kinds[each] == kinds[devices[0]])


def guess(asked: str) -> DeviceBackend | None:
    """Return the backend that `--device` probably stands for; touches nothing."""
    if asked == AUTO:
        return next(b for b in BACKENDS.values() if b.is_likely())
    return BACKENDS.get(asked.partition(",")[0].partition(":")[0])


def first_of(asked: str) -> str:
    """Return the device, of those that `--device` stands for, that is used first."""
    first = asked.partition(",")[0].strip()
    return first if ":" in first else ""


def backend_of(device: "torch.device | str") -> DeviceBackend:
    """Return the native backend of torch's device; the CPU for a type that has none."""
    kind = device.partition(":")[0] if isinstance(device, str) else device.type
    for backend in BACKENDS.values():
        if backend.torch_type == kind and backend.has.native:
            return backend
    return CPU


def named(text: str) -> DeviceBackend:
    """Return the backend of a name, or of torch's name of a device."""
    return BACKENDS.get(text.partition(":")[0]) or backend_of(text)


def sharing(torch_type: str) -> list[DeviceBackend]:
    """Return the backends whose devices have a type of torch's."""
    return [b for b in BACKENDS.values() if b.torch_type == torch_type]


def is_lost(device: "torch.device") -> bool:
    """Whether calls on a device fail for the rest of this process.

    So it is after a device-side assertion.
    """
    return bool(backend_of(device).fault(device))


def fault_of(device: "torch.device") -> str:
    """Return the fault for which a device can do nothing more; see `DeviceBackend`."""
    return backend_of(device).fault(device)


def environment_for(
    backend: DeviceBackend, outer: Mapping[str, str], device: str | None = None
) -> dict[str, str]:
    """Return the environment of a backend's children.

    Args:
        backend: the backend.
        outer: of this process: what any backend sets is its own affair.
        device: the one device that the children see, "" for the first; None where they
            see what this process does.
    """
    owned = {name for each in BACKENDS.values() for name in each.environment}
    inherited = {name: value for name, value in outer.items() if name not in owned}
    seen = {} if device is None else backend.only([device], outer)
    return inherited | dict(backend.environment) | seen


def load_past_the_end(device: "torch.device") -> str:
    """Have a GPU load past the end of an argument beside a page.

    Returns:
        The fault that its device reports, "" if it works on.
    """
    import torch

    from kfuzz.core.recipe import Edge, Fill, TensorSpec
    from kfuzz.execution.memory.placement import place
    from kfuzz.execution.memory.poison import Poison

    spec = TensorSpec((4,), ("N",), "float32", fill=Fill("zeros"))
    placement = place(
        {"x": spec}, {"x": torch.zeros(4, device=device)},
        device=device, alignment=16, poison=Poison.NAN, edge=Edge("end"),
    )  # fmt: skip
    x = placement.tensors["x"]

    class Beyond:
        """The element after the last; torch asks nothing of the driver for it."""

        def __init__(self) -> None:
            self.__cuda_array_interface__ = {
                "shape": (2,),
                "typestr": "<f4",
                "data": (x.data_ptr() + 3 * x.itemsize, False),
                "version": 3,
            }

    try:
        (torch.as_tensor(Beyond(), device=device) + 1).sum().item()
    except RuntimeError:
        return fault_of(device)
    return ""
