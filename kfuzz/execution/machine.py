"""What a machine calls its processor, its GPU and the driver of that."""

import platform
import re
import subprocess
from pathlib import Path
from typing import Final

import torch

from kfuzz.execution.devices import device_name

_PROCESSOR: Final = re.compile(r"^model name\s*:\s*(.+)$", re.MULTILINE)
_NVIDIA: Final = re.compile(r"Kernel Module\D*\s(\d+(?:\.\d+)+)\s")
_SECONDS: Final = 10.0


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
    runtime = torch.version.hip or torch.version.cuda
    kind = "HIP" if torch.version.hip else "CUDA"
    parts = (_driver(), f"{kind} {runtime}" if runtime else "")
    return device_name(device), ", ".join(filter(None, parts))


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
