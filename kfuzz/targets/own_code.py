"""Whether a kernel can run a Triton program at all, by what its files import."""

import ast
import inspect
import sys
from collections.abc import Iterator
from functools import cache, lru_cache
from importlib.util import resolve_name
from pathlib import Path
from types import ModuleType
from typing import Final

from kfuzz.contracts.binding import BoundKernel

_TRITON: Final = "triton"
# Packages that run none by themselves. On the CPU torch's compiler writes C++.
_PLAIN: Final = sys.stdlib_module_names | {"torch", "numpy", "scipy", "kfuzz"}
# Those of them that may stand for any other import, and kernels of kfuzz's own.
_OPEN: Final = ("importlib", "runpy", "kfuzz.contracts.witnesses")
# More files are a library's, which is not read.
_MOST_FILES: Final = 64


@lru_cache(64)  # asked of in each round
def is_triton_free(kernel: BoundKernel) -> bool:
    """Whether nothing that a kernel's files import, and these in turn, is Triton.

    It depends on the files alone. What cannot be read counts as what may run Triton:
    operators of compiled libraries, modules that are imported when called, libraries of
    many files.
    """
    function = inspect.unwrap(kernel.function)
    found = {kernel.module: None, str(getattr(function, "__module__", "")): None}
    left = [name for name in found if name and not _is_plain(name)]
    seen = set(left)
    if kernel.module not in seen or "torch.ops" in found:
        return False
    while left:
        module = sys.modules.get(left.pop())
        names = None if module is None else _imports_of(module)
        if names is None or len(seen) > _MOST_FILES:
            return False
        for name in names:
            if name == _TRITON or name.startswith(f"{_TRITON}."):
                return False
            if not _is_plain(name) and name not in seen:
                seen.add(name)
                left.append(name)
    return True


def imports_none(file: Path | None) -> bool:
    """Whether a file that is not imported yet imports nothing that may be Triton.

    Its own imports are looked at, and not what these import in turn.
    """
    if file is None:
        return False
    try:
        tree = _parsed(str(file), file.stat().st_mtime_ns)
        return all(map(_is_plain, _named(tree, "")))
    except (ImportError, OSError, SyntaxError, ValueError):
        return False


def _is_plain(name: str) -> bool:
    is_open = any(name == n or name.startswith(f"{n}.") for n in _OPEN)
    return name.partition(".")[0] in _PLAIN and not is_open


def _imports_of(module: ModuleType) -> tuple[str, ...] | None:
    """Return the modules that one imports anywhere; None if that cannot be told."""
    file = getattr(module, "__file__", None)
    if not isinstance(file, str):
        return None
    if not file.endswith(".py"):
        return ()  # compiled: none of Python's imports
    try:
        tree = _parsed(file, Path(file).stat().st_mtime_ns)
    except (OSError, SyntaxError, ValueError):
        return None
    package = getattr(module, "__package__", None) or ""
    return tuple(dict.fromkeys(_named(tree, package)))


@cache
def _parsed(file: str, changed: int) -> ast.Module:
    return ast.parse(Path(file).read_bytes())


def _named(tree: ast.Module, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            dots = "." * node.level
            base = dots + (node.module or "")
            name = resolve_name(base, package) if dots else base
            yield name
            # A name may be a module of its own.
            inner = (f"{name}.{alias.name}" for alias in node.names)
            yield from (n for n in inner if n in sys.modules)
