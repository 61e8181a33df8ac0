"""Trying the GPUs of a run, so that one that is broken judges nothing."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from kfuzz.core.errors import BackendError, KfuzzError
from kfuzz.engine.workers.backend import Backend

SERVE: Final = "kfuzz.execution.device.canary:serve"
PATIENCE_SECONDS: Final = 60.0
"""Importing torch and creating a context, on a machine that is busy."""


@dataclass(frozen=True)
class Tried:
    """How a device fared.

    Attributes:
        device: the campaign's name of it.
        uuid: identifies it, "" where it could not say.
        ailment: why it cannot be used, "" where it can.
        passed: whether a load past the end of an argument passed that should fault.
    """

    device: str
    uuid: str = ""
    ailment: str = ""
    passed: bool = False

    @property
    def title(self) -> str:
        """What messages call it."""
        return f"{self.device} ({self.uuid})" if self.uuid else self.device


def left_out(tried: Sequence[Tried]) -> dict[str, str]:
    """Return the devices that judge nothing, by name, each with the reason.

    An over-read that passes speaks against a device only where it faults on another:
    else it is the driver's way, and what goes unseen is told of the whole run.
    """
    faults = any(not one.ailment and not one.passed for one in tried)
    return {
        one.device: f"{one.title} is left out: "
        + (one.ailment or "a planted load past the end passes, on others it faults")
        for one in tried
        if one.ailment or (one.passed and faults)
    }


def keep_sound(backend: Backend) -> list[str]:
    """Leave out the devices of a backend that do not work; one alone is not tried.

    What is wrong with one alone shows in each of its children, which say so.

    Returns:
        What was left out, and why.

    Raises:
        BackendError: if nothing is left.
    """
    if len(backend.devices) < 2 or not backend.isolated:
        return []
    with ThreadPoolExecutor(len(backend.devices)) as pool:
        found = left_out(
            list(pool.map(lambda each: tried(backend, each), backend.devices))
        )
    sound = tuple(each for each in backend.devices if each not in found)
    if not sound:
        raise BackendError(
            f"no device works: {'; '.join(found.values())}",
            fix="kfuzz doctor prints what each can do",
        )
    backend.use(sound)
    return list(found.values())


def tried(backend: Backend, device: str) -> Tried:
    """Return how a device of a backend fares."""
    try:
        with backend.fork(lambda: True, device=device, serve=SERVE) as child:
            asked = {"device": backend.called(device)}
            told = child.request(asked, PATIENCE_SECONDS)
    except KfuzzError as error:
        return Tried(device, ailment=str(error).partition("\n")[0])
    return Tried(device, told["uuid"], told["ailment"], told["passed"])
