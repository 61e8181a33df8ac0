"""Finding kernels: from a target on the command line to bound kernels.

TARGET is path.py, path.py::name, a folder, package.module or
package.module:name; never a shell string.
"""

import difflib
import hashlib
import importlib
import importlib.util
import inspect
import linecache
import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib.machinery import PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from kfuzz.contracts.binding import MONITORED, REGISTRY, BoundKernel
from kfuzz.contracts.gradients.operators import Backward
from kfuzz.contracts.operator import CustomOp
from kfuzz.core.errors import (
    BindingError,
    DecodeError,
    KfuzzError,
    NothingToRunError,
    UsageError,
    class_name,
    message_of,
    suggestion,
)
from kfuzz.core.finding import Target, relative, short_hash
from kfuzz.execution.calls.compiling import import_compiler
from kfuzz.execution.processes.forking import uncollected
from kfuzz.store.files import MOST_SOURCE, read_plain, read_source
from kfuzz.targets.cuda_source import CudaSource
from kfuzz.targets.own_code import imports_none

# Where kernels live, known from files as they lie there: nothing is imported.
#
# Entries of a corpus name homes, and strangers write entries too; what is imported is
# what targets name.

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
    if module.partition(".")[0] == "kfuzz":
        return True
    path = file_of_module(module, Path.cwd())  # as an import looks for it
    if path is None or not path.is_relative_to(root.resolve()):
        return False
    return _INSTALLED.isdisjoint(path.parts)


def mentions(path: Path, name: str) -> bool:
    """Whether a kernel of a name, or one whose gradient it is, may be bound in a file.

    Its text is looked at: nothing is imported.
    """
    try:
        content = read_plain(path, MOST_SOURCE)
    except DecodeError:
        return False
    word = name.partition(GRADIENTS)[0].encode()
    return re.search(rb"\b%s\b" % re.escape(word), content) is not None


# Which of a user's files is being imported, and who is notified of it.
#
# An import runs a stranger's code: it may end its process, or not end at all. Who
# watches that process is notified when one begins and when it is over.

SECONDS: Final = 300.0
"""How long an import may take: as long as a child may take to open."""
VARIABLE: Final = "KFUZZ_IMPORT_SECONDS"
"""Environment variable: other seconds, where an import builds for longer."""
LEAST_SECONDS: Final = 20.0
"""How long an import may take however little time a run has: large libraries take as
long to import, and so does a context of a GPU."""

# The innermost last.
_under_way: Final[list[str]] = []
# Who is notified, and in which process: a fork's imports are another's to watch.
_told: tuple[Callable[[str], None], int] | None = None
# Of the run.
_seconds = math.inf
# On imports so far.
_spent = 0.0


def limit_to(run_seconds: float | None) -> None:
    """Have the imports of this process end where a run of so many seconds would.

    Args:
        run_seconds: what `--max-time` says; None for no limit.
    """
    global _seconds
    _seconds = math.inf if run_seconds is None else max(run_seconds, LEAST_SECONDS)


def limit() -> float:
    """Return how many seconds an import may take."""
    return min(_own_limit(), _seconds)


def _own_limit() -> float:
    given = os.environ.get(VARIABLE, "")
    return float(given) if given.isdigit() and int(given) else SECONDS


def importing() -> str | None:
    """Return the target that kfuzz is importing at this moment, if any."""
    return _under_way[-1] if _under_way else None


def tell(listener: Callable[[str], None]) -> None:
    """Have each import of this process reported: the target, then "" at its end."""
    global _told
    _told = (listener, os.getpid())


@contextmanager
def imported(target: str) -> Iterator[None]:
    """Say that a target is imported meanwhile."""
    global _spent
    began = time.monotonic()
    _under_way.append(target)
    _tell()
    try:
        yield
    finally:
        _under_way.pop()
        _tell()
        if not _under_way:  # one target may have another one imported
            _spent += time.monotonic() - began


