"""Which devices there are, without touching them, and whether one still works."""

from typing import Final

import torch

from kfuzz.core.errors import BackendError
from kfuzz.core.verdict import ILLEGAL_ADDRESS


def resolve_device(device: str) -> tuple[str, str]:
    """Return (backend, torch device) for what `--device` says.

    "auto" takes CUDA where there is a GPU, else the CPU with Triton kernels
    interpreted.

    Raises:
        BackendError: if the device is not there.
    """
    if device == "interpret":
        return "interpret", "cpu"
    if device == "cpu":
        return "cpu", "cpu"
    # NVML-based: it creates no CUDA context in the campaign.
    count = torch.cuda.device_count()
    if device == "auto":
        return ("cuda", "cuda:0") if count else ("interpret", "cpu")
    kind, _, index = device.partition(":")
    if kind != "cuda" or not (index or "0").isdigit():
        raise BackendError(
            f"unknown device {device!r}",
            fix="valid: auto, cpu, cuda, cuda:i, interpret",
        )
    number = int(index or "0")
    if number >= count:
        have = f"torch sees {count} CUDA devices" if count else "torch sees no CUDA GPU"
        raise BackendError(
            f"no device {device!r}: {have}",
            fix="--device interpret runs Triton kernels on the CPU; kfuzz doctor "
            "tells more",
        )
    return "cuda", f"cuda:{number}"


def devices_of(asked: str, resolved: str) -> tuple[str, ...]:
    """Return the devices among which kernels may be divided.

    Args:
        asked: what `--device` says: a GPU that it names is the only one.
        resolved: torch's name of the first one, from `resolve_device`.
    """
    if not resolved.startswith("cuda") or ":" in asked:
        return (resolved,)
    return tuple(f"cuda:{number}" for number in range(torch.cuda.device_count()))


def device_name(device: str) -> str:
    """Return a device's name as its driver gives it, "" for the CPU."""
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else ""


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


def is_lost(device: torch.device) -> bool:
    """Whether calls on a device fail for the rest of this process.

    So it is after a device-side assertion.
    """
    return bool(fault_of(device))


def fault_of(device: torch.device) -> str:
    """Return the fault for which a device can do nothing more in this process.

    Waits for the device.

    Returns:
        Such as `ILLEGAL_ADDRESS` or `ASSERT`; "device_error" for one without a name
        here; "" where the device works.
    """
    if device.type != "cuda":
        return ""
    try:
        torch.cuda.synchronize(device)
    except RuntimeError:
        try:  # an error that does not last is told once
            torch.cuda.synchronize(device)
        except RuntimeError as error:
            return fault_name(error)
    return ""


def fault_name(error: RuntimeError) -> str:
    """Return the name of the device's fault that torch raised an error for."""
    named = _FAULTS.get(getattr(error, "error_code", 0))
    if named is not None:
        return named[0]
    text = str(error)
    found = (name for name, says in _FAULTS.values() if says in text)
    return next(found, "device_error")
