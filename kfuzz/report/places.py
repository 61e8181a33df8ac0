"""Where a kernel stands in its source: file and line, as editors open them."""

import ast
from functools import lru_cache
from pathlib import Path

from kfuzz.core.finding import Target


def place_of(target: Target, root: Path) -> str:
    """Return "file.py:12", "file.py" where the line is unknown, "" without a file."""
    line = line_of(target, root)
    return target.file if line is None else f"{target.file}:{line}"


def line_of(target: Target, root: Path) -> int | None:
    """Return the line of a kernel, counted from 1; None if it is not found.

    That is its definition, or the call or assignment that gives it its name.
    """
    path = root / target.file
    # Findings may be a stranger's: nothing outside, and no device, is read.
    inside = not Path(target.file).is_absolute() and ".." not in Path(target.file).parts
    if not target.file or not inside or not path.is_file():
        return None
    tree = _parsed(path, path.stat().st_mtime_ns)
    if tree is None:
        return None
    # Gradients stand where the kernel does that `gradients=` binds them with.
    forward = target.name.removesuffix(".backward")
    return _line(tree, target.name) or _line(tree, forward)


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
