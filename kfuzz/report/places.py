"""Where a kernel stands: file and line, as editors open them, and its packages."""

import ast
import os
from contextlib import suppress
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Final

from kfuzz.core.errors import DecodeError
from kfuzz.core.finding import Target
from kfuzz.store.toml_file import read_toml

# What every kernel imports; their versions are known of the time of the finding.
_EVERYWHERE: Final = frozenset({"kfuzz", "torch", "triton", "numpy"})


def place_of(target: Target, root: Path) -> str:
    """Return "file.py:12", "file.py" where the line is unknown, "" without a file."""
    line = line_of(target, root)
    return target.file if line is None else f"{target.file}:{line}"


def line_of(target: Target, root: Path) -> int | None:
    """Return the line of a kernel, counted from 1; None if it is not found.

    That is its definition, or the call or assignment that gives it its name.
    """
    tree = _tree(target, root)
    if tree is None:
        return None
    # Gradients stand where the kernel does that `gradients=` binds them with.
    forward = target.name.removesuffix(".backward")
    return _line(tree, target.name) or _line(tree, forward)


def packages_of(target: Target, root: Path) -> dict[str, str]:
    """Return the versions of the packages that a kernel is from, by name.

    Those of its module, or of what its file imports, as they are installed now; and
    the project's own, as its pyproject.toml says.
    """
    names = {target.module.partition(".")[0]} if target.module else set()
    tree = _tree(target, root)
    for node in () if tree is None else ast.walk(tree):
        match node:
            case ast.Import():
                names |= {alias.name.partition(".")[0] for alias in node.names}
            case ast.ImportFrom(module=str(module), level=0):
                names.add(module.partition(".")[0])
    known = metadata.packages_distributions()
    found = {d for name in names - _EVERYWHERE for d in known.get(name, ())}
    installed = sorted(found - _EVERYWHERE)
    own = {} if tree is None else _project(root)
    return own | {name: metadata.version(name) for name in installed}


def _project(root: Path) -> dict[str, str]:
    """Return the name and version of a project, nothing where it says neither."""
    try:
        project = read_toml(root / "pyproject.toml")
        made = project["project"]
        return {str(made["name"]): str(made["version"])}
    except (DecodeError, LookupError, TypeError):
        return {}


def _tree(target: Target, root: Path) -> ast.Module | None:
    """Return the syntax tree of a kernel's file, None where it cannot be read."""
    path = root / target.file
    # Findings may be a stranger's: nothing outside, and no device, is read.
    inside = not Path(target.file).is_absolute() and ".." not in Path(target.file).parts
    if not target.file or not inside or not os.path.isfile(path):
        return None
    with suppress(OSError):
        return _parsed(path, path.stat().st_mtime_ns)
    return None


@lru_cache(maxsize=64)
def _parsed(path: Path, modified: int) -> ast.Module | None:
    """Return a file's syntax tree; `modified` has an edited file parsed again."""
    try:
        return ast.parse(path.read_bytes())
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _line(tree: ast.Module, name: str) -> int | None:
    named: list[int] = []
    bound: list[int] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            for keyword in node.keywords:
                value = keyword.value
                if keyword.arg == "name" and isinstance(value, ast.Constant):
                    named += [node.lineno] if value.value == name else []
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound += [node.lineno] if node.name == name else []
        elif isinstance(node, ast.Assign):
            targets = [t.id for t in node.targets if isinstance(t, ast.Name)]
            bound += [node.lineno] if name in targets else []
    lines = named or bound
    return lines[0] if lines else None
