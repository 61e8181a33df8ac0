"""What measured numbers depend on."""

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Final

VERSIONS: Final = (
    "torch", "triton", "numpy", "hypothesis", "hypothesis-torch", "gpucheck",
)  # fmt: skip


def machine() -> dict[str, str]:
    """Return what the numbers depend on."""
    named = {"python": platform.python_version(), "processors": str(os.cpu_count())}
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text().splitlines()
        models = (x.partition(":")[2].strip() for x in lines if "model name" in x)
        named["processor"] = next(models, "")
    for package in VERSIONS:
        try:
            named[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            named[package] = "not installed"
    return named
