"""The device backends there are, and the one that a name or a device stands for.

A new backend is a file beside this one and its line in `BACKENDS`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kfuzz.core.errors import BackendError
from kfuzz.execution.device.backend import DeviceBackend
from kfuzz.execution.device.cpu import CPU
from kfuzz.execution.device.gpu import GPU
from kfuzz.execution.device.interpreted import INTERPRET

if TYPE_CHECKING:
    import torch

AUTO: Final = "auto"

BACKENDS: Final[dict[str, DeviceBackend]] = {
    backend.name: backend for backend in (GPU, INTERPRET, CPU)
}
"""By name; `--device auto` takes the first of which a device is there."""


def resolve(asked: str) -> tuple[DeviceBackend, tuple[str, ...]]:
    """Return the backend that `--device` asks for, and torch's names of its devices.

    Returns:
        Kernels may be divided among the devices: among all, unless some are named,
        such as "cuda:0,cuda:2". The first is the one that has a kernel for itself.

    Raises:
        BackendError: if the device is not there.
    """
    if asked == AUTO:
        found = ((backend, backend.devices()) for backend in BACKENDS.values())
        return next((backend, devices) for backend, devices in found if devices)
    if "," in asked:
        each = [resolve(one.strip()) for one in asked.split(",")]
        if any(backend is not each[0][0] for backend, _ in each):
            raise BackendError(
                f"devices of different kinds: {asked!r}",
                fix="name GPUs only, or one backend",
            )
        listed = (device for _, devices in each for device in devices)
        return each[0][0], tuple(dict.fromkeys(listed))
    name, numbered, index = asked.partition(":")
    backend = BACKENDS.get(name)
    number = int(index or "0") if (index or "0").isdigit() else None
    if backend is None or number is None or (numbered and not backend.numbered):
        every = BACKENDS.values()
        valid = sorted([*BACKENDS, *(f"{b.name}:i" for b in every if b.numbered)])
        raise BackendError(
            f"unknown device {asked!r}", fix=f"valid: {', '.join([AUTO, *valid])}"
        )
    devices = backend.devices()
    if number >= len(devices):
        kind = name.upper()
        seen = f"{len(devices)} {kind} devices" if devices else f"no {kind} GPU"
        raise BackendError(
            f"no device {asked!r}: torch sees {seen}",
            fix="--device interpret runs Triton kernels on the CPU; kfuzz doctor "
            "prints what works",
        )
    return backend, (devices[number],) if numbered else devices


def alike(backend: DeviceBackend, devices: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of a backend's devices that are of the first one's kind."""
    kinds = {each: backend.device_name(each) for each in devices}
    return tuple(each for each in devices if kinds[each] == kinds[devices[0]])


def guess(asked: str) -> DeviceBackend | None:
    """Return the backend that `--device` probably stands for; touches nothing."""
    if asked == AUTO:
        return next(b for b in BACKENDS.values() if b.is_likely())
    return BACKENDS.get(asked.partition(",")[0].partition(":")[0])


def first_of(asked: str) -> str:
    """Return the device, of those that `--device` stands for, that is used first."""
    first = asked.partition(",")[0].strip()
    return first if ":" in first else ""


def backend_of(device: "torch.device | str") -> DeviceBackend:
    """Return the native backend of torch's device; the CPU for a type that has none."""
    kind = device.partition(":")[0] if isinstance(device, str) else device.type
    for backend in BACKENDS.values():
        if backend.torch_type == kind and backend.has.native:
            return backend
    return CPU


def named(text: str) -> DeviceBackend:
    """Return the backend of a name, or of torch's name of a device."""
    return BACKENDS.get(text.partition(":")[0]) or backend_of(text)


def sharing(torch_type: str) -> list[DeviceBackend]:
    """Return the backends whose devices have a type of torch's."""
    return [b for b in BACKENDS.values() if b.torch_type == torch_type]


def is_lost(device: "torch.device") -> bool:
    """Whether calls on a device fail for the rest of this process.

    So it is after a device-side assertion.
    """
    return bool(backend_of(device).fault(device))


def fault_of(device: "torch.device") -> str:
    """Return the fault for which a device can do nothing more; see `DeviceBackend`."""
    return backend_of(device).fault(device)


def environment_for(
    backend: DeviceBackend, outer: Mapping[str, str], device: str | None = None
) -> dict[str, str]:
    """Return the environment of a backend's children.

    Args:
        backend: the backend.
        outer: of this process: what any backend sets is its own affair.
        device: the one device that the children see, "" for the first; None where they
            see what this process does.
    """
    owned = {name for each in BACKENDS.values() for name in each.environment}
    inherited = {name: value for name, value in outer.items() if name not in owned}
    seen = {} if device is None else backend.only([device], outer)
    return inherited | dict(backend.environment) | seen
