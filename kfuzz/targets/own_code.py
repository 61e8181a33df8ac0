"""A kernel's own Python: which functions are the user's, and which sizes they name.

What is the user's own: the file that binds the kernel, the modules imported from
beside it, and the file that defines the implementation, unless that is torch's or
Triton's. In Triton's interpreter the body of a kernel is Python too; what runs there
is a rewritten copy of the function.
"""

import ast
import gc
import inspect
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.util import resolve_name
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

from kfuzz.contracts.binding import BoundKernel

# Sizes taken from one kernel's code; a file that names more is one of tables.
MOST_SIZES: Final = 48
_LARGEST_SIZE: Final = 1 << 22


def own_functions(kernel: BoundKernel) -> list[FunctionType]:
    """Return the functions of a kernel's own files that Python runs.

    Where Triton compiles, the bodies of its kernels are not among them.
    """
    files = _own_files(kernel)
    interpreter = sys.modules.get("triton.runtime.interpreter")
    interpreted = getattr(interpreter, "InterpretedFunction", None)
    jit = sys.modules.get("triton.runtime.jit")
    compiled = getattr(jit, "JITFunction", None)
    if interpreted is not None:
        for body in _instances(interpreted):
            if _file(body.fn) in files:
                body.rewrite()
    bodies = {id(b.fn) for b in _instances(compiled)} if compiled else set()
    return [f for f in _functions(files) if id(f) not in bodies]


def named_sizes(kernel: BoundKernel) -> tuple[int, ...]:
    """Return the whole numbers that a kernel's own code names, and their neighbours.

    Constants, defaults of parameters and globals, of the implementation and of what
    it refers to by name, bodies included: where a wrapper takes another branch at
    1023 columns, the number is in it. Call it before functions are instrumented.

    Returns:
        At most `MOST_SIZES` of at least 1, those nearest to the implementation first.
    """
    found: dict[int, None] = {}
    for function in _referred(kernel):
        for number in _numbers_of(function):
            for size in (number, number - 1, number + 1):
                if 1 < number <= _LARGEST_SIZE and size >= 1:
                    found.setdefault(size)
    return tuple(found)[:MOST_SIZES]


def _referred(kernel: BoundKernel) -> list[FunctionType]:
    """Return the implementation and the own functions that it refers to, in turn."""
    files = _own_files(kernel)
    first = _python_of(kernel)
    if first is None or _file(first) not in files:
        return _functions(files)
    found = [first]
    for function in found:
        for name in _names_of(function):
            other = _python_of(function.__globals__.get(name))
            if other is not None and _file(other) in files and other not in found:
                found.append(other)
    return found


def _python_of(given: object) -> FunctionType | None:
    """Return the function behind a kernel, a body and what tunes it, if one is."""
    for _ in range(100):  # they could refer to one another
        if given is None or isinstance(given, FunctionType | ModuleType):
            break
        names = ("function", "fn", "__wrapped__", "__func__")
        given = next(filter(callable, (getattr(given, n, None) for n in names)), None)
    return given if isinstance(given, FunctionType) else None


def _functions(files: frozenset[str]) -> list[FunctionType]:
    """Return the functions that some files define, in the order of their lines."""
    found = [f for f in _instances(FunctionType) if _file(f) in files]
    found.sort(key=lambda f: (f.__code__.co_filename, f.__code__.co_firstlineno))
    return found


def _instances(kind: type) -> list[Any]:
    """Return the objects of a class; `isinstance` would run code of some of them."""
    return [o for o in gc.get_objects() if issubclass(type(o), kind)]


def _numbers_of(function: FunctionType) -> Iterator[int]:
    for code in _codes_of(function):
        yield from _whole(code.co_consts)
    defaults = function.__kwdefaults__ or {}
    yield from _whole((*(function.__defaults__ or ()), *defaults.values()))
    yield from _whole(function.__globals__.get(n) for n in _names_of(function))


def _names_of(function: FunctionType) -> list[str]:
    return [name for code in _codes_of(function) for name in code.co_names]


def _codes_of(function: FunctionType) -> list[CodeType]:
    """Return the code of a function and of those inside it."""
    found = [function.__code__]
    for code in found:
        found += [c for c in code.co_consts if isinstance(c, CodeType)]
    return found


