"""What a file asks of this machine's GPUs while it is imported, without a context.

Libraries choose tile sizes by the name or the number of processors of a device as
they are imported. The driver's context that this makes could not be used in a process
forked afterwards: so the first question has another process ask them all.
"""

import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, Final

import torch

from kfuzz.execution.calls.patches import Patches
from kfuzz.execution.device.declared import questions

# A driver that takes longer to answer is left to whoever asks it.
SECONDS: Final = 60
# What asks in Triton's drivers, by backend.
_TRITON_UTILS: Final = {"nvidia": "CudaUtils", "amd": "HIPUtils"}

Facts = Mapping[str, Any]


@contextmanager
def answered_apart() -> Iterator[None]:
    """Have questions about GPUs answered by what a process forked for them hears.

    What is asked before and after the block, and what that process cannot tell, is
    asked of the driver.
    """
    cuda: Any = torch.cuda
    if not cuda._is_compiled():
        yield
        return
    over, patches = False, Patches()

    @cache
    def heard() -> list[tuple[Facts, Any]]:
        nonlocal over
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            over = True
            _report(writer)
        os.close(writer)
        with os.fdopen(reader, "rb") as file:
            told = file.read()
        with suppress(ChildProcessError):  # the file waits for whatever ends
            os.waitpid(pid, 0)
        return pickle.loads(told) if told else []

    def replace(owner: Any, name: str, answer: Callable[..., Any]) -> None:
        real = getattr(owner, name)

        def asked(*args: Any, **kwargs: Any) -> Any:
            if over or not heard():
                return real(*args, **kwargs)
            try:
                return answer(*args, **kwargs)
            except (LookupError, TypeError, ValueError):
                return real(*args, **kwargs)  # it raises as it should

        patches.set(owner, name, asked)

    def wrap(utils: Any) -> None:
        replace(
            utils, "get_device_properties", lambda device=0: dict(heard()[device][1])
        )

    for name, answer in questions(lambda: [facts for facts, _ in heard()]).items():
        replace(cuda, name, answer)
    for backend, name in _TRITON_UTILS.items():
        kind: Any = getattr(
            sys.modules.get(f"triton.backends.{backend}.driver"), name, None
        )
        if isinstance(kind, type):
            _wrap_new(kind, wrap, patches)
    try:
        yield
    finally:
        over = True
        patches.undo()


def _wrap_new(kind: Any, wrap: Callable[[Any], None], patches: Patches) -> None:
    """Wrap the one object of a class that there may be, and those made from now on."""
    real = kind.__init__

    def made(self: Any) -> None:
        real(self)
        wrap(self)

    patches.set(kind, "__init__", made)
    if hasattr(existing := vars(kind).get("instance"), "get_device_properties"):
        wrap(existing)


def _report(writer: int) -> None:
    """Write what the driver says to a pipe, and end this process."""
    try:
        signal.alarm(SECONDS)
        told = []
        for number in range(torch.cuda.device_count()):
            found = torch.cuda.get_device_properties(number)
            facts = {
                name: getattr(found, name) for name in dir(found) if name[:1] != "_"
            }
            plain = {n: v for n, v in facts.items() if isinstance(v, str | int | float)}
            told.append((plain, _of_triton(number)))
        with os.fdopen(writer, "wb") as file:
            pickle.dump(told, file)
    except Exception:  # whoever asks the driver next meets it too
        pass
    finally:
        os.kill(os.getpid(), signal.SIGKILL)  # `os._exit` may be replaced now


def _of_triton(number: int) -> Facts | None:
    if "triton" not in sys.modules:
        return None
    from triton.runtime import driver

    try:
        return dict(driver.active.utils.get_device_properties(number))
    except Exception:  # whoever asks it next meets that too
        return None
