"""The two sides of a diff: what a word names, and how its process binds it.

Each side is bound by a file of its own, in children of their own: what it imports lies
first on its path, so that two releases may share the names of their modules.
"""

import ast
import copy
import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from kfuzz.contracts import oracle
from kfuzz.contracts.binding import REGISTRY, BoundKernel, fit
from kfuzz.core.errors import BindingError, UsageError
from kfuzz.features.examining import named_in, operator_named
from kfuzz.targets.load import Source, import_source, resolve
from kfuzz.targets.own_code import is_triton_free

_REVISION: Final = re.compile(r"git:([^:]+):(.+::.+)")
_RELEASE: Final = re.compile(r"([\w.-]+)==([\w.+!-]+)::(.+)")
# Imported by kfuzz before any side is: of these there is one version in a process.
_SHARED: Final = frozenset({"torch", "triton", "numpy"})
# One for both: what is asked for by name is then the same.
_NAME: Final = "compared"

NAMED: Final = "named"
"""Both are held to an operator that somebody has named."""
GUESSED: Final = "guessed"
"""The new one is held to an operator guessed by name where the old one keeps to it."""
REFERENCE: Final = "reference"
"""Likewise to the old one itself, in plain torch, and to what rounding explains: both
may round each step, and take others."""
OPEN: Final = "open"
"""No operator says what is right: what rounding of the inputs explains."""


def write_side(
    word: str, folder: Path, environments: Sequence[Path], operator: str
) -> Path:
    """Write the file that binds a side, and return it.

    Args:
        word: path.py::name, module:name, git:REV:path.py::name, or one of the first two
            behind PACKAGE==VERSION::.
        folder: for the file, and what is taken out of git.
        environments: where releases are looked for.
        operator: what it computes, "" where nobody says; `OPEN` for none at all.

    Raises:
        UsageError: if it names nothing.
    """
    paths: list[Path] = []
    target, tree = word, folder / "tree"
    tree.mkdir(parents=True)
    if made := _REVISION.fullmatch(word):
        packed = git(Path(), "rev-parse", "--show-toplevel").strip()
        packed = git(Path(packed), "archive", "-o", str(folder / "tar"), made[1])
        subprocess.run(["tar", "-xf", folder / "tar", "-C", tree], check=True)
        paths, target = [tree], f"{tree}/{made[2]}"
    elif made := _RELEASE.fullmatch(word):
        paths, target = [_release(made[1], made[2], environments)], made[3]
    (source, *more) = resolve(target)
    if more or not source.only:
        fix = "path.py::name or package.module:name"
        raise UsageError("it names no one function", where=word, fix=fix)
    file = folder / "side.py"
    given = str(source.file or ""), source.module, source.only[0], operator
    file.write_text(
        f"import sys\n\nsys.path[:0] = {[*map(str, paths)]!r}\n\n"
        "from kfuzz.features.diff.sides import bind\n\n"
        f"RULE = bind(__name__, *{given})\n"
    )
    return file


def git(where: Path, *words: str) -> str:
    """Return what git prints.

    Raises:
        UsageError: if it refuses.
    """
    done = subprocess.run(["git", *words], cwd=where, capture_output=True, text=True)
    if done.returncode:
        what = done.stderr.strip() or f"git exits with {done.returncode}"
        raise UsageError(what, where=f"git {' '.join(words)}")
    return done.stdout.strip()


def _release(package: str, version: str, environments: Sequence[Path]) -> Path:
    """Return the folder among some environments in which a release is installed."""
    where, name = f"{package}=={version}", _plain(package)
    if name in _SHARED:
        fix = "`kfuzz replay --environment` runs findings in other environments"
        raise UsageError("both sides share one version", where=where, fix=fix)
    from kfuzz.cli.replay import environments_in

    own = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    seen = {}
    for given in environments_in(environments):
        for folder in (given, given / own):
            for found in distributions(path=[str(folder)]):
                if _plain(found.name or "") == name:
                    seen[found.version] = folder.resolve()
    if version not in seen:
        fix = f"`pip install --no-deps --target DIR {where}`, and --environment DIR"
        there = ", ".join(sorted(seen)) or "none"
        raise UsageError(f"in no --environment; there: {there}", where=where, fix=fix)
    return seen[version]


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def bind(home: str, file: str, module: str, name: str, operator: str) -> str:
    """Bind a function in the name of a module, and return by which rule it is judged.

    Raises:
        BindingError: if there is no such function, or its arguments are not known.
    """
    imported = import_source(Source(Path(file) if file else None, module))
    own = {bound.name: bound for bound in REGISTRY.get(imported, [])}
    found: Any = own.get(name) or sys.modules[imported]
    for part in () if name in own else name.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise BindingError(f"there is no {name!r}", where=file or module)
    rule = NAMED
    if isinstance(found, BoundKernel) and not operator:
        bound = copy.copy(found)
        bound.name, bound.module = _NAME, home
    else:
        function = getattr(found, "function", found)
        fitted = partial(fit, claims={}, name=_NAME, module=home, top_level=True)
        if operator not in ("", OPEN):
            bound = fitted(operator_named(operator, "--operator"), function)
        else:
            guesses = _guesses(function, name, fitted)
            bound, rule = next(g for g in guesses if operator in ("", g[1]))
    REGISTRY[home] = [bound]
    return rule


def _guesses(
    function: Any, name: str, fitted: Callable[..., BoundKernel]
) -> Iterator[tuple[BoundKernel, str]]:
    for guess in named_in(name):
        with suppress(BindingError):
            yield fitted(guess, function), GUESSED
    outputs = _results_of(function)
    own = fitted(oracle.reference(function, eager=True, outputs=outputs), function)
    if is_triton_free(own):
        yield own, REFERENCE

    def sizes(*given: Tensor, **scalars: Any) -> list[tuple[int, ...]]:
        where = "cuda" if torch.cuda.is_available() else "cpu"
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            typed = [x.to(dtype) if x.is_floating_point() else x for x in given]
            copies = (x.clone().contiguous().to(where) for x in typed)
            with suppress(Exception):  # it may take another format
                made: Any = function(*copies, **scalars)
                return [tuple(y.shape) for y in ([made] if len(outputs) == 1 else made)]
        raise TypeError("it takes none of these formats")

    inputs = dict(own.operator.inputs)
    yield fitted(oracle.unbounded(inputs, outputs, sizes), function), OPEN


def _results_of(function: Any) -> tuple[str, ...]:
    """Return names of what a function returns: as many as its tuples have elements."""
    with suppress(OSError, TypeError, SyntaxError):
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
        given = [n.value for n in ast.walk(tree) if isinstance(n, ast.Return)]
        counts = {len(v.elts) if isinstance(v, ast.Tuple) else 1 for v in given}
        if len(counts) == 1 and (count := counts.pop()) > 1:
            return tuple(f"y{n}" for n in range(count))
    return ("y",)
