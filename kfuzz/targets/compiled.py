"""`kfuzz.compiled`: torch.compile held against eager execution."""

import copy
import functools
import inspect
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from kfuzz.contracts.reference import lead_of, name_of
from kfuzz.core.errors import BindingError, BuildError
from kfuzz.execution.calls.compiling import import_compiler
from kfuzz.execution.processes.interrupts import is_child
from kfuzz.store.cache import cache_folder

# Shapes, dtypes and layouts are many; each may be compiled anew.
_RECOMPILATIONS: Final = 1 << 20
# What the machine lacks, or kfuzz has set, by the class of an exception.
_MACHINES: Final = frozenset(
    {"InvalidCxxCompiler", "TritonMissing", "GPUTooOldForTriton",
     "FailOnRecompileLimitHit", "RecompileLimitExceeded", "RecompileError"}
)  # fmt: skip
_MACHINES_WORDS: Final = (
    "Failed to find C compiler",
    "No working C++ compiler found",
    "Python.h: No such file",
    "omp.h: No such file",
)


def compiled(function: Callable[..., Any], **options: Any) -> "Compiled":
    """Return a function or module under torch.compile, as a kernel.

    The first call compiles it, in a child process. Shapes are dynamic unless the
    options say otherwise. It may recompile without a limit, so that torch never falls
    back to eager execution silently. Without a compiler the verdict is `error`.
    Any other exception of the compiler counts as raised by the kernel.

    Args:
        function: takes tensors by position, and scalars by keyword.
        options: those of `torch.compile`.

    Raises:
        BindingError: if the function is not callable.
    """
    if not callable(function):
        raise BindingError(f"{function!r:.60} is not callable", where="kfuzz.compiled")
    return Compiled(function, options)


class Compiled:
    """A function under torch.compile, compiled on its first call in a process."""

    def __init__(
        self, function: Callable[..., Any], options: Mapping[str, Any]
    ) -> None:
        import torch

        self._function = function
        self._options = {"dynamic": True, **options}
        self._is_module = isinstance(function, torch.nn.Module)
        # By process, and for a module by device and dtype.
        self._made: dict[object, Callable[..., Any]] = {}
        forward = (
            function.forward if isinstance(function, torch.nn.Module) else function
        )
        self.__name__ = name_of(function)
        self.__qualname__ = getattr(function, "__qualname__", self.__name__)
        self.__doc__ = function.__doc__
        self.__wrapped__ = forward
        self.__signature__ = inspect.signature(forward)
        if is_child():
            _environment()  # torch settles it while its compiler is imported
        import_compiler()

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Call what it is compiled to.

        Raises:
            BuildError: if this machine cannot compile, or nothing is compiled.
            Exception: what the compiler, or the function, raises.
        """
        key = self._key(arguments)
        with _compiling() as counts:
            if key not in self._made:
                self._made[key] = self._compiled(arguments)
            try:
                returned = self._made[key](*arguments, **keywords)
            except Exception as error:
                if (why := _machines(error)) is not None:
                    raise BuildError(
                        f"torch.compile cannot compile {self.__name__} here: {why}"
                    ) from error
                raise
            code = os.getpid(), id(getattr(self.__wrapped__, "__code__", self))
            if counts():
                _seen.add(code)
            elif code not in _seen:
                raise BuildError(
                    f"torch.compile compiled nothing of {self.__name__}: "
                    "it runs eagerly",
                    fix="see TORCH_COMPILE_DISABLE, TORCHDYNAMO_DISABLE and what its "
                    "first call is given",
                )
        return returned

    def _key(self, arguments: tuple[Any, ...]) -> object:
        if not self._is_module:
            return os.getpid()
        lead = lead_of(arguments)
        return os.getpid(), *((lead.device, lead.dtype) if lead is not None else ())

    def _compiled(self, arguments: tuple[Any, ...]) -> Callable[..., Any]:
        import torch

        function = self._function
        if isinstance(function, torch.nn.Module):
            from torch.utils._python_dispatch import _disable_current_modes

            lead = lead_of(arguments)
            with _disable_current_modes():  # its weights are no allocation of a call
                function = copy.deepcopy(function)
                if lead is not None:
                    function.to(lead.device, lead.dtype)
        made: Callable[..., Any] = torch.compile(function, **self._options)
        return made


_lock = threading.RLock()
# What has been compiled at least once, by process and code: torch keeps it by the code.
_seen: Final[set[tuple[int, int]]] = set()


@functools.cache
def _counting() -> Callable[[], int]:
    """Prepare this process for compiling; return what counts compilations.

    In-process, without workers that a fork would leave behind, with its files in
    kfuzz's cache, and as often as new shapes ask for it.
    """
    import torch._dynamo
    import torch._inductor.config as inductor
    from torch._dynamo.callback import callback_handler

    from kfuzz.execution.calls.compiling import starts_and_ends

    dynamo = torch._dynamo.config
    for limit in ("recompile_limit", "accumulated_recompile_limit"):
        setattr(dynamo, limit, _RECOMPILATIONS)
    dynamo.fail_on_recompile_limit_hit = True
    dynamo.suppress_errors = False
    inductor.compile_threads = 1
    count = 0
    start, end = starts_and_ends()

    def starts(*_: object) -> None:
        nonlocal count
        count += 1
        start()

    callback_handler.register_start_callback(starts)
    callback_handler.register_end_callback(lambda *_: end())
    return lambda: count


@contextmanager
def _compiling() -> Iterator[Callable[[], int]]:
    """Give a block what tells how often torch has compiled in it."""
    from kfuzz.execution.calls.compiling import at_work

    if not _counting.cache_info().currsize:
        with _lock, at_work():  # importing the compiler takes seconds
            _environment()  # of no effect where it is imported already
            _counting()
    count = _counting()
    before = count()
    yield lambda: count() - before


def _environment() -> None:
    """Have torch's compiler keep its files in kfuzz's cache, unless told where."""
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    if "TORCHINDUCTOR_CACHE_DIR" not in os.environ:
        try:
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(cache_folder("inductor"))
        except OSError:
            return


def _machines(error: BaseException) -> str | None:
    """Return why this machine, not the kernel, keeps torch from compiling, or None."""
    seen: BaseException | None = error
    why = None
    for _ in range(100):
        if seen is None:
            break
        text = str(seen).strip()
        by_name = any(kind.__name__ in _MACHINES for kind in type(seen).__mro__)
        if by_name or any(words in text for words in _MACHINES_WORDS):
            why = text.partition("\n")[0] or type(seen).__name__  # the innermost's
        seen = getattr(seen, "inner_exception", None) or seen.__cause__
    return why
