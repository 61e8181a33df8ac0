"""Which devices there are, without touching them, and whether one still works."""

import torch

from kfuzz.core.errors import BackendError


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


def device_name(device: str) -> str:
    """Return a device's name as its driver gives it, "" for the CPU."""
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else ""


def is_lost(device: torch.device) -> bool:
    """Whether calls on a device fail for the rest of this process.

    So it is after a device-side assertion.
    """
    if device.type != "cuda":
        return False
    try:
        torch.cuda.synchronize(device)
    except RuntimeError:
        return True
    return False
