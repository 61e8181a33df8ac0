"""Where kernels live, told from files as they lie there: nothing is imported.

Entries of a corpus name homes, and strangers write entries too; what is imported is
what targets name.
"""

import ast
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kfuzz.core.errors import DecodeError
from kfuzz.core.finding import ATEN, Target
from kfuzz.store.plain_file import MOST_SOURCE, read_plain

# What binds kernels, by its last name: kfuzz.kernel(…), kfuzz.monitor(…).
_BINDERS: Final = frozenset({"kernel", "monitor"})
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
GRADIENTS: Final = ".backward"
"""What follows a kernel's name in those of its gradients, which are bound with it; some
have more behind it: ".backward_none"."""


def home_of(target: Target, root: Path) -> Path | None:
    """Return the file in which a target lies; None where there is none now."""
    if target.file:
        path = root / target.file
        return path.resolve() if os.path.isfile(path) else None
    return file_of_module(target.module, root) if target.module else None


def file_of_module(module: str, root: Path) -> Path | None:
    """Return a module's file, where it or its path is known; packages stay unloaded."""
    module = module.removeprefix(ATEN)
    known = getattr(sys.modules.get(module), "__file__", None)
    if known:
        return Path(known).resolve()
    below = Path(*module.split("."))
    for folder in (Path.cwd(), root, *map(Path, sys.path)):
        for path in (folder / below.with_suffix(".py"), folder / below / "__init__.py"):
            if os.path.isfile(path):
                return path.resolve()
    return None


def is_of_project(module: str, root: Path) -> bool:
    """Whether importing a module by its name runs code of the project, or kfuzz's.

    What is installed, in an environment within the project too, is others' code.
    """
    name = module.removeprefix(ATEN)
    if name.partition(".")[0] == "kfuzz":
        return True
    path = file_of_module(name, Path.cwd())  # as an import looks for it
    if path is None or not path.is_relative_to(root.resolve()):
        return False
    return _INSTALLED.isdisjoint(path.parts)


def binds(path: Path, name: str) -> bool:
    """Whether the text of a file binds a kernel of a name.

    Names that are made as the file runs are not seen; what cannot be parsed binds
    nothing.
    """
    name = name.partition(GRADIENTS)[0]
    try:
        content = read_plain(path, MOST_SOURCE)
        return name.encode() in content and name in _bound(ast.parse(content))
    except (DecodeError, ValueError, SyntaxError, RecursionError, MemoryError):
        return False


def _bound(tree: ast.Module) -> Iterator[str]:
    """Yield the names of the kernels that a file binds."""
    binders = set(_BINDERS)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            binders |= {a.asname for a in node.names if a.asname and a.name in _BINDERS}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            for decorator in node.decorator_list:
                if _called(decorator) in binders:
                    yield _name_given(decorator, node.name)
        elif isinstance(node, ast.Call) and _called(node) in binders:
            yield _name_given(node, _own_name(node))


def _called(node: ast.expr) -> str:
    """Return the last name of what is called: "kernel" of `kfuzz.kernel(…)(…)`."""
    while isinstance(node, ast.Call):
        node = node.func
    return _last_name(node)


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _own_name(node: ast.Call) -> str:
    """Return the name of what is bound: "f" of `kernel(…)(f)`, `kernel(…)(launch(f))`.

    "" of the inner call, `kernel(…)`, alone.
    """
    inner: ast.expr = node if isinstance(node.func, ast.Call) else ast.Constant("")
    while isinstance(inner, ast.Call):
        inner = inner.args[0] if inner.args else ast.Constant("")
    return _last_name(inner)


def _name_given(node: ast.expr, otherwise: str) -> str:
    """Return what `name=` gives where a kernel is bound, "" if it is no constant."""
    while isinstance(node, ast.Call):
        for keyword in node.keywords:
            if keyword.arg == "name":
                value = keyword.value
                return str(value.value) if isinstance(value, ast.Constant) else ""
        node = node.func
    return otherwise
