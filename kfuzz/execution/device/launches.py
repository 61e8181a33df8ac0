"""Launches that failed unseen: a call that returned and left an error behind."""

from typing import Final

from kfuzz.execution.device.runtime import Runtime
from kfuzz.numerics.run import UncheckedLaunch

# Values of cudaError_t (driver_types.h of the CUDA toolkit); hipError_t shares them.
INVALID_VALUE: Final = 1
# What only a launch, or the look-up of its kernel, leaves: invalid configuration,
# missing configuration, invalid device function, no kernel image or invalid image for
# the device, invalid or unsupported PTX, no compiler for it, out of resources,
# cooperative launch too large.
LAUNCH_ERRORS: Final = frozenset({9, 52, 98, 200, 209, 218, 221, 222, 701, 720})


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
    """Clear what an earlier call left, so that the next one is not charged with it."""
    if runtime is not None and runtime.last_error():
        runtime.clear_error()
