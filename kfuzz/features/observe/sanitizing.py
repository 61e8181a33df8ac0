"""The processes of a sanitized program: each launch is interpreted and checked.

Every Python process below the command calls `begin` as it imports torch (`site`): the
program itself, the workers of a test run, and what these start.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from kfuzz.core.verdict import Access
from kfuzz.execution.calls.patches import Patches
from kfuzz.execution.device import simulated
from kfuzz.execution.interpreter import watch
from kfuzz.execution.interpreter.memory import AddressCheck
from kfuzz.features.observe.faults import GPU, KIND, Argument, Fault, Kernel, Seen
from kfuzz.features.observe.fresh import FreshMemory
from kfuzz.features.observe.program import FOLDER, at_end, leave


class _Checking:
    """Checks the launches of this process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pid = os.getpid()
        self._seen = Seen()
        self._fresh = FreshMemory()
        self._lock = threading.RLock()
        self._around = ExitStack()  # never left, and kept lest it be collected

    def install(self, owner: Any) -> None:
        """Check what is launched, by a class of Triton's, until the process ends."""
        patches, around = Patches(), self._around
        around.enter_context(simulated.gpu())
        around.enter_context(watch.watch())
        self._fresh.follow(patches)
        patches.set(owner, "run", self._launching(owner.run))
        patches.set(torch, "compile", _uncompiled)
        at_end(self.write)

    def write(self) -> None:
        """Leave what was seen; in a fork what it saw itself."""
        if self._pid == os.getpid() and (self._seen.launches or self._seen.lacking):
            leave(self._folder, KIND, self._seen)

    def _launching(self, run: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(run)
        def launch(function: Any, *args: Any, **kwargs: Any) -> Any:
            if os.getpid() != self._pid:
                self._pid, self._seen = os.getpid(), Seen()
            code = function.fn.__code__
            kernel = Kernel(code.co_filename, code.co_firstlineno, code.co_name)
            given = dict(zip(function.arg_names, args, strict=False)) | {
                name: v for name, v in kwargs.items() if name in function.arg_names
            }
            self._lock.acquire()  # the interpreter has one grid for all threads
            launches = watch.current()
            launches.check = AddressCheck(self._fresh.reach(given))
            programs, seen = launches.programs, self._seen
            try:
                return run(function, *args, **kwargs)
            except Exception as error:
                if watch.is_interpreter_failure(error):
                    programs = launches.programs  # not all of them ran
                    key = kernel, f"{type(error).__name__}: {error}".partition("\n")[0]
                    seen.lacking[key] = seen.lacking.get(key, 0) + 1
                raise
            finally:
                found, launches.check = launches.accesses, None
                self._lock.release()
                if launches.programs > programs:
                    seen.launches[kernel] = seen.launches.get(kernel, 0) + 1
                if found:
                    self._note(kernel, found, given, sys._getframe(1))

        return launch

    def _note(
        self,
        kernel: Kernel,
        found: Iterable[Access],
        given: Mapping[str, Any],
        frame: FrameType | None,
    ) -> None:
        shown = {name: _argument(value) for name, value in given.items()}
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
        while frame is not None and _is_between(frame):
            frame = frame.f_back
        caller = "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
        for access in found:
            self._seen.add(Fault(kernel, access, shown, caller, test))


def _uncompiled(model: Any = None, **options: Any) -> Any:
    """Stand for `torch.compile`, which would compile for the host."""
    return model if model is not None else lambda later: later


def _is_between(frame: FrameType) -> bool:
    """Whether a frame lies between a launch and whoever wrote it."""
    module = str(frame.f_globals.get("__name__", ""))
    return module.partition(".")[0] in ("triton", "kfuzz", "contextlib", "functools")


def _argument(value: Any) -> Argument:
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        return Argument(tuple(value.shape), tuple(value.stride()), dtype)
    return Argument(value=f"{value!r:.60}")


_checking: _Checking | None = None


def begin() -> None:
    """Check what this process launches from now on, if Triton is there."""
    global _checking
    with suppress(ImportError):
        from triton.runtime.interpreter import InterpretedFunction

        simulated.declare(os.environ[GPU])
        _checking = _Checking(Path(os.environ[FOLDER]))
        _checking.install(InterpretedFunction)
