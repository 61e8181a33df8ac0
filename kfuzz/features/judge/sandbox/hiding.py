"""A child that looks like any other process: what would name kfuzz in it is renamed.

A candidate that is wrong only where it is not judged has to be told from one that is
right. What still shows, and cannot be hidden from code of the same process, is listed
in this folder's README.
"""

import contextlib
import ctypes
import faulthandler
import functools
import gc
import logging
import os
import re
import signal
import sys
import types
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, Final

NAMED: Final = "kfuzz"
"""What no name in a child holds."""

ALIAS: Final = "runtime"
"""What it is called there instead."""

_A_MODULE: Final = re.compile(r"\w+(\.\w+)+")
_PATHS: Final = ("__file__", "__cached__", "__loader__", "__doc__")
# Which packages a folder of the path has to hold to stay in it.
_NEEDED: Final = ("torch", "triton", "numpy")


def load_all() -> None:
    """Import what functions of this package's modules import as they are called."""
    done: set[str] = set()
    while more := {n for n in sys.modules if _is_ours(n)} - done:
        done |= more
        for name in more:
            for code in _codes(sys.modules[name]):
                for wanted in _imported_by(code):
                    with contextlib.suppress(ImportError):
                        import_module(wanted)


def _codes(module: types.ModuleType) -> Iterator[types.CodeType]:
    """Yield the code of a module's functions, methods and what lies inside them."""
    pending: list[Any] = []
    for value in list(vars(module).values()):
        if getattr(value, "__module__", None) == module.__name__:
            pending += [value, *(vars(value).values() if type(value) is type else ())]
    codes = []
    for value in pending:
        each = next(_held(value), value)
        if isinstance(each, types.FunctionType):
            codes.append(each.__code__)
    while codes:
        code = codes.pop()
        yield code
        codes += [c for c in code.co_consts if isinstance(c, types.CodeType)]


def _imported_by(code: types.CodeType) -> Iterator[str]:
    for value in code.co_consts:
        if isinstance(value, str) and _is_ours(value) and _A_MODULE.fullmatch(value):
            yield value
    for name in code.co_names:
        if not _is_ours(name):
            continue
        yield name
        for folder in getattr(sys.modules.get(name), "__path__", ()):
            for other in code.co_names:
                if (Path(folder) / f"{other}.py").is_file():
                    yield f"{name}.{other}"


def hide() -> None:
    """Rename this package in the present process, and forget where it came from.

    Functions stay what they are and go on running; their next calls show the new
    names. Modules that were not imported before cannot be imported afterwards.
    """
    modules = {n: m for n, m in sys.modules.items() if _is_ours(n)}
    globals_of = {id(vars(module)) for module in modules.values()}
    seen: set[int] = set()
    for module in modules.values():
        for value in list(vars(module).values()):
            _rename(value, globals_of, seen)
    # What was made since the process that this one is a fork of began to serve: the
    # rest is frozen out of the collector's sight.
    for value in gc.get_objects():
        if isinstance(value, types.FunctionType):
            _rename(value, globals_of, seen)
    for name, module in modules.items():
        del sys.modules[name]
        alias = _renamed(name)
        sys.modules[alias] = module
        space = vars(module)
        space.update(dict.fromkeys(_PATHS), __name__=alias)
        space["__spec__"] = ModuleSpec(alias, None)
        space["__package__"] = _renamed(space.get("__package__") or "")
        if "__path__" in space:
            space["__path__"] = []
    _forget_origin()


def bare_main() -> None:
    """Have the process begin in a module that is none of kfuzz's."""
    main, bare = sys.modules["__main__"], types.ModuleType("__main__")
    for name in [n for n, module in sys.modules.items() if module is main]:
        sys.modules[name] = bare
    # It lies in a session of its own, where no terminal's Ctrl-C comes.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Both go on; these are built-in functions as well, whose names alone tell.
    gc.get_freeze_count = (0).conjugate
    faulthandler.is_enabled = "".isalpha
    _clear_flag("safe_path")
    sys.argv = [""]
    sys.orig_argv = [sys.executable]
    # The C library's variables lie in the area that is wiped until each is set anew;
    # what is started from here, a compiler say, inherits them from there.
    for name, value in list(os.environ.items()):
        os.environ[name] = value
    for name, area in (("cmdline", "arg"), ("environ", "env")):
        with contextlib.suppress(OSError, ValueError, IndexError):
            _overwrite(*_area(area), b"python\0" if name == "cmdline" else b"")


def _clear_flag(name: str) -> None:
    """Have `sys.flags` say that an option was not given."""
    kind = type(sys.flags)
    fields = [n for n, v in vars(kind).items() if type(v) is types.MemberDescriptorType]
    given = ctypes.py_object(False)
    ctypes.pythonapi.Py_IncRef(given)  # a reference is taken over
    at = ctypes.c_ssize_t(fields.index(name))
    ctypes.pythonapi.PyStructSequence_SetItem(ctypes.py_object(sys.flags), at, given)


