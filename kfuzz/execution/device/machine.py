"""What a machine calls its processor, its GPU and the driver of that."""

import os
import platform
import re
import subprocess
import warnings
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Final

import torch

from kfuzz.execution.device.devices import device_name

_PROCESSOR: Final = re.compile(r"^model name\s*:\s*(.+)$", re.MULTILINE)
_NVIDIA: Final = re.compile(r"Kernel Module\D*\s(\d+(?:\.\d+)+)\s")
_SECONDS: Final = 10.0
# What is set outside Python and changes what kernels compute, or how.
_VARIABLES: Final = (
    "ATEN_CPU_CAPABILITY", "CUBLAS_WORKSPACE_CONFIG", "CUDA_LAUNCH_BLOCKING",
    "HSA_OVERRIDE_GFX_VERSION", "MKL_CBWR", "NVIDIA_TF32_OVERRIDE",
    "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "TORCH_BLAS_PREFER_CUBLASLT",
    "TRITON_F32_DEFAULT", "TRITON_INTERPRET",
)  # fmt: skip
_LONGEST: Final = 80


def describe(device: str) -> tuple[str, str]:
    """Return (name, driver) of a torch device; a fact that is not known is "".

    Of the CPU: the model, with the instruction set that torch's kernels use, and no
    driver. Of a GPU: its name, and the driver's version with the runtime's. The first
    call for a GPU makes a context in this process.
    """
    if not device.startswith("cuda"):
        model = _model()
        capability = torch.backends.cpu.get_cpu_capability()
        return (f"{model}, {capability}" if model else capability), ""
    return device_name(device), versions(device)


@cache
def versions(device: str) -> str:
    """Return the versions of a GPU's driver and runtime, "" for the CPU.

    No context is made.
    """
    if not device.startswith("cuda"):
        return ""
    runtime = torch.version.hip or torch.version.cuda
    kind = "HIP" if torch.version.hip else "CUDA"
    parts = (_driver(), f"{kind} {runtime}" if runtime else "")
    return ", ".join(filter(None, parts))


def flags(device: str) -> tuple[str, ...]:
    """Return the settings in this process that change what kernels compute.

    Returns:
        Each as "name=value"; what this torch does not know is left out.
    """
    found = {name: os.environ[name] for name in _VARIABLES if os.environ.get(name)}
    for name, read in _settings(device):
        # A setting that was made through a newer name cannot be read by an older.
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found[name] = str(read())
        except (AttributeError, RuntimeError):
            continue
    return tuple(f"{name}={_printable(found[name])}" for name in sorted(found))


def _settings(device: str) -> Iterator[tuple[str, Callable[[], object]]]:
    yield "deterministic_algorithms", torch.are_deterministic_algorithms_enabled
    if not device.startswith("cuda"):
        yield "cpu_capability", torch.backends.cpu.get_cpu_capability
        return
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    yield "float32_matmul_precision", torch.get_float32_matmul_precision
    yield "matmul.allow_tf32", partial(getattr, matmul, "allow_tf32")
    for kind in ("fp16", "bf16"):
        name = f"allow_{kind}_reduced_precision_reduction"
        yield f"matmul.{name}", partial(getattr, matmul, name)
    for name in ("allow_tf32", "benchmark", "deterministic"):
        yield f"cudnn.{name}", partial(getattr, cudnn, name)


def _printable(text: str) -> str:
    return "".join(c for c in text if c.isprintable())[:_LONGEST]


def _model() -> str:
    found = _PROCESSOR.search(_text("/proc/cpuinfo"))
    return found[1].strip() if found else platform.processor()


def _driver() -> str:
    """Return the version of NVIDIA's driver, from the kernel or its own tool."""
    if found := _NVIDIA.search(_text("/proc/driver/nvidia/version")):
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


def _text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
