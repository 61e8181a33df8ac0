"""The CPU: compiled code in the memory of this process."""

import platform
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from kfuzz.core.budget import SizeBudget
from kfuzz.core.errors import message_of
from kfuzz.execution.device.backend import (
    Batches,
    Capabilities,
    DeviceBackend,
    Limits,
    Setting,
)

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


class Cpu(DeviceBackend):
    """The CPU."""

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
        "kfuzz.execution.processes.bytecode:keep",
        "torch",
        "triton",
    )
    environment: Mapping[str, str] = {}
    without_triton = ""
    numbered = False

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


CPU: Final = Cpu()
