"""Importing modules of released wheels, and calling what changes between releases."""

import contextlib
import importlib
import importlib.machinery
import importlib.metadata
import inspect
import os
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

FUNCTION: Final = "KNOWN_FAULT_FUNCTION"
"""The variable that names the function of an entry."""

FOLDER: Final = "KNOWN_FAULT_FOLDER"
"""The variable that names the folder in which its release lies."""

_FLA: Final = ("fla", "fla.modules", "fla.ops", "fla.layers", "fla.models")


def fla(name: str) -> types.ModuleType:
    """Import a module of flash-linear-attention, without the packages above it.

    Their `__init__` imports every layer and model, and with them transformers. The
    module's own file, and all that it imports itself, run as released.

    Args:
        name: the module below `fla`, such as "modules.rotary".

    Raises:
        ModuleNotFoundError: if this release has no such module.
    """
    _accept_unknown_autotune_keys()
    if "fla" not in sys.modules:
        found = importlib.machinery.PathFinder.find_spec("fla")
        if found is None or found.submodule_search_locations is None:
            raise ModuleNotFoundError(
                "no release of flash-linear-attention on the path"
            )
        for package in _FLA:
            empty = types.ModuleType(package)
            below = package.split(".")[1:]
            empty.__path__ = [
                os.path.join(folder, *below)
                for folder in found.submodule_search_locations
            ]
            sys.modules[package] = empty
        sys.modules["fla"].__dict__["__version__"] = _version()
    return importlib.import_module(f"fla.{name}")


def import_beforehand() -> None:
    """Import the module of the function that a run is about, where one is named.

    So it is there before children are forked, as in files that import at their top.

    Raises:
        RuntimeError: if it is not of the release that is searched.
    """
    module = os.environ.get(FUNCTION, "").rpartition(".")[0]
    package, _, below = module.partition(".")
    with contextlib.suppress(ImportError):  # the call says so
        if package == "fla":
            fla(below)
        elif package:
            importlib.import_module(module)
    for name, loaded in list(sys.modules.items()):
        file = getattr(loaded, "__file__", None)
        ours = package and name.startswith(f"{package}.") and file
        if ours and not file.startswith(os.environ[FOLDER] + os.sep):
            raise RuntimeError(f"{file} is not of the release in {os.environ[FOLDER]}")


def first(function: str, *modules: str) -> Callable[..., Any]:
    """Return a function of flash-linear-attention from the first module that has it."""
    for name in modules:
        try:
            return getattr(fla(name), function)  # type: ignore[no-any-return]
        except (ModuleNotFoundError, AttributeError):
            continue
    raise ModuleNotFoundError(f"this release has {function} in none of {modules}")


def liger(function: str, module: str) -> Callable[..., Any]:
    """Return a function of Liger-Kernel."""
    loaded = importlib.import_module(f"liger_kernel.{module}")
    return getattr(loaded, function)  # type: ignore[no-any-return]


def call(function: Callable[..., Any], **given: Any) -> Any:
    """Call a function with those of some keyword arguments that it has."""
    takes = inspect.signature(function).parameters
    return function(**{name: value for name, value in given.items() if name in takes})


def apply(function: Any, **given: Any) -> Any:
    """Apply a function of autograd to arguments that are given by name.

    Releases add parameters and reorder them. Those that this release does not have are
    left out; parameters behind the last one that is given keep their defaults.

    Raises:
        TypeError: if a parameter before one that is given has no value.
    """
    parameters = list(inspect.signature(function.forward).parameters.values())[1:]
    last = max(i for i, one in enumerate(parameters) if one.name in given)
    values = []
    for one in parameters[: last + 1]:
        value = given.get(one.name, one.default)
        if value is inspect.Parameter.empty:
            raise TypeError(f"{function.__name__} takes {one.name}, which is not given")
        values.append(value)
    return function.apply(*values)


def only(result: Any) -> torch.Tensor:
    """Return the first of several results, or the only one."""
    chosen: torch.Tensor = result[0] if isinstance(result, tuple) else result
    return chosen


def _version() -> str:
    for package in ("fla-core", "flash-linear-attention"):
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "0"


def _accept_unknown_autotune_keys() -> None:
    """Drop keys of `triton.autotune` that name no argument of the kernel.

    Triton up to 3.5 ignored them; later releases raise while the library is imported.
    """
    import triton

    original = triton.autotune
    if getattr(original, "accepts_unknown_keys", False):
        return

    def autotune(
        configs: list[Any], key: Sequence[str], **options: Any
    ) -> Callable[[Any], Any]:
        def decorate(kernel: Any) -> Any:
            known = [name for name in key if name in kernel.arg_names]
            return original(configs, known, **options)(kernel)

        return decorate

    autotune.__dict__["accepts_unknown_keys"] = True
    triton.autotune = autotune


import_beforehand()