def _whole(values: Iterable[object]) -> Iterator[int]:
    """Yield the whole numbers among values, those in tuples too."""
    for value in values:
        inner = getattr(value, "value", value)  # of a constexpr
        if type(inner) is int:
            yield inner
        elif isinstance(value, tuple):
            yield from _whole(value)


def _own_files(kernel: BoundKernel) -> frozenset[str]:
    """Return the files whose functions are a kernel's own."""
    files = set()
    home = getattr(sys.modules.get(kernel.module), "__file__", None)
    if home:
        folder = Path(home).parent
        beside = (getattr(m, "__file__", None) for m in list(sys.modules.values()))
        files |= {f for f in beside if f and Path(f).parent == folder}
    defined = _file(inspect.unwrap(kernel.function))
    libraries = (sys.modules.get(name) for name in ("torch", "triton"))
    homes = (getattr(library, "__file__", None) for library in libraries)
    foreign = [Path(file).parent for file in homes if file]
    if defined and not any(Path(defined).is_relative_to(f) for f in foreign):
        files.add(defined)
    return frozenset(files)


def _file(function: Any) -> str:
    """Return the file of a function's code, "" where it has none."""
    code = getattr(function, "__code__", None)
    return code.co_filename if isinstance(code, CodeType) else ""


# Whether a kernel can run a Triton program at all, by what its files import.

_TRITON: Final = "triton"
# Packages that run none by themselves. On the CPU torch's compiler writes C++.
_PLAIN: Final = sys.stdlib_module_names | {"torch", "numpy", "scipy", "kfuzz"}
# Those of them that may stand for any other import, and kernels of kfuzz's own.
_OPEN: Final = ("importlib", "runpy", "kfuzz.contracts.witnesses")
# More files are a library's, which is not read.
_MOST_FILES: Final = 64


def is_triton_free(kernel: BoundKernel) -> bool:
    """Whether nothing that a kernel's files import, and these in turn, is Triton.

    It depends on the files alone. What cannot be read counts as what may run Triton:
    operators of compiled libraries, modules that are imported when called, libraries of
    many files.
    """
    function = inspect.unwrap(kernel.function)
    found = {kernel.module: None, str(getattr(function, "__module__", "")): None}
    left = [name for name in found if name and not _is_plain(name)]
    seen = set(left)
    if kernel.module not in seen or "torch.ops" in found:
        return False
    while left:
        module = sys.modules.get(left.pop())
        names = None if module is None else _imports_of(module)
        if names is None or len(seen) > _MOST_FILES:
            return False
        for name in names:
            if name == _TRITON or name.startswith(f"{_TRITON}."):
                return False
            if not _is_plain(name) and name not in seen:
                seen.add(name)
                left.append(name)
    return True


def imports_none(file: Path | None) -> bool:
    """Whether a file that is not imported yet imports nothing that may be Triton.

    Its own imports are looked at, and not what these import in turn.
    """
    if file is None:
        return False
    try:
        tree = _parsed(str(file), file.stat().st_mtime_ns)
        return all(map(_is_plain, _named(tree, "")))
    except (ImportError, OSError, SyntaxError, ValueError):
        return False


def _is_plain(name: str) -> bool:
    is_open = any(name == n or name.startswith(f"{n}.") for n in _OPEN)
    return name.partition(".")[0] in _PLAIN and not is_open


def _imports_of(module: ModuleType) -> tuple[str, ...] | None:
    """Return the modules that one imports anywhere; None if that cannot be told."""
    file = getattr(module, "__file__", None)
    if not isinstance(file, str):
        return None
    if not file.endswith(".py"):
        return ()  # compiled: none of Python's imports
    try:
        tree = _parsed(file, Path(file).stat().st_mtime_ns)
    except (OSError, SyntaxError, ValueError):
        return None
    package = getattr(module, "__package__", None) or ""
    return tuple(dict.fromkeys(_named(tree, package)))


@cache
def _parsed(file: str, changed: int) -> ast.Module:
    return ast.parse(Path(file).read_bytes())


def _named(tree: ast.Module, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            dots = "." * node.level
            base = dots + (node.module or "")
            name = resolve_name(base, package) if dots else base
            yield name
            # A name may be a module of its own.
            inner = (f"{name}.{alias.name}" for alias in node.names)
            yield from (n for n in inner if n in sys.modules)
