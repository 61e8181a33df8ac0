"""Where a binding stands, and which line of a user's code raised."""

import inspect
import linecache
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch

from kfuzz.contracts.binding import BoundKernel
from kfuzz.core.errors import BindingError, class_name, message_of

# Frames below these are no code of the user's.
_OURS: Final = (Path(__file__).parents[2], Path(torch.__file__).parent)


def broken(kernel: BoundKernel, what: str, fix: str) -> BindingError:
    """Return the error that says where a binding stands and what is wrong with it."""
    operator = kernel.operator.forward or kernel.operator
    file = getattr(sys.modules.get(kernel.module), "__file__", None)
    place = f"{shown(file)}:{kernel.line}: " if file else ""
    return BindingError(
        what, where=f"{place}kernel {kernel.name}, operator {operator.name}", fix=fix
    )


def raised(error: BaseException, called: Callable[..., Any] | None = None) -> str:
    """Return an exception with its message in one line, and the user's line.

    Args:
        error: what was raised.
        called: the user's function, named where no line of it ran.
    """
    text = " ".join(message_of(error).split())
    told = f"{class_name(error)}: {text}" if text else class_name(error)
    if line := _line_of(error):
        return f"{told} (at {line})"
    return told if called is None else f"{told} ({defined(called)})"


def defined(function: Callable[..., Any]) -> str:
    """Return a function's name and where it is defined, for people."""
    name = getattr(function, "__name__", type(function).__name__)
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return str(name)
    return f"{name} of {shown(code.co_filename)}:{code.co_firstlineno}"


def shown(file: str) -> str:
    """Return a path as people write it: relative where that is shorter."""
    try:
        near = os.path.relpath(file)
    except (OSError, ValueError):
        return file
    return min(near, file, key=len)


def _line_of(error: BaseException) -> str:
    """Return the innermost line that is no library's, "" where there is none."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename.startswith("<"):
            continue
        if any(Path(frame.filename).is_relative_to(folder) for folder in _OURS):
            continue
        source = linecache.getline(frame.filename, frame.lineno or 0).strip()
        place = f"{shown(frame.filename)}:{frame.lineno}"
        return f"{place}: {source}" if source else place
    return ""
