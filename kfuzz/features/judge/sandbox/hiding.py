"""A child that looks like any other process: this package is loaded under another name.

A candidate that is wrong only where it is not judged has to be told from one that is
right. What still shows, and cannot be hidden from code of the same process, is listed
in this folder's README.

This file is a program too, of the standard library alone: Python reads it from its
standard input, so that no argument names anything. Then it imports the process that
children are forked from, under the other name.
"""

import contextlib
import faulthandler
import gc
import inspect
import linecache
import os
import re
import signal
import sys
import types
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import Any, Final

NAMED: Final = "kfuzz"
"""What no name in a child holds."""

ALIAS: Final = "runtime"
"""What it is called there instead."""

_WORD: Final = re.compile(rf"\b{NAMED}\b")
_PATHS: Final = ("__file__", "__cached__", "__loader__", "__doc__")
# Which packages a folder of the path has to hold to stay in it.
_NEEDED: Final = ("torch", "triton", "numpy")


def renamed(name: str) -> str:
    """Return what a module of this package, or text about it, is called in a child."""
    return _WORD.sub(ALIAS, name)


def program(home: str, arguments: Sequence[str]) -> str:
    """Return the program of the process that children are forked from.

    Args:
        home: the folder that this package lies in.
        arguments: of `kfuzz.execution.processes.zygote`.
    """
    # Before anything else is imported: it is where the campaign works.
    first = "import sys\ndel sys.path[0]\n"
    given = (home, renamed(__name__), *map(renamed, arguments))
    return f"{first}{Path(__file__).read_text('utf-8')}\nbegin(*{given!r})\n"


def begin(home: str, own: str, *arguments: str) -> None:
    """Be that process; see `program`."""
    _FINDER.home = home
    sys.meta_path.insert(0, _FINDER)
    sys.modules[own] = sys.modules["__main__"]
    sys.argv += arguments
    import_module(renamed(f"{NAMED}.execution.processes.zygote")).main()


class _Loader(SourceFileLoader):
    """Loads a module in whose text this package has its other name."""

    def get_code(self, fullname: str) -> types.CodeType:
        """Compile it, as of a file that is not there."""
        text = renamed(Path(self.path).read_text("utf-8"))
        name = f"{fullname.replace('.', '/')}.py"
        lines = text.splitlines(keepends=True)
        linecache.cache[name] = len(text), None, lines, name  # which Triton looks up
        code = compile(text, name, "exec")
        _FINDER.late += _imports(code)
        return code


class _Finder:
    """Finds this package's modules by its other name.

    Attributes:
        home: the folder that the package lies in.
        late: what functions of the modules that were loaded import, or may.
    """

    def __init__(self) -> None:
        self.home = ""
        self.late: list[str] = []

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: object = None
    ) -> ModuleSpec | None:
        """Return where a module is, None for one of another package."""
        if not _is_ours(name):
            return None
        found = (
            PathFinder.find_spec(NAMED, [self.home])
            if name == ALIAS
            else PathFinder.find_spec(name, path)
        )
        if found is None or found.origin is None:
            return found
        return spec_from_file_location(
            name, found.origin, loader=_Loader(name, found.origin),
            submodule_search_locations=found.submodule_search_locations,
        )  # fmt: skip


_FINDER: Final = _Finder()


def load_all() -> None:
    """Import what functions of this package's modules import as they are called."""
    while _FINDER.late:
        with contextlib.suppress(ImportError):
            import_module(_FINDER.late.pop())


def _imports(code: types.CodeType) -> Iterator[str]:
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            for name in inner.co_names:
                if name.startswith(f"{ALIAS}."):
                    yield name
                    yield from (f"{name}.{other}" for other in inner.co_names)
            yield from _imports(inner)


def _is_ours(name: str) -> bool:
    return name.partition(".")[0] == ALIAS


def bare_main() -> None:
    """Have the process begin in a module that is none of this package's."""
    main = sys.modules["__main__"]
    for name in [n for n, module in sys.modules.items() if module is main]:
        del sys.modules[name]
    sys.modules["__main__"] = types.ModuleType("__main__")
    # It lies in a session of its own, where no terminal's Ctrl-C comes.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Both go on; these are built-in functions as well, whose names alone tell.
    gc.get_freeze_count = (0).conjugate
    faulthandler.is_enabled = "".isalpha
    sys.argv = [""]


def hide() -> None:
    """Forget where this package came from.

    Modules that were not imported before cannot be imported afterwards.
    """
    for name, module in sys.modules.items():
        if _is_ours(name):
            space = vars(module)
            space.update(dict.fromkeys(_PATHS), __spec__=ModuleSpec(name, None))
            if "__path__" in space:
                space["__path__"] = []
    _FINDER.home = ""
    linecache.clearcache()
    known: Any = inspect
    for files in (known.modulesbyfile, known._filesbymodname):
        files.clear()
    for path in list(sys.path):
        if _is_ours_alone(path):
            sys.path.remove(path)
    for path in list(sys.path_importer_cache):
        if _is_ours_alone(path) or f"{os.sep}{NAMED}" in path:
            del sys.path_importer_cache[path]
    places: tuple[list[Any], ...] = sys.meta_path, sys.path_hooks
    for place in places:
        place[:] = [each for each in place if each is not _FINDER and not _names(each)]
    for name in [n for n in sys.modules if NAMED in n]:
        del sys.modules[name]


def _names(hook: object) -> bool:
    """Whether a hook is one by which an installed copy in a checkout is found."""
    return NAMED in str(getattr(hook, "__module__", ""))


def _is_ours_alone(path: str) -> bool:
    """Whether a folder of the path holds this package and none that is needed."""
    folder = Path(path or ".")
    ours = (folder / NAMED).is_dir()
    return ours and not any((folder / name).is_dir() for name in _NEEDED)
