"""Exceptions that say that a call needs a GPU, where it was made without one."""

import re
from collections.abc import Iterator
from typing import Final

import torch

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


def lack_of_gpu(error: BaseException, device: torch.device) -> str:
    """Return the line that says that a GPU is needed, "" if nothing does.

    What was caught on the way counts too: a kernel that makes another exception of it
    fares no better.

    Args:
        error: what left the kernel.
        device: on which it was called: on a GPU no exception says so.
    """
    if device.type == "cuda":
        return ""
    for seen in _related(error):
        text = str(seen).strip()
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