def package() -> Path:
    """Return the folder that this package is imported from."""
    return Path(__file__).parents[3]


def _is_ours(name: str) -> bool:
    return name == NAMED or name.startswith(f"{NAMED}.")


def _renamed(text: str) -> str:
    return text.replace(NAMED, ALIAS)


def _rename(value: Any, ours: set[int], seen: set[int]) -> None:
    """Rename functions and classes of this package, and those that they hold."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, types.FunctionType):
        _rename_function(value, ours, seen)
    elif isinstance(value, type):
        if not _is_ours(str(getattr(value, "__module__", ""))):
            return
        with contextlib.suppress(AttributeError, TypeError):
            value.__module__ = _renamed(value.__module__)
        with contextlib.suppress(AttributeError, TypeError):
            value.__doc__ = None
        for each in list(vars(value).values()):
            _rename(each, ours, seen)
    else:
        for each in _held(value):
            _rename(each, ours, seen)


def _held(value: Any) -> Iterator[Any]:
    """Yield the functions that something wraps."""
    if isinstance(value, staticmethod | classmethod):
        yield value.__func__
    elif isinstance(value, property):
        yield from (f for f in (value.fget, value.fset, value.fdel) if f is not None)
    elif isinstance(value, functools.cached_property | functools.partial):
        yield value.func
    elif isinstance(value, types.MethodType):
        yield value.__func__
    elif callable(getattr(value, "__wrapped__", None)):
        yield value.__wrapped__
        with contextlib.suppress(AttributeError, TypeError):
            if _is_ours(value.__module__):
                value.__module__ = _renamed(value.__module__)


def _rename_function(
    function: types.FunctionType, ours: set[int], seen: set[int]
) -> None:
    if id(function.__globals__) in ours or _is_ours(function.__module__ or ""):
        function.__code__ = _plain(function.__code__)
        function.__doc__ = None
        function.__module__ = _renamed(function.__module__ or "")
        function.__qualname__ = _renamed(function.__qualname__)
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # an empty one
            _rename(cell.cell_contents, ours, seen)
    wrapped = vars(function).get("__wrapped__")
    if wrapped is not None:
        _rename(wrapped, ours, seen)


def _plain(code: types.CodeType) -> types.CodeType:
    """Return code that names neither its file nor this package."""
    return code.replace(
        co_filename=f"{ALIAS}.py",
        co_names=tuple(_renamed(n) if _is_ours(n) else n for n in code.co_names),
        co_consts=tuple(map(_plain_constant, code.co_consts)),
    )


def _plain_constant(value: Any) -> Any:
    if isinstance(value, types.CodeType):
        return _plain(value)
    if isinstance(value, str) and _is_ours(value):
        return _renamed(value)  # a module's name; texts that people read stay
    if isinstance(value, tuple):
        return tuple(map(_plain_constant, value))
    return value


def _forget_origin() -> None:
    """Forget from where this package can be imported, and what it has logged."""
    for path in list(sys.path):
        if _is_ours_alone(path):
            sys.path.remove(path)
    for path in list(sys.path_importer_cache):
        if _is_ours_alone(path) or f"{os.sep}{NAMED}" in path:
            del sys.path_importer_cache[path]
    finders: list[Any] = sys.meta_path
    for finder in [f for f in finders if NAMED in str(getattr(f, "__module__", ""))]:
        finders.remove(finder)
    hooks: list[Callable[..., Any]] = sys.path_hooks
    for hook in [h for h in hooks if NAMED in str(getattr(h, "__module__", ""))]:
        hooks.remove(hook)
    for name in [n for n in sys.modules if NAMED in n]:
        del sys.modules[name]
    for name in [n for n in logging.root.manager.loggerDict if _is_ours(n)]:
        del logging.root.manager.loggerDict[name]
    folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    others = [p for p in folders if p and not _is_ours_alone(p)]
    os.environ["PYTHONPATH"] = os.pathsep.join(others)
    for name in list(os.environ):
        if NAMED in name.lower() or (name == "PYTHONPATH" and not others):
            del os.environ[name]


def _is_ours_alone(path: str) -> bool:
    """Whether a folder of the path holds this package and none that is needed."""
    folder = Path(path or ".")
    ours = (folder / NAMED).is_dir()
    return ours and not any((folder / name).is_dir() for name in _NEEDED)


def _area(kind: str) -> tuple[int, int]:
    """Return where the system finds this process's arguments, or its environment.

    Fields 48 to 51 of /proc/PID/stat, see proc_pid_stat(5).
    """
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    first = 48 - 3 if kind == "arg" else 50 - 3
    start, end = int(fields[first]), int(fields[first + 1])
    if not 0 < start < end or end - start > 1 << 22:
        raise ValueError(f"no area of {kind}")
    return start, end


def _overwrite(start: int, end: int, text: bytes) -> None:
    size = end - start
    ctypes.memset(start, 0, size)
    ctypes.memmove(start, text, min(len(text), size))
