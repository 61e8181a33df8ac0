"""Whether a kernel can run a Triton program at all, by what its files import."""

import ast
import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from importlib.util import find_spec, resolve_name
from pathlib import Path
from types import ModuleType
from typing import Final

from kfuzz.contracts.binding import BoundKernel

_TRITON: Final = "triton"
# Packages that run none by themselves. On the CPU torch's compiler writes C++.
_PLAIN: Final = sys.stdlib_module_names | {"torch", "numpy", "scipy", "kfuzz"}
# Those of them that may stand for any other import, and kernels of kfuzz's own.
_OPEN: Final = ("importlib", "runpy", "kfuzz.contracts.witnesses")
# More files are a library's, whose imports are not followed one by one.
_MOST_FILES: Final = 64
# What a line of a library's file imports; thousands of files are not parsed.
_LINE: Final = re.compile(
    rb"^[ \t]*(?:from[ \t]+(\w+)|import[ \t]+(\w[\w., \t]*))", re.MULTILINE
)


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
        names = _imports_of(sys.modules.get(left.pop()))
        if names is None or len(seen) > _MOST_FILES:
            return False
        new = {name for name in names if not _is_plain(name)} - seen
        if any(_top(name) == _TRITON for name in new):
            return False
        seen |= new
        left += new
    return True


def launches_no_triton(kernel: BoundKernel) -> bool:
    """Whether a kernel is free of Triton, or so are the libraries that it imports.

    Such a library, TileLang or JAX, may interpret kernels, as slowly as Triton does.
    """
    file = getattr(sys.modules.get(kernel.module), "__file__", None)
    return is_triton_free(kernel) or (file is not None and imports_none(Path(file)))


def imports_none(file: Path | None) -> bool:
    """Whether a file, imported or not yet, imports nothing that may be Triton."""
    if file is None:
        return False
    try:
        tree = _parsed(str(file), file.stat().st_mtime_ns)
        left = {_top(name) for name in _named(tree, "") if not _is_plain(name)}
        # What is beside the file is not found before its import.
        return all(map(_files_of, left)) and _are_free(left)
    except (ImportError, OSError, SyntaxError, ValueError):
        return False


def _top(name: str) -> str:
    return name.partition(".")[0]


def _are_free(libraries: set[str]) -> bool:
    """Whether no file of libraries, and of those that they import, imports Triton."""
    seen, left = set(libraries), list(libraries)
    while left and _TRITON not in seen:
        new = {name for f in _files_of(left.pop()) for name in _packages_in(f)} - seen
        seen |= new
        left += [name for name in new if not _is_plain(name)]
    return _TRITON not in seen


def _files_of(library: str) -> Sequence[str]:
    """Return the files of a library's loaded modules; of all if none is loaded."""
    loaded = [m for name, m in list(sys.modules.items()) if _top(name) == library]
    found = [str(getattr(module, "__file__", None)) for module in loaded]
    with suppress(ImportError, ValueError):
        spec = None if loaded else find_spec(library)
        found += [str(spec.origin)] if spec else []
        # A folder whose name is none of a module is not imported from the library.
        for root in map(Path, spec.submodule_search_locations or () if spec else ()):
            for file in root.rglob("*.py"):
                if all(p.isidentifier() for p in file.relative_to(root).parts[:-1]):
                    found.append(str(file))
    return found


@cache
def _packages_in(file: str) -> frozenset[str]:
    """Return the packages that a file imports anywhere, none if it is compiled."""
    text = b""
    with suppress(OSError):
        text = Path(file).read_bytes() if file.endswith(".py") else b""
    lines = ([base] if base else more.split(b",") for base, more in _LINE.findall(text))
    parts = (part.split() for line in lines for part in line)
    return frozenset(_top(words[0].decode()) for words in parts if words)


def _is_plain(name: str) -> bool:
    return _top(name) in _PLAIN and not name.startswith(_OPEN)


def _imports_of(module: ModuleType | None) -> tuple[str, ...] | None:
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
            name = resolve_name("." * node.level + (node.module or ""), package)
            yield name
            # A name may be a module of its own.
            inner = (f"{name}.{alias.name}" for alias in node.names)
            yield from (n for n in inner if n in sys.modules)
