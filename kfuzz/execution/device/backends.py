"""GPUs that torch has under the name of CUDA: NVIDIA's, AMD's in a ROCm build."""

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kfuzz.core.budget import SizeBudget
from kfuzz.core.errors import BackendError
from kfuzz.core.verdict import ILLEGAL_ADDRESS
from kfuzz.execution.device.backend import (
    CPU,
    INTERPRET,
    Batches,
    Capabilities,
    DeviceBackend,
    Limits,
    Setting,
    text_of,
)
from kfuzz.execution.processes.wire import Handler, Message

if TYPE_CHECKING:
    import torch

    from kfuzz.cuda.code import Device
    from kfuzz.cuda.driver import VirtualMemory
    from kfuzz.execution.device.surroundings import Surroundings
    from kfuzz.execution.memory.fences import Fenced, Pool


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
# A new backend is a file beside this one and its line in `BACKENDS`.

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
        found = ((backend, backend.devices()) for backend in BACKENDS.values())
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


# What a GPU is tried with before it judges anything: a sum, and a planted over-read.
#
# A device that computes wrong, or on which a load past the end passes where it faults
# on others, would show faults that are its own and miss those of kernels.

_ELEMENTS: Final = 4096


def serve() -> Handler:
    """Return the handler of a child that tries the one device that it sees."""
    return _answer


def _answer(message: Message) -> Message:
    """Try a device.

    Returns:
        {"uuid": of the device, "ailment": why it cannot be used, "" where it can,
        "unfenced": why nothing can lie beside a page that faults there, "" where it
        can, "passed": whether a load past the end passed beside one}.
    """
    import torch

    device = torch.device(message["device"])
    backend = backend_of(device)
    told: Message = {"uuid": "", "unfenced": "", "passed": False}
    ailment = backend.ailment(device) or _miscounts(device)
    if not ailment:
        found = torch.cuda.get_device_properties(device)
        told["uuid"] = str(getattr(found, "uuid", "")) or found.name
        told["unfenced"] = backend.unfenced(device)
    if not ailment and not told["unfenced"]:
        told["passed"] = not load_past_the_end(device)  # the last: it ends the context
    return {**told, "ailment": ailment}


def _miscounts(device: "torch.device") -> str:
    """Return how integers differ from the CPU's that a device computes, or ""."""
    import torch

    try:
        x = torch.arange(_ELEMENTS, dtype=torch.int64, device=device)
        made = torch.cumsum(x * 3 + 1, 0).cpu()
    except RuntimeError as error:
        return str(error).strip().partition("\n")[0]
    wanted = torch.cumsum(torch.arange(_ELEMENTS, dtype=torch.int64) * 3 + 1, 0)
    wrong = int((made != wanted).sum())
    return f"{wrong} of {_ELEMENTS} sums of integers are wrong" if wrong else ""


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
