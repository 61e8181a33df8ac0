"""Code lines, modules and dataclasses by package: `python -m tests.size [ROOT]`.

Code lines are those that are neither blank, comment nor docstring, by syntax tree. The
core is the product without its features and without the witnesses.
"""

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
FOLDERS: Final = ("kfuzz", "contracts", "strategies", "tests")
NOT_CORE: Final = ("kfuzz/features", "contracts/witnesses")
DOCUMENTED: Final = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def measured(source: str) -> Counter[str]:
    """Return the code lines and dataclasses of a module, and 1 module."""
    tree = ast.parse(source)
    documentation: set[int] = set()
    dataclasses = 0
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, False) is not None:
            first = node.body[0]
            documentation.update(range(first.lineno, (first.end_lineno or 0) + 1))
        if isinstance(node, ast.ClassDef):
            decorators = map(ast.unparse, node.decorator_list)
            dataclasses += any("dataclass" in text for text in decorators)
    lines = sum(
        bool(text := line.strip()) and text[0] != "#" and number not in documentation
        for number, line in enumerate(source.splitlines(), 1)
    )
    return Counter(lines=lines, modules=1, dataclasses=dataclasses)


def modules(root: Path) -> Iterator[Path]:
    """Yield the modules of a checkout, below its root; links lead to some again."""
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            below = path.relative_to(root)
            parents = [root / parent for parent in below.parents]
            if not any(p.is_symlink() for p in parents if p != root):
                yield below


def sizes(root: Path = ROOT) -> dict[str, Counter[str]]:
    """Return what each package measures, and product, core and tests as a whole."""
    made: dict[str, Counter[str]] = defaultdict(Counter)
    for path in modules(root):
        size = measured((root / path).read_text())
        package = "/".join(path.parts[:2] if len(path.parts) > 2 else path.parts[:1])
        is_test = path.parts[0] == "tests"
        made[package] += size
        made["ALL tests" if is_test else "ALL product"] += size
        if not is_test and package not in NOT_CORE:
            made["ALL core"] += size
    return dict(sorted(made.items()))


def main() -> None:
    """Print the table."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    print(f"{'package':32}{'lines':>8}{'modules':>9}{'dataclasses':>13}")
    for package, size in sizes(root).items():
        numbers = (size["lines"], size["modules"], size["dataclasses"])
        print("{:32}{:8}{:9}{:13}".format(package, *numbers))


if __name__ == "__main__":
    main()
