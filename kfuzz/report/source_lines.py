"""The line of a file at which a kernel is bound, without importing the file."""

import ast
from pathlib import Path

from kfuzz.core.finding import Target


class SourceLines:
    """Looks up lines below a project's folder; each file is parsed once.

    Args:
        root: the project's folder.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._files: dict[str, ast.Module | None] = {}

    def line(self, target: Target) -> int | None:
        """Return the line of a kernel, counted from 1; None if it is not found.

        That is its definition, or the call or assignment that gives it its name.
        """
        if not target.file:
            return None
        if target.file not in self._files:
            self._files[target.file] = _parsed(self._root, target.file)
        tree = self._files[target.file]
        return None if tree is None else _line(tree, target.name)


def _parsed(root: Path, file: str) -> ast.Module | None:
    path = root / file
    # Events may be a stranger's: nothing outside, and no device, is read.
    if Path(file).is_absolute() or ".." in Path(file).parts or not path.is_file():
        return None
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
