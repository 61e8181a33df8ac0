"""Launches in Triton's interpreter, made as compiled kernels are launched.

A number that a kernel is given is a tensor of its parameter's type there (a float one
of 32 bits), a grid may be a list, a function that makes it sees the caller's arguments,
and a parameter is a constant if its annotation says so, however the file has the name.
"""

import inspect
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch

from kfuzz.execution.calls.patches import Patches

_CONSTANT: Final = "constexpr"


def install(module: Any, patches: Patches) -> None:
    """Have kernels launched so until the patches are undone.

    Args:
        module: `triton.runtime.interpreter`.
        patches: takes what is replaced.
    """
    executor = module.GridExecutor
    patches.set(module, "_implicit_cvt", _converted(module))
    patches.set(executor, "__call__", _launched(module, executor.__call__))


def _converted(module: Any) -> Callable[[Any], Any]:
    original = module._implicit_cvt

    def converted(argument: Any) -> Any:
        if isinstance(argument, bool):  # up to some release made a wide integer
            return _scalar(module, argument, "u1")
        if isinstance(argument, float):
            return _scalar(module, argument, "fp32")
        return original(argument)

    return converted


def _scalar(module: Any, value: Any, name: str) -> Any:
    """Return a number as a tensor of Triton's, of a type by its short name."""
    dtype = module.tl.str_to_ty(name, None)
    wanted = module._get_np_dtype(dtype)
    if dtype.is_int():  # bits of what the launcher packs
        kept = int(value) % (1 << 8 * wanted.itemsize)
        data = np.array([kept], f"u{wanted.itemsize}").astype(wanted)
    else:
        data = np.array([value]).astype(wanted)
    return module.tl.tensor(module.TensorHandle(data, dtype), dtype)


def _launched(module: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    def launch(executor: Any, *arguments: Any, **named: Any) -> Any:
        declared = {
            name: module.triton.runtime.jit._normalize_ty(kind)
            for name, kind in inspect.get_annotations(executor.fn).items()
        }
        jit = module.triton.runtime.jit
        numeric = frozenset(jit.type_canonicalisation_dict.values())
        executor.constexprs = [
            name
            for name in executor.arg_names
            if _CONSTANT in declared.get(name, "") or name in executor.constexprs
        ]
        if callable(executor.grid):
            known = {k: v for k, v in named.items() if k in executor.arg_names}
            bound = inspect.getcallargs(executor.fn, *arguments, **known)
            executor.grid = executor.grid(bound)
        if isinstance(executor.grid, list):
            executor.grid = tuple(executor.grid)

        def typed(name: str, value: Any) -> Any:
            kind = declared.get(name, "")
            plain = isinstance(value, int | float) and name not in executor.constexprs
            if not plain or kind not in numeric:
                return value
            return _scalar(module, value, kind)

        positional = map(typed, executor.arg_names, arguments)
        by_name = {name: typed(name, value) for name, value in named.items()}
        # What runs now asks of tensors where they are, not where they say.
        with torch._C.DisableTorchFunction():
            return original(executor, *positional, **by_name)

    return launch
