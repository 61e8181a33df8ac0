"""Bytecode kept in kfuzz's cache where Python itself keeps none.

An installation that cannot be written to, or an environment that forbids bytecode,
has every process compile every source anew: for large libraries that takes longer
than all else that importing them does.
"""

import importlib._bootstrap_external as external
import os
import sys
from collections.abc import Callable
from typing import Any, Final

from kfuzz.store.files import cache_folder

# The function by which Python's importer names the file of a source's bytecode.
_NAME: Final = "cache_from_source"


def keep() -> None:
    """Have this process, and those forked from it, find and leave bytecode there.

    Bytecode that lies beside its source is used as ever, and what may be written
    there is.
    """
    named = getattr(external, _NAME, None)
    if named is None or hasattr(named, "kept_in"):
        return
    try:
        folder = str(cache_folder("bytecode"))
    except OSError:
        return
    setattr(external, _NAME, _kept(named, folder, forbidden=sys.dont_write_bytecode))
    sys.dont_write_bytecode = False  # what is written goes to that folder


def _kept(
    named: Callable[..., str], folder: str, *, forbidden: bool
) -> Callable[..., str]:
    """Return a function that names the file of a source's bytecode.

    Args:
        named: Python's own.
        folder: where it lies, by the path of its source, if not beside that.
        forbidden: whether nothing may be written beside sources.
    """

    def kept(path: Any, *args: Any, **options: Any) -> str:
        own = named(path, *args, **options)
        if os.path.exists(own) or (not forbidden and _is_writable(own)):
            return own
        return os.path.join(folder, os.path.abspath(own).lstrip(os.sep) + _age(path))

    kept.kept_in = folder  # type: ignore[attr-defined]
    return kept


def _age(source: Any) -> str:
    """Return what of a source tells two of its forms apart, within a second too."""
    try:
        told = os.stat(source)
    except (OSError, TypeError, ValueError):
        return ""
    return f".{told.st_mtime_ns}.{told.st_size}"


def _is_writable(file: str) -> bool:
    """Whether a file can be made, with the folder that it is to lie in."""
    folder = os.path.dirname(file)
    if not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return os.access(folder, os.W_OK)
