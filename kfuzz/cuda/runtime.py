"""The CUDA or HIP runtime that torch itself uses, for what torch does not expose.

Above all launches that failed unseen: a call that returned and left an error behind.

The last error is kept by each copy of the runtime: only the one that torch loaded
holds what torch's next launch would raise.
"""

import ctypes
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

from kfuzz.core.errors import HarnessError
from kfuzz.numerics.run import UncheckedLaunch

# In this order: a symbol asked of torch's own library is looked for in what that
# library depends on, whichever other copies are loaded. Each with the prefix of its
# functions.
_LIBRARIES: Final = (
    ("libtorch_cuda.so", "cuda"),
    ("libtorch_hip.so", "hip"),
    ("libcudart.so", "cuda"),
    ("libamdhip64.so", "hip"),
)
_MAPS: Final = Path("/proc/self/maps")

# Values of cudaError_t (driver_types.h of the CUDA toolkit); hipError_t shares them.
INVALID_VALUE: Final = 1
# What only a launch, or the query for its kernel, leaves: invalid configuration,
# missing configuration, invalid device function, no kernel image or invalid image for
# the device, invalid or unsupported PTX, no compiler for it, out of resources,
# cooperative launch too large.
LAUNCH_ERRORS: Final = frozenset({9, 52, 98, 200, 209, 218, 221, 222, 701, 720})


class Runtime:
    """A few functions of a loaded runtime library.

    Errors are numbers; those that concern launches are the same for CUDA and HIP.
    """

    def __init__(self, library: Any, prefix: str) -> None:
        """Look the functions up.

        Raises:
            AttributeError: if the library has no such functions.
        """
        self.library = library
        self._peek = getattr(library, f"{prefix}PeekAtLastError")
        self._take = getattr(library, f"{prefix}GetLastError")
        self._name = getattr(library, f"{prefix}GetErrorName")
        self._text = getattr(library, f"{prefix}GetErrorString")
        self._fill = getattr(library, f"{prefix}MemsetAsync")
        self._name.restype = self._text.restype = ctypes.c_char_p
        self._fill.argtypes = [
            ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p
        ]  # fmt: skip

    def last_error(self) -> int:
        """Return the error that is pending in this thread, 0 for none; it stays."""
        return int(self._peek())

    def clear_error(self) -> int:
        """Forget the pending error and return it; one that lasts comes back."""
        return int(self._take())

    def name(self, code: int) -> str:
        """Return what the runtime calls an error."""
        return (self._name(code) or b"").decode(errors="replace")

    def text(self, code: int) -> str:
        """Return what an error means, in the runtime's words."""
        return (self._text(code) or b"").decode(errors="replace")

    def fill(self, address: int, value: int, nbytes: int, stream: int) -> None:
        """Have a stream set bytes of device memory.

        Args:
            address: of the first byte.
            value: of each byte, 0 to 255.
            nbytes: how many.
            stream: its handle.

        Raises:
            HarnessError: if the runtime refuses.
        """
        code = int(self._fill(address, value, nbytes, stream))
        if code:
            self.clear_error()
            raise HarnessError(f"memory cannot be filled: {self.name(code)}")


def take_unchecked(runtime: Runtime | None) -> UncheckedLaunch | None:
    """Return the failed launch that the call just made left behind, and clear it.

    Other errors are cleared too: a library that asks whether an event has come leaves
    "not ready", and torch itself clears that.
    """
    if runtime is None or not (code := runtime.last_error()):
        return None
    runtime.clear_error()
    if code != INVALID_VALUE and code not in LAUNCH_ERRORS:
        return None
    return UncheckedLaunch(
        runtime.name(code), runtime.text(code), code != INVALID_VALUE
    )


def forget_errors(runtime: Runtime | None) -> None:
    """Clear what an earlier call left, so that the next one is not reported for it."""
    if runtime is not None and runtime.last_error():
        runtime.clear_error()


@cache
def torch_runtime() -> Runtime | None:
    """Return the runtime behind torch's GPUs, None where it has none or hides it."""
    try:
        return find_runtime(_MAPS.read_text(), _open)
    except OSError:
        return None


def find_runtime(maps: str, load: Callable[[str], Any]) -> Runtime | None:
    """Return the first runtime among a process's mapped files, None without one.

    Args:
        maps: the text of /proc/self/maps.
        load: opens a library that is loaded already.
    """
    paths = dict.fromkeys(
        line[line.index("/") :] for line in maps.splitlines() if "/" in line
    )
    for wanted, prefix in _LIBRARIES:
        for path in paths:
            if os.path.basename(path).startswith(wanted):
                try:
                    return Runtime(load(path), prefix)
                except (OSError, AttributeError):
                    continue
    return None


def _open(path: str) -> ctypes.CDLL:
    return ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