def imported_seconds() -> float:
    """Return how long this process has spent importing targets."""
    return _spent


def _tell() -> None:
    if _told is not None and _told[1] == os.getpid():
        _told[0](importing() or "")


def ended(target: str, how: str) -> BindingError:
    """Return what is said where an import ended its process, by a signal or a code."""
    return BindingError(
        f"importing it ends its process: {how}",
        where=target,
        fix="kfuzz imports a target as Python does; make it import cleanly",
    )


def overdue(target: str, seconds: float) -> BindingError:
    """Return what is said of an import that did not end within its limit."""
    return BindingError(
        f"importing it does not end within {seconds:.0f} s",
        where=target,
        fix=f"see what waits there; where it builds for longer, {way_out(seconds)}",
    )


def way_out(seconds: float) -> str:
    """Return what gives an import more time than the limit that it had."""
    if seconds < _own_limit():
        return "give more with --max-time"
    return f"set {VARIABLE}"


# Folders that never hold targets.
_SKIPPED: Final = frozenset({"__pycache__", "node_modules", "build", "dist", "venv"})
_MODULE_PREFIX: Final = "kfuzz_target_"


@dataclass(frozen=True)
class Source:
    """One importable unit: a file, or a module by its dotted name.

    Attributes:
        file: absolute path; None where the target is a dotted module.
        module: dotted name; "" where the target is a file.
        only: kernel names selected; empty means all.
    """

    file: Path | None = None
    module: str = ""
    only: tuple[str, ...] = ()


def request_for(source: Source, root: Path, name: str = "") -> dict[str, str]:
    """Return how another process is asked to load a source, or one kernel of it."""
    return {
        "cwd": os.getcwd(), "root": str(root), "file": str(source.file or ""),
        "module": source.module, "name": name,
    }  # fmt: skip


def requested(request: Mapping[str, Any]) -> Source:
    """Return what `request_for` names, after entering its working folder."""
    os.chdir(request["cwd"])
    file = Path(request["file"]) if request["file"] else None
    return Source(file, request["module"], tuple(filter(None, [request["name"]])))


@dataclass(frozen=True)
class LoadedKernel:
    """A bound kernel and the place it came from.

    Attributes:
        kernel: the bound kernel.
        target: its place in the project, for findings: without a file where that lies
            outside, whose path means nothing elsewhere.
        source: what to load to get it again.
        alias: the name that its findings bear where another kernel has its own; "" for
            its own.
    """

    kernel: BoundKernel
    target: Target
    source: Source
    alias: str = ""

    @property
    def name(self) -> str:
        """The name that its findings bear."""
        return self.alias or self.kernel.name

    @property
    def full_name(self) -> str:
        """Its name behind that of its file or module: "kernels.two.softmax".

        A file outside the project is distinguished by a hash of its path.
        """
        home = self.target.module or self.target.file.removesuffix(".py")
        if (file := self._file_outside) is not None:
            home = f"{file.stem}-{short_hash(str(file))}"
        return ".".join([*Path(home).parts, self.kernel.name])

    @property
    def node_id(self) -> str:
        """The one name of the kernel in a run; outside the project by its file's own.

        The folders there are no part of any name.
        """
        if (file := self._file_outside) is None:
            return self.target.node_id
        if self.alias:  # the name of its file may be another's, too
            return self.outside
        return f"{file.name}::{self.target.name}"

    @property
    def outside(self) -> str:
        """What `--target` is given for a kernel outside the project, else "".

        Of such a kernel no finding says where it lives.
        """
        if (file := self._file_outside) is None:
            return ""
        near = os.path.relpath(file)
        return f"{min(near, str(file), key=len)}::{self.target.name}"

    @property
    def _file_outside(self) -> Path | None:
        homed = self.target.file or self.target.module
        return None if homed else self.source.file


