"""Released wheels, each in a folder of its own."""

import os
import re
import shutil
import subprocess
import sys
import threading
from importlib.metadata import version as installed
from pathlib import Path
from typing import Final

from packaging.version import Version

# What the packages import beside torch and triton, for all versions the same.
SHARED: Final = ("einops==0.8.1",)

# Packages without a wheel are built here, without what they compile for CUDA: their
# Triton kernels are Python. By the variables of their own setup.py.
PURE: Final = {
    f"{name}_{what}": "TRUE"
    for name in ("FLASH_ATTENTION", "MAMBA", "CAUSAL_CONV1D")
    for what in ("SKIP_CUDA_BUILD", "FORCE_BUILD")
}

_installing: Final = threading.Lock()


class WheelError(Exception):
    """A wheel cannot be installed."""


def cache() -> Path:
    """Return the folder in which wheels are kept from run to run."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "kfuzz" / "wheels"


def install(folder: Path, package: str, version: str) -> Path:
    """Return the folder of one version, installed with pip unless it is there.

    Raises:
        WheelError: if pip cannot install it; with the last line that it printed.
    """
    return _install(folder / f"{package}-{version}", f"{package}=={version}")


def releases(package: str) -> list[str]:
    """Return the releases that the index has, oldest first, without pre-releases.

    Raises:
        WheelError: if the index cannot be asked, or has none.
    """
    if package == "torch":  # the one that is here: it is no other folder's
        return [installed("torch")]
    command = [sys.executable, "-m", "pip", "index", "versions", package]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    listed = re.search(r"Available versions: (.+)", done.stdout)
    if done.returncode or not listed:
        lines = done.stderr.strip().splitlines() or ["no release is listed"]
        raise WheelError(f"{package}: {lines[-1]}")
    return sorted(listed[1].split(", "), key=Version)


def before(package: str, version: str) -> str | None:
    """Return the release before another one; None for the first.

    Raises:
        WheelError: as `releases`.
    """
    older = [v for v in releases(package) if Version(v) < Version(version)]
    return older[-1] if older else None


def shared(folder: Path) -> Path:
    """Return the folder of what all versions import, installed unless it is there.

    Raises:
        WheelError: if pip cannot install it.
    """
    return needed(folder, "shared", *SHARED)


def needed(folder: Path, name: str, *requirements: str) -> Path:
    """Return the folder of some requirements, installed unless it is there.

    Raises:
        WheelError: if pip cannot install them.
    """
    return _install(folder / name, *requirements)


def _install(target: Path, *requirements: str) -> Path:
    with _installing:  # entries that are measured side by side share versions
        return _installed(target, *requirements)


def _installed(target: Path, *requirements: str) -> Path:
    if target.is_dir():
        return _found_first(target)
    unfinished = target.with_name(f"{target.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-compile"]
    command += ["--no-build-isolation", "--quiet"]
    command += ["--target", str(unfinished), *requirements]
    done = subprocess.run(
        command, env={**os.environ, **PURE}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["pip failed"]
        raise WheelError(f"{' '.join(requirements)}: {lines[-1]}")
    unfinished.rename(target)
    return _found_first(target)


def _found_first(target: Path) -> Path:
    """Give packages without an `__init__.py` an empty one.

    Python takes a regular package that comes later on the path before them, which
    would be another release.
    """
    for folder in target.iterdir():
        if folder.name.isidentifier() and folder.is_dir():
            (folder / "__init__.py").touch()
    return target
