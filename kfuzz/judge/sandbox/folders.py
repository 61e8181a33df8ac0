"""The folders and devices that a contained child keeps, and its environment."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PASSED: Final = frozenset(
    {
        "PATH", "LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH", "CC", "CXX", "MAX_JOBS",
        "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER",
        "CUDA_MODULE_LOADING", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES",
        "ROCM_HOME", "ROCM_PATH", "HIP_PATH", "HIP_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES", "HSA_OVERRIDE_GFX_VERSION", "PYTORCH_ROCM_ARCH",
        "TORCH_CUDA_ARCH_LIST", "TRITON_PTXAS_PATH", "TRITON_LIBCUDA_PATH",
        "VIRTUAL_ENV",
    }
)  # fmt: skip
"""Variables that compilers and drivers need and that hold no secrets."""

_IMPORTED: Final = ("torch", "triton", "numpy")

# Always there; writing to them keeps nothing.
_DEVICES: Final = ("null", "zero", "full", "random", "urandom")
# What the drivers of GPUs open.
_GPU_DEVICES: Final = ("nvidia*", "kfd", "dri/*", "nvidia-caps/*", "dxg")


@dataclass(frozen=True)
class Rooms:
    """Where a child may write.

    Attributes:
        scratch: its home and temporary files; gone with it.
        cache: what it builds and compiles; its successors find it again.
    """

    scratch: Path
    cache: Path

    def environment(self) -> dict[str, str]:
        """Return the variables that keep programs to these folders."""
        home, cache = str(self.scratch), self.cache
        return {
            "HOME": home,
            "TMPDIR": home,
            "XDG_CACHE_HOME": str(cache),
            "TRITON_CACHE_DIR": str(cache / "triton"),
            "TORCH_EXTENSIONS_DIR": str(cache / "extensions"),
            "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
            "CUDA_CACHE_PATH": str(cache / "cuda"),
        }


def scrubbed(environment: Mapping[str, str], *, interpret: bool) -> dict[str, str]:
    """Return what a child inherits of an environment.

    Args:
        environment: the campaign's.
        interpret: whether Triton's kernels are interpreted.
    """
    kept = {
        name: value
        for name, value in environment.items()
        if name in _PASSED or name.startswith("LC_")
    }
    paths = environment.get("PYTHONPATH", "").split(os.pathsep)
    needed = [path for path in paths if path and _holds_package(Path(path))]
    if needed:
        kept["PYTHONPATH"] = os.pathsep.join(needed)
    kept["PYTHONDONTWRITEBYTECODE"] = "1"
    if interpret:
        kept["TRITON_INTERPRET"] = "1"
    return kept


def _holds_package(path: Path) -> bool:
    return any((path / name).is_dir() for name in _IMPORTED)


def devices(*, gpu: bool) -> list[Path]:
    """Return the device files that a child needs.

    Args:
        gpu: whether those of GPUs belong to them.
    """
    folder = Path("/dev")
    found = [folder / name for name in _DEVICES]
    for pattern in _GPU_DEVICES if gpu else ():
        found += sorted(p for p in folder.glob(pattern) if not p.is_dir())
    return [path for path in found if path.exists()]
