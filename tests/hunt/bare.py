"""Packages whose kernels can be imported without what their `__init__` imports."""

import sys
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType


def bare(name: str, *inner: str) -> None:
    """Let modules of a package be imported without its `__init__`.

    Args:
        name: the package.
        inner: packages in it, with their full names, of which the same holds.

    Raises:
        ModuleNotFoundError: if it is not on the path.
    """
    found = PathFinder.find_spec(name)
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError(f"{name} is not on the path")
    folder = Path(found.submodule_search_locations[0])
    for package in (name, *inner):
        made = sys.modules[package] = ModuleType(package)
        made.__path__ = [str(folder.joinpath(*package.split(".")[1:]))]
