"""Watching Triton's interpreter: programs launched, and arithmetic it gets wrong.

The interpreter's bfloat16 and float8 arithmetic is wrong (casts truncate,
maxima of bfloat16 compare bit patterns), so a case that touches these formats
there is not judged. The watch is installed in kfuzz's own children only.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

_MODULE: Final = "triton.runtime.interpreter"
# Triton type names of the formats that the interpreter computes in wrongly.
_UNRELIABLE: Final = frozenset(
    {"bf16", "fp8e5", "fp8e5b16", "fp8e4nv", "fp8e4b8", "fp8e4b15"}
)


@dataclass
class Launches:
    """What the interpreter did during one call of a kernel.

    Attributes:
        programs: program instances run.
        unreliable: name of a format it handled but computes wrongly in, or "".
    """

    programs: int = 0
    unreliable: str = ""


_current = Launches()


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
    """Count what the interpreter does while the block runs.

    A no-op counter where no kernel is interpreted. NumPy, which the interpreter
    computes with, does not warn of overflow and NaN: a GPU does not either.
    """
    global _current
    outer, _current = _current, Launches()
    interpreted = interpreting() and _MODULE in sys.modules
    if interpreted:
        _install(sys.modules[_MODULE])
    silence = np.errstate(all="ignore") if interpreted else nullcontext()
    try:
        with silence:
            yield _current
    finally:
        _current = outer


def _install(module: Any) -> None:
    """Hook the interpreter once per process."""
    handle = module.TensorHandle
    if getattr(handle, "_kfuzz_watched", False):
        return
    handle._kfuzz_watched = True
    builder = module.interpreter_builder
    created, placed = handle.__post_init__, builder.set_grid_idx

    def created_handle(self: Any) -> None:
        created(self)
        if not _current.unreliable:
            name = str(self.get_element_ty())
            if name in _UNRELIABLE:
                _current.unreliable = name

    def placed_program(*index: int) -> None:
        _current.programs += 1
        placed(*index)

    handle.__post_init__ = created_handle
    builder.set_grid_idx = placed_program
