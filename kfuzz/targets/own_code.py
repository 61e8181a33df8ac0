"""A kernel's own Python: which functions are the user's, and which sizes they name.

What is the user's own: the file that binds the kernel, the modules imported from
beside it, and the file that defines the implementation, unless that is torch's or
Triton's. In Triton's interpreter the body of a kernel is Python too; what runs there
is a rewritten copy of the function.
"""

import gc
import inspect
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

import torch

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
    foreign = [Path(torch.__file__).parent]
    triton = sys.modules.get("triton")
    if triton is not None and triton.__file__:
        foreign.append(Path(triton.__file__).parent)
    if defined and not any(Path(defined).is_relative_to(f) for f in foreign):
        files.add(defined)
    return frozenset(files)


def _file(function: Any) -> str:
    """Return the file of a function's code, "" where it has none."""
    code = getattr(function, "__code__", None)
    return code.co_filename if isinstance(code, CodeType) else ""


# Whether a kernel can run a Triton program at all, by what its files import.
