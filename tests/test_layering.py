"""The layers and folders of ARCHITECTURE.md: imports point down only."""

import ast
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.size import sizes

ROOT = Path(__file__).parents[1]

# From the top; what stands on one line may import one another.
LAYERS = [
    {"features"},
    {"app", "api", "pytest_plugin"},
    {"cli"},
    {"report"},
    {"engine"},
    {"evaluation"},
    {"targets"},
    {"execution"},
    {"contracts"},
    {"cuda"},
    {"strategies"},
    {"numerics"},
    {"store"},
    {"mark", "core"},
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
# The modules of the engine, likewise: a case goes down, its report comes back up.
ENGINE = [
    "repair", "search", "replay", "scripts", "confirm", "explain", "reduce", "workers",
    "config",
]  # fmt: skip
HEAVY = {
    "cuda", "numerics", "contracts", "execution", "targets", "evaluation", "features",
    "cli",
}  # fmt: skip
# A heavy package -> where it may be imported. Everything else is free.
ALLOWED = {
    "torch": HEAVY,
    # The engine slices and recasts pinned values, which are bytes in a case.
    "numpy": HEAVY | {"engine"},
    "hypothesis": {"strategies", "evaluation", "engine", "features"},
    "atheris": {"features"},
    # Triton kernels live among the witnesses, and kfuzz has some of its own; the
    # zygote imports triton before it forks.
    "triton": {"contracts", "execution", "numerics", "targets", "cli", "features"},
    "z3": {"features"},
    "jinja2": {"engine", "report"},
    "fsspec": {"store"},
    "typer": {"app", "cli", "features"},
    "rich": {"cli", "report", "features"},
    "safetensors": {"store"},
}
# What the product may measure; see CONTRIBUTING.md. These only fall.
MOST = {"lines": 75_062, "modules": 347, "dataclasses": 316}
# So far a number may lie above the tree before it has to be lowered.
ROOM = {"lines": 100, "modules": 3, "dataclasses": 3}
FOLDERS = {"kfuzz", "strategies", "contracts", "corpus", "tests"}


def layer_of(module: str) -> str:
    """Return the layer of a dotted module; "" for the facade and __main__."""
    parts = module.split(".")
    name = parts[1] if parts[0] == "kfuzz" and len(parts) > 1 else ""
    return "" if name.startswith("__") else name


def modules() -> dict[str, Path]:
    """Return every module of the package by its dotted name."""
    found = {}
    for path in sorted(ROOT.joinpath("kfuzz").rglob("*.py")):
        found[path] = path.relative_to(ROOT)
    for link in ("strategies", "contracts"):
        for path in sorted(ROOT.joinpath(link).rglob("*.py")):
            found[path] = Path("kfuzz") / path.relative_to(ROOT)
    return {
        ".".join(p.with_suffix("").parts).removesuffix(".__init__"): path
        for path, p in found.items()
    }


def imports(source: str, module: str, *, package: bool) -> Iterator[tuple[int, str]]:
    """Yield (line, dotted name) of each import, wherever in the file it stands.

    Blocks under `if TYPE_CHECKING:` are for readers and type checkers only.
    """
    pending: list[ast.AST] = [ast.parse(source)]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            pending += node.orelse
            continue
        pending += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = module.split(".")
            up = node.level - package
            base = ".".join(parts[: len(parts) - up]) if node.level else ""
            origin = ".".join(filter(None, (base, node.module)))
            # `from kfuzz import engine` imports kfuzz.engine.
            for alias in node.names:
                yield node.lineno, f"{origin}.{alias.name}"


def faults(module: str, source: str, *, package: bool = False) -> list[str]:
    """Return what a module imports and may not."""
    own, found = layer_of(module), []
    if not own:
        return []  # the facade resolves its names on first use
    for line, name in imports(source, module, package=package):
        top = name.split(".")[0]
        if top in ("strategies", "contracts", "tests"):
            found.append(f"{module}:{line}: import {name} as kfuzz.{name}")
        elif top == "kfuzz":
            other = layer_of(name)
            if name == "kfuzz.__version__":
                continue
            if other not in RANK:
                found.append(f"{module}:{line}: imports the facade ({name})")
            elif RANK[other] < RANK[own]:
                found.append(f"{module}:{line}: {own} may not import {other}")
        elif own not in ALLOWED.get(top, {own}):
            found.append(f"{module}:{line}: {own} may not import {top}")
    return found


def test_every_module_belongs_to_a_layer() -> None:
    strays = {m for m in modules() if layer_of(m) and layer_of(m) not in RANK}
    assert not strays, f"add them to LAYERS and ARCHITECTURE.md: {sorted(strays)}"


@pytest.mark.slow
def test_imports_point_down() -> None:
    found = [
        fault
        for module, path in modules().items()
        for fault in faults(
            module, path.read_text(), package=path.name == "__init__.py"
        )
    ]
    assert not found, "\n".join(found)


def test_no_feature_imports_another() -> None:
    found = [
        f"{module}:{line}: imports {name}"
        for module, path in modules().items()
        if module.startswith("kfuzz.features.")
        for line, name in imports(path.read_text(), module, package=False)
        if name.startswith("kfuzz.features.")
        and name.split(".")[2] not in (module.split(".")[2], "examining")
    ]
    assert not found, "\n".join(found)


def test_imports_point_down_within_the_engine() -> None:
    found = [
        f"{module}:{line}: imports {name}"
        for module, path in modules().items()
        if module.startswith("kfuzz.engine.")
        for line, name in imports(path.read_text(), module, package=False)
        if name.startswith("kfuzz.engine.")
        and ENGINE.index(name.split(".")[2]) < ENGINE.index(module.split(".")[2])
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("kfuzz.core.x", "import torch"),
        ("kfuzz.core.x", "def f():\n    import torch.nn"),
        ("kfuzz.core.x", "from kfuzz.store.corpus import Corpus"),
        ("kfuzz.core.x", "from .. import engine"),
        ("kfuzz.core.x", "from ..store import Corpus"),
        ("kfuzz.numerics.x", "from kfuzz import strategies"),
        ("kfuzz.numerics.x", "from kfuzz import kernel"),
        ("kfuzz.numerics.x", "import contracts.classes"),
        ("kfuzz.numerics.x", "from hypothesis import given"),
        ("kfuzz.engine.x", "if x:\n    import kfuzz.app"),
        ("kfuzz.store.corpus", "import numpy as np"),
    ],
)
def test_a_forbidden_import_is_seen(module: str, source: str) -> None:
    assert len(faults(module, source)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("kfuzz.core.x", "import json\nfrom kfuzz import __version__"),
        ("kfuzz.core.x", "if TYPE_CHECKING:\n    import torch"),
        ("kfuzz.numerics.x", "import torch\nfrom kfuzz.core.recipe import Case"),
        ("kfuzz.engine.x", "from kfuzz import store\nfrom . import reduce"),
    ],
)
def test_an_allowed_import_passes(module: str, source: str) -> None:
    assert faults(module, source) == []


def test_the_tree_only_shrinks() -> None:
    pytest.importorskip("kfuzz.features")  # without them it is another tree
    found = sizes()["ALL product"]
    extended = {what: found[what] for what, most in MOST.items() if found[what] > most}
    assert not extended, f"take away as much as you add: at most {MOST}"
    low = {w: found[w] for w, most in MOST.items() if found[w] < most - ROOM[w]}
    assert not low, f"lower MOST to what is left: {low}"


def test_top_level_folders_are_the_five() -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    if tracked.returncode:
        pytest.skip("not a git checkout")
    tops = {line.split("/")[0] for line in tracked.stdout.splitlines() if "/" in line}
    assert {name for name in tops if not name.startswith(".")} <= FOLDERS


def test_the_links_are_relative() -> None:
    for name in ("strategies", "contracts"):
        assert os.readlink(ROOT / "kfuzz" / name) == f"../{name}"
