"""Watching Triton's interpreter: programs launched, and arithmetic it gets wrong.

The interpreter's own bfloat16 and float8 arithmetic is wrong (casts truncate,
maxima of bfloat16 compare bit patterns). While a watch lasts it is corrected
(`kfuzz.execution.low_precision`); a case that touches what cannot be corrected is
not judged. Outside a watch Triton is as its user installed it.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from kfuzz.execution import low_precision
from kfuzz.execution.patches import Patches

_MODULE: Final = "triton.runtime.interpreter"
_AUTOTUNER: Final = "triton.runtime.autotuner"
# Triton type names of the formats that the interpreter computes in wrongly.
_UNRELIABLE: Final = low_precision.FORMATS | {"fp8e5b16", "fp8e4b8", "fp8e4b15"}


@dataclass
class Launches:
    """What the interpreter did during one call of a kernel.

    Attributes:
        programs: program instances run.
        unreliable: why its results may be wrong whatever the kernel does, or "".
    """

    programs: int = 0
    unreliable: str = ""

    def distrust(self, reason: str) -> None:
        """Keep the first reason not to judge by this call."""
        self.unreliable = self.unreliable or reason


_current = Launches()
_installed = False


def interpreting() -> bool:
    """Whether this process runs Triton kernels through the interpreter."""
    return os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "yes", "on")


def is_interpreter_failure(error: BaseException) -> bool:
    """Whether an exception came from inside the interpreter.

    Such an exception may be the interpreter's own limit (no libdevice, no
    autotuner), so it is no evidence against the kernel.
    """
    seen: BaseException | None = error
    while seen is not None:
        if type(seen).__module__.startswith("triton."):
            return True
        seen = seen.__cause__
    return False


@contextmanager
def watch() -> Iterator[Launches]:
    """Count what the interpreter does while the block runs, and correct it.

    A no-op counter where no kernel is interpreted. NumPy, which the interpreter
    computes with, does not warn of overflow and NaN: a GPU does not either.
    Of `@triton.autotune` the first configuration runs: nothing can be timed.
    """
    global _current
    outer, _current = _current, Launches()
    interpreted = interpreting() and _MODULE in sys.modules
    try:
        with ExitStack() as session:
            if interpreted:
                session.enter_context(np.errstate(all="ignore"))
                session.enter_context(_session(sys.modules[_MODULE]))
            yield _current
    finally:
        _current = outer


@contextmanager
def _session(module: Any) -> Iterator[None]:
    """Hook and correct the interpreter; within another session, do nothing."""
    global _installed
    if _installed:
        yield
        return
    patches = Patches()
    try:
        _installed = True
        _install(module, patches)
        yield
    finally:
        patches.undo()
        _installed = False


def _install(module: Any, patches: Patches) -> None:
    handle, builder = module.TensorHandle, module.interpreter_builder
    created, placed = handle.__post_init__, builder.set_grid_idx
    corrected = low_precision.correctable(module)
    wrong = _UNRELIABLE - corrected

    def created_handle(self: Any) -> None:
        created(self)
        if not _current.unreliable:
            name = str(self.get_element_ty())
            if name in wrong:
                hint = (
                    " (ml_dtypes is missing?)" if name in low_precision.FORMATS else ""
                )
                _distrust(f"Triton's interpreter computes {name} wrongly{hint}")

    def placed_program(*index: int) -> None:
        _current.programs += 1
        placed(*index)

    patches.set(handle, "__post_init__", created_handle)
    patches.set(builder, "set_grid_idx", placed_program)
    if corrected:
        low_precision.install(module, _distrust, patches)
    tuner = getattr(sys.modules.get(_AUTOTUNER), "Autotuner", None)
    if hasattr(tuner, "_bench"):
        # Equal timings: the first configuration wins. No kernel runs for them.
        patches.set(tuner, "_bench", lambda *_, **__: [0.0, 0.0, 0.0])


def _distrust(reason: str) -> None:
    _current.distrust(reason)