def project_root(start: Path | None = None) -> Path:
    """Return the nearest folder upwards with pyproject.toml or .git, or `start`."""
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if os.path.isfile(folder / "pyproject.toml") or os.path.exists(folder / ".git"):
            return folder
    return here


def resolve(target: str, *, base: Path | None = None) -> list[Source]:
    """Return the sources that a target names, sorted by path.

    Raises:
        UsageError: if the path or module does not exist.
    """
    text, colons, name = target.partition("::")
    if not text or (colons and not name):
        raise UsageError(
            "the target lacks a part" if target else "the target is empty",
            where=target,
            fix="give path.py, path.py::kernel, a folder, package.module or "
            "package.module:kernel",
        )
    only = (name,) if name else ()
    path = (base or Path.cwd()) / text
    if os.path.isfile(path):
        return [Source(file=path.resolve(), only=only)]
    if os.path.isdir(path):
        if only:
            raise UsageError(
                "a folder has no kernels of its own", where=target,
                fix="name the file: folder/file.py::kernel",
            )  # fmt: skip
        return [Source(file=f) for f in _python_files(path.resolve())]
    if text.endswith(".py") or "/" in text or "::" in target:
        parent = path.parent
        near = [p.name for p in parent.glob("*.py")] if os.path.isdir(parent) else []
        fix = suggestion(path.name, near) if near else "check the path"
        raise UsageError("no such file or folder", where=text, fix=fix)
    return [_module_source(target)]


def _module_source(target: str) -> Source:
    """Return the source of package.module or package.module:kernel.

    Raises:
        UsageError: if it is neither.
    """
    module, _, name = target.partition(":")
    if not all(part.isidentifier() for part in module.split(".")):
        raise UsageError(
            "neither a path nor a module",
            where=target,
            fix="give path.py, path.py::kernel, a folder, package.module or "
            "package.module:kernel",
        )
    return Source(module=module, only=(name,) if name else ())


def resolve_one(target: str, name: str, *, base: Path | None = None) -> Source:
    """Return the one kernel that a target names; `name` where it names a file alone.

    Raises:
        UsageError: if there is no such path or module, or it is several files.
    """
    sources = resolve(target, base=base)
    if len(sources) != 1:
        held = f"{len(sources)} files that mention kfuzz" if sources else "no kernel"
        what = f"the folder holds {held}: it names no one kernel"
        raise UsageError(what, where=target, fix=f"name the file: path.py::{name}")
    return replace(sources[0], only=sources[0].only or (name,))


def load(source: Source, *, root: Path) -> list[LoadedKernel]:
    """Import a source and return its bound kernels, in order of binding.

    Monitored functions are among them only where they are named.

    Raises:
        BindingError: if the import raises, or a kernel does not fit.
        NothingToRunError: if a name was asked for that the source lacks.
    """
    name = import_source(source)
    bound = REGISTRY.get(name, [])
    where = str(source.file or source.module)
    if source.only:
        held = {b.name: b for b in bound}
        for monitored in MONITORED.get(name, []):
            held.setdefault(monitored.name, monitored)
        for wanted in source.only:
            if wanted not in held:
                fix = suggestion(wanted, list(held)) if held else "it binds none"
                if os.path.isabs(where):
                    where = relative(where, root)
                raise NothingToRunError(f"no kernel {wanted!r}", where=where, fix=fix)
        bound = [b for b in held.values() if b.name in source.only]
    given = (b.function for b in bound)
    forwards = (f.forward if isinstance(f, Backward) else f for f in given)
    if any(isinstance(f, CustomOp) for f in forwards):
        import_compiler()
    return [LoadedKernel(b, target_of(source, b, root), source) for b in bound]


def meets_gpu(source: Source) -> bool:
    """Whether a file meets the interpreter's GPU as it is imported."""
    from kfuzz.execution.interpreter.watch import interpreting  # with it comes torch

    return interpreting() and not imports_none(source.file)


