"""Packages whose kernels can be imported without what stands around them."""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any


class _Bare:
    """Finds the packages below one, and their modules; no `__init__` is run."""

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(
        self, name: str, path: Sequence[str] | None, _: object = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] != self._package:
            return None
        found = PathFinder.find_spec(name, path)
        if found and found.submodule_search_locations:
            found.loader = None
        return found


class _Absent(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__bool__": lambda _: False})


def bare(package: str) -> None:
    """Let modules of a package be imported without any `__init__` of it.

    Raises:
        ModuleNotFoundError: if it is not on the path.
    """
    if PathFinder.find_spec(package) is None:
        raise ModuleNotFoundError(f"{package} is not on the path")
    sys.meta_path.insert(0, _Bare(package))


def absent(*names: str, **members: object) -> None:
    """Let modules be imported that are named there, but not used.

    What is no member of theirs is an empty class, of false instances.
    """
    for name in names:
        made = sys.modules[name] = _Absent(name)
        made.__dict__.update(members)
