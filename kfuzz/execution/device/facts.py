"""What a file asks of the GPUs while it is imported, answered without a context.

Libraries choose tile sizes by the name or the number of processors of a device as
they are imported. The driver's context that this makes could not be used in a process
forked afterwards; so another process asks, once, and what it heard is told.
"""

import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from kfuzz.execution.calls.patches import Patches

# A driver that takes longer to answer is left to whoever asks it.
SECONDS: Final = 60
# What asks in Triton's drivers, by backend.
_TRITON_UTILS: Final = {"nvidia": "CudaUtils", "amd": "HIPUtils"}


@dataclass(frozen=True)
class Device:
    """What a process heard of one device.

    Attributes:
        name: of the device.
        capability: its compute capability, major and minor.
        properties: as torch has them.
        of_triton: as Triton's driver has them; None where Triton was not asked.
    """

    name: str
    capability: tuple[int, int]
    properties: Mapping[str, object]
    of_triton: Mapping[str, object] | None = None


class Properties:
    """The properties of a device: those that were heard, else the driver's own."""

    def __init__(self, heard: Mapping[str, object], real: Callable[[], object]) -> None:
        self._heard, self._real = heard, real

    def __getattr__(self, name: str) -> object:
        if name in self._heard:
            return self._heard[name]
        return getattr(self._real(), name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict(self._heard)})"


@contextmanager
def answered_apart() -> Iterator[None]:
    """Have torch's questions about GPUs answered by a process forked for them.

    Who keeps one of the functions beyond the block keeps the real one.
    """
    import torch

    cuda = torch.cuda
    if not cuda._is_compiled():
        yield
        return
    heard = _Heard()
    real_properties = cuda.get_device_properties
    patches = Patches()
    answers: dict[str, Callable[..., object]] = {
        "is_available": lambda: bool(heard.devices),
        "device_count": lambda: len(heard.devices),
        "current_device": lambda: 0,
        "get_device_name": lambda device=None: heard.of(device).name,
        "get_device_capability": lambda device=None: heard.of(device).capability,
        "get_device_properties": lambda device=None: Properties(
            heard.of(device).properties, partial(real_properties, device)
        ),
    }
    for name, answer in answers.items():
        asked = _asked(getattr(cuda, name), answer, heard)
        patches.set(cuda, name, asked)
    for utils in _of_triton():
        _answer_triton(utils, heard, patches)
    try:
        yield
    finally:
        heard.close()
        patches.undo()


class _Heard:
    """What another process heard: one that began to ask before it was needed.

    Attributes:
        over: whether nothing is answered from here any more.
    """

    def __init__(self) -> None:
        self.over = False
        self._devices: list[Device] | None = None
        self._visible = _visible()
        self._asking: _Asking | None = _Asking(self._told)

    @property
    def devices(self) -> list[Device]:
        """The devices.

        Raises:
            LookupError: the process could not tell.
        """
        if self._asking is not None:
            if _visible() != self._visible:  # the file says which devices it sees
                self._asking.end()
                self._asking = _Asking(self._told)
            asking, self._asking = self._asking, None
            self._devices = asking.answer()
        if self._devices is None:
            raise LookupError
        return self._devices

    def close(self) -> None:
        """Answer no more."""
        self.over = True
        if self._asking is not None:
            self._asking.end()
            self._asking = None

    def _told(self) -> list[Device]:
        self.over = True  # in that process
        return _told()

    def of(self, device: Any) -> Device:
        """Return what was heard of a device that is named as torch allows.

        Raises:
            LookupError: there is none of this name.
        """
        if isinstance(device, str):
            device = device.partition(":")[2]
        elif not isinstance(device, int):
            device = getattr(device, "index", None)
        return self.devices[int(device or 0)]


def _of_triton() -> Iterator[type]:
    """Yield the classes by which Triton's drivers ask, as far as they are imported."""
    for backend, name in _TRITON_UTILS.items():
        module = sys.modules.get(f"triton.backends.{backend}.driver")
        if isinstance(utils := getattr(module, name, None), type):
            yield utils


def _answer_triton(utils: Any, heard: "_Heard", patches: Patches) -> None:
    """Have a driver of Triton answer from what was heard, one made later as well.

    Its own function is C, and fails in a process without a context: a library then
    takes its smallest tiles, which its users do not.
    """

    def answer(device: object = 0) -> Mapping[str, object]:
        if (told := heard.of(device).of_triton) is None:
            raise LookupError
        return dict(told)

    def made(self: Any) -> None:
        real(self)
        wrap(self)

    def wrap(one: Any) -> None:
        asked = _asked(one.get_device_properties, answer, heard)
        patches.set(one, "get_device_properties", asked)

    real = utils.__init__
    patches.set(utils, "__init__", made)
    if hasattr(existing := vars(utils).get("instance"), "get_device_properties"):
        wrap(existing)


def _asked(
    real: Callable[..., object], answer: Callable[..., object], heard: _Heard
) -> Callable[..., object]:
    def asked(*args: Any, **kwargs: Any) -> object:
        if heard.over:
            return real(*args, **kwargs)
        try:
            return answer(*args, **kwargs)
        except (LookupError, TypeError, ValueError):
            return real(*args, **kwargs)  # it raises as it should

    return asked


class _Asking:
    """A forked process that asks, while this one goes on.

    Args:
        ask: what it calls; what that returns can be pickled.
    """

    def __init__(self, ask: Callable[[], list[Device]]) -> None:
        self._reader, writer = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                signal.alarm(SECONDS)
                os.close(self._reader)
                with os.fdopen(writer, "wb") as file:
                    pickle.dump(ask(), file)
            except Exception:  # whoever asks the driver next meets it too
                pass
            finally:
                os.kill(os.getpid(), signal.SIGKILL)  # `os._exit` may be replaced now
        os.close(writer)

    def answer(self) -> list[Device] | None:
        """Return what it heard, None if nothing; it has ended then."""
        with os.fdopen(self._reader, "rb") as file:
            told = file.read()
        self._gone()
        try:
            devices: list[Device] = pickle.loads(told)
        except (EOFError, pickle.UnpicklingError):
            return None
        return devices

    def end(self) -> None:
        """End it; nobody wants its answer."""
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        os.close(self._reader)
        self._gone()

    def _gone(self) -> None:
        with suppress(ChildProcessError):  # the file waits for whatever ends
            os.waitpid(self._pid, 0)


def _visible() -> dict[str, str]:
    """Return the variables that say which devices a process sees."""
    return {k: v for k, v in os.environ.items() if k.endswith("_VISIBLE_DEVICES")}


def _told() -> list[Device]:
    """Ask the driver; this makes contexts."""
    from torch import cuda

    heard = []
    for number in range(cuda.device_count()):
        found = cuda.get_device_properties(number)
        properties = {}
        for name in dir(found):
            value = getattr(found, name, None)
            if not name.startswith("_") and isinstance(value, str | int | float):
                properties[name] = value
        capability = (found.major, found.minor)
        of_triton = _told_by_triton(number)
        heard.append(Device(found.name, capability, properties, of_triton))
    return heard


def _told_by_triton(number: int) -> Mapping[str, object] | None:
    """Return what Triton's driver has of a device, None where it is not in use."""
    if "triton" not in sys.modules:
        return None
    from triton.runtime import driver

    try:
        return dict(driver.active.utils.get_device_properties(number))
    except Exception:  # whoever asks it next meets that too
        return None
