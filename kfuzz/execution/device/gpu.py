"""GPUs that torch has under the name of CUDA: NVIDIA's, AMD's in a ROCm build."""

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kfuzz.core.budget import SizeBudget
from kfuzz.core.verdict import ILLEGAL_ADDRESS
from kfuzz.execution.device.backend import (
    Batches,
    Capabilities,
    DeviceBackend,
    Limits,
    Setting,
)
from kfuzz.execution.device.cpu import CPU, text_of

if TYPE_CHECKING:
    import torch

    from kfuzz.cuda.code import Device
    from kfuzz.cuda.driver import VirtualMemory
    from kfuzz.execution.device.gpu_fences import Fenced, Pool
    from kfuzz.execution.device.surroundings import Surroundings

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
    has = Capabilities(
        on_host=False, asynchronous=True, collectives=True, sanitizer=True, large=True
    )
    limits = Limits(
        sizes=SizeBudget(elements=1 << 22, rows=1 << 16),
        batches=Batches(elements=1 << 23, first=16),
        judged_elements=1 << 20,
        oracle_elements=1 << 26,
        terms=1024,
        pairs=1 << 16,
        rows=256,
        sparse_bytes=1 << 30,  # less is filled and compared in milliseconds
        alignment=512,
    )
    preload = (*CPU.preload, "kfuzz.execution.interpreter.preloaded:for_cuda")
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
            try:  # an error that does not last is told once
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
        from kfuzz.execution.device import gpu_fences as pages

        return pages.fenced_memory(nbytes, device, readable=readable)

    def pool(self, device: "torch.device") -> "Pool":
        """Return fenced memory for what kernels allocate."""
        from kfuzz.execution.device.gpu_fences import Pool

        return Pool(device)

    def unfenced(self, device: "torch.device") -> str:
        """Return why nothing can lie beside a page that faults, "" where it can."""
        from kfuzz.execution.device import gpu_fences as pages

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