def import_source(source: Source) -> str:
    """Import a source; return the name under which its kernels are registered.

    Whatever may use Triton finds a GPU meanwhile where Triton is interpreted.
    """
    if not meets_gpu(source):
        return _imported_here(source)
    from kfuzz.execution.device import simulated as declared

    with declared.gpu():
        return _imported_here(source)


PATCHED: Final = "KFUZZ_PATCHED"
"""Environment variable: a source file, and below it the file whose text Python is to
take in its place. What a change does is tried so, and no file of a user's is touched.
"""


@cache
def _patch(given: str) -> None:
    """Have Python take a file's text from elsewhere, as the variable says."""
    file, other = given.split("\n")
    text = read_source(Path(other))
    usual = SourceFileLoader.get_code

    def code_of(self: SourceFileLoader, name: str) -> Any:
        path = self.get_filename(name)
        if os.path.realpath(path) != file:
            return usual(self, name)
        # What shows lines reads them here, too.
        lines = text.splitlines(keepends=True)
        linecache.cache[path] = (len(text), None, lines, path)
        return self.source_to_code(text, path)

    SourceFileLoader.get_code = code_of  # type: ignore[assignment, method-assign]


def _imported_here(source: Source) -> str:
    if given := os.environ.get(PATCHED):
        _patch(given)
    if source.file is not None:
        return _import_file(source.file).__name__
    return _import_name(source.module).__name__


def _gradients(source: Source, root: Path) -> list[LoadedKernel]:
    """Return the gradients bound with the kernels that a source names, loaded."""
    module = source.module if source.file is None else import_source(source)
    wanted = tuple(f"{name}{GRADIENTS}" for name in source.only)
    names = (bound.name for bound in REGISTRY.get(module, []))
    found = tuple(name for name in names if name.startswith(wanted))
    return load(replace(source, only=found), root=root) if found else []


def load_all(
    targets: tuple[str, ...],
    *,
    root: Path,
    failed: list[BindingError] | None = None,
) -> list[LoadedKernel]:
    """Load every kernel of several targets, each once, and its gradients with it.

    Args:
        targets: as on the command line.
        root: the project.
        failed: takes what is wrong with one file, while the others are loaded.

    Raises:
        UsageError, BindingError: as `resolve` and `load`.
        NothingToRunError: if there is no kernel at all.
    """
    found: dict[tuple[str, str], LoadedKernel] = {}
    for target in targets:
        for source in resolve(target):
            try:
                each = [*load(source, root=root), *_gradients(source, root)]
            except BindingError as error:
                if failed is None:
                    raise
                failed.append(error)
                continue
            for loaded in each:
                place = str(source.file or source.module)
                found.setdefault((place, loaded.kernel.name), loaded)
    if not found and failed:
        raise failed.pop(0)
    if not found:
        raise NothingToRunError(
            "no kernel is bound",
            where=", ".join(targets),
            fix="bind one: @kfuzz.kernel(ops.softmax) above the function, with "
            "`from kfuzz.contracts import operators as ops`",
        )
    return list(found.values())


def target_of(source: Source, bound: BoundKernel, root: Path) -> Target:
    """Return how findings call a kernel's home.

    Nothing outside the project is one, nor is a file whose name cannot be printed.
    """
    if source.file is None:
        return Target(file="", name=bound.name, module=source.module)
    if source.file.is_relative_to(root):
        # Other locales spell the bytes of a name otherwise: findings travel as UTF-8.
        name = os.fsencode(source.file.relative_to(root).as_posix())
        file = name.decode("utf-8", "surrogateescape")
        if file.isprintable():
            return Target(file, bound.name)
    return Target("", bound.name)


