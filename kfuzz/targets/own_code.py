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
from typing import Final

from kfuzz.contracts.binding import BoundKernel

_TRITON: Final = "triton"
# Packages that run none by themselves. On the CPU torch's compiler writes C++.
_PLAIN: Final = sys.stdlib_module_names | {"torch", "numpy", "scipy", "kfuzz"}
# Those of them that may stand for any other import, and kernels of kfuzz's own.
_OPEN: Final = ("importlib", "pkgutil", "runpy", "kfuzz.contracts.witnesses")
# What a file, or a module that is no file, raises where its imports cannot be told.
_UNREADABLE: Final = (
    AttributeError, ImportError, KeyError, OSError, SyntaxError, ValueError
)  # fmt: skip
# More files are a library's, whose imports are not followed one by one.
_MOST_FILES: Final = 64
# What a line of a library's file imports; thousands of files are not parsed.
_LINE: Final = re.compile(
    rb"(?m)(?:^|[;:])[ \t]*(?:from[ \t]+(\w+)\S*[\s\\]+import\b|"
    rb"import[ \t]+(\w(?:[\w., \t]|\\\n)*))|(?:import_module|__import__)\(\s*[\"'](\w+)"
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
    try:
        while left:
            held = vars(sys.modules[left.pop()])
            new = _imports_of(held["__file__"], held["__package__"] or "") - seen
            seen |= new
            left += new
            if len(seen) > _MOST_FILES or _TRITON in map(_top, new):
                return False
    except _UNREADABLE:
        return False
    return True


def launches_no_triton(kernel: BoundKernel) -> bool:
    """Whether a kernel is free of Triton, or so are the libraries that it imports.

    Such a library, TileLang or JAX, may interpret kernels, as slowly as Triton does.
    """
    file = getattr(sys.modules.get(kernel.module), "__file__", None)
    return is_triton_free(kernel) or (file is not None and imports_none(Path(file)))


def imports_none(file: Path | None) -> bool:
    """Whether a file, imported or not yet, imports nothing that may be Triton.

    Files beside it are read as it is: what they import from is not known.
    """
    own, libraries = [file] if file else [], set[str]()
    try:
        for each in own:  # which grows
            new = set(map(_top, _imports_of(str(each), ""))) - libraries
            if _TRITON in new:  # before its files, and others', are looked for
                return False
            libraries |= new
            for library in new:
                found = _files_of(library, whole=True)
                if not found:  # beside the file, which is not imported yet
                    return False
                beside = each.with_name(f"{library}.py")
                own += [beside] if str(beside) in found else []
        return bool(own) and _are_free(libraries)
    except _UNREADABLE:
        return False


def _top(name: str) -> str:
    return name.partition(".")[0]


def _are_free(libraries: set[str]) -> bool:
    """Whether no file of libraries, and of those that they import, imports Triton."""
    seen, left = set(libraries), list(libraries)
    while left and _TRITON not in seen:
        files = _files_of(name := left.pop(), whole=name in libraries)
        new = {name for f in files for name in _packages_in(f)} - seen
        seen |= new
        left += [name for name in new if not _is_plain(name)]
    return _TRITON not in seen


def _files_of(library: str, *, whole: bool) -> Sequence[str]:
    """Return the files of a library's loaded modules; of all if none is loaded.

    On request of all in any case: some may be imported by a call.
    """
    loaded = [m for name, m in list(sys.modules.items()) if _top(name) == library]
    found = [str(getattr(module, "__file__", None)) for module in loaded]
    with suppress(ImportError, ValueError):
        spec = find_spec(library) if whole or not loaded else None
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
    text = Path(file).read_bytes() if file.endswith(".py") else b""
    parts = b",".join(b",".join(each) for each in _LINE.findall(text)).split(b",")
    words = (part.replace(b"\\", b"").split() for part in parts)
    return frozenset(_top(each[0].decode()) for each in words if each)


def _is_plain(name: str) -> bool:
    return _top(name) in _PLAIN and not name.startswith(_OPEN)


def _imports_of(file: str, package: str) -> set[str]:
    """Return the modules that a file imports anywhere, none if it is compiled.

    Raises:
        ImportError: if these cannot be told.
    """
    if file.endswith(".so"):
        return set()
    tree = _parsed(file, Path(file).stat().st_mtime_ns)
    names = {name for name in _named(tree, package) if not _is_plain(name)}
    if not set(_OPEN).isdisjoint(map(_top, names)):
        raise ImportError(f"{file} may import anything")
    return names


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
        elif isinstance(node, ast.Name) and node.id == "__import__":
            yield "importlib"