def _python_files(folder: Path) -> list[Path]:
    """Return the files below a folder that mention kfuzz, sorted."""
    out = []
    for path in sorted(folder.rglob("*.py")):
        above = path.relative_to(folder).parts[:-1]
        left_out = any(part in _SKIPPED or part.startswith(".") for part in above)
        if left_out or not path.is_file():  # a folder, a pipe
            continue
        try:
            if "kfuzz" in path.read_text(encoding="utf-8", errors="replace"):
                out.append(path)
        except OSError as error:
            raise UsageError(f"cannot be read: {error}", where=str(path)) from None
    return out


def _import_file(path: Path) -> ModuleType:
    name = f"{_MODULE_PREFIX}{path.stem}_{short_hash(str(path))}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError("not a Python file", where=str(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    # Before the rest, like pytest, so that a target can import its neighbours; behind
    # where the file bears the name of the library whose kernels it binds.
    folder = str(path.parent)
    others = [place for place in sys.path if place != folder]
    library = PathFinder.find_spec(path.stem, others)
    if library is not None and library.origin is not None:
        sys.path[:] = [*others, folder]
    elif folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        with _importing(str(path)):
            spec.loader.exec_module(module)
    except BaseException as error:  # Ctrl-C leaves half of a module too
        _forget(name)
        # Of a call that the file makes.
        if isinstance(error, KfuzzError) and str(path) not in error.where:
            made = f"{path}{_line_in(error, str(path))}"
            error.where = f"{made}: {error.where}" if error.where else made
        raise
    return module


def _import_name(module: str) -> ModuleType:
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    with _importing(module):
        try:
            return importlib.import_module(module)
        except ModuleNotFoundError as error:
            if not (error.name and module.startswith(error.name)):
                raise
            raise UsageError(
                f"no module or file {error.name!r}",
                where=module,
                fix="run from the folder that holds it, or give a path",
            ) from None


@contextmanager
def _importing(where: str) -> Iterator[None]:
    """Import in the block; report what it raises as that of the import."""
    try:
        with imported(where), uncollected():
            yield
    except KfuzzError:
        raise
    except (Exception, SystemExit) as error:
        raise _import_failure(error, where) from error


def _forget(name: str) -> None:
    sys.modules.pop(name, None)
    REGISTRY.pop(name, None)
    MONITORED.pop(name, None)


def _import_failure(error: BaseException, where: str) -> BindingError:
    near: list[str] = []
    if isinstance(error, AttributeError) and isinstance(error.name, str):
        near = difflib.get_close_matches(error.name, dir(error.obj), n=1)
    way_out = "kfuzz imports a target as Python does; make it import cleanly"
    return BindingError(
        f"importing it raises {class_name(error)}: {message_of(error)}",
        where=f"{where}{_line_in(error, where)}",
        fix=f"did you mean {near[0]!r}?" if near else way_out,
    )


def _line_in(error: BaseException, file: str) -> str:
    """Return ":12" for the innermost line of a file that an exception came through."""
    line, trace = "", error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = f":{trace.tb_lineno}"
        trace = trace.tb_next
    return line


# Which code a kernel is: what a statement about it holds for.


def identity(function: Callable[..., Any]) -> str:
    """Return what identifies the code behind a callable.

    "sha256:" and the hash of the file that defines it: the whole file, for a wrapper
    says little without the kernels beside it; with it the sources in CUDA C++ that the
    file's globals hold. Of what has no source, its qualified name; the version of its
    library stands in the fingerprint.
    """
    inner = inspect.unwrap(function)
    try:
        path = inspect.getsourcefile(inner)
    except TypeError:
        path = None
    if path is not None:
        try:
            digest = hashlib.sha256(Path(path).read_bytes())
            for held in getattr(inner, "__globals__", {}).values():
                if isinstance(held, CudaSource):
                    digest.update(held.text.encode())
            return f"sha256:{digest.hexdigest()}"
        except OSError:
            pass  # a notebook's cell, a shell
    module = getattr(inner, "__module__", None) or type(inner).__module__
    name = getattr(inner, "__qualname__", None) or type(inner).__qualname__
    return f"{module}.{name}, compiled"
