"""Launches of a Triton kernel past what finds the compiled kernel for its arguments.

Triton tells from each argument which compiled kernel a launch needs. Who knows that
it is always the same one compiles it once and launches it by its function, and passes
addresses where the kernel takes pointers: Triton asks the driver about tensors' ones.
"""

import functools
from collections.abc import Callable
from typing import Any

from triton import knobs


def direct(
    kernel: Any,
    given: tuple[Any, ...],
    fixed: tuple[Any, ...],
    grid: tuple[int, int, int],
    stream: int,
    options: dict[str, Any],
) -> Callable[..., object]:
    """Compile a kernel for the current device, and return what launches it there.

    Args:
        kernel: of Triton's, compiled and not interpreted.
        given: the first arguments, as they may be; nothing of those given later but
            their types may be another for the compiled kernel.
        fixed: all others; tensors among them live as long as the result.
        grid: programs of a launch.
        stream: of all launches, as the driver names it.
        options: of the compiler.

    Returns:
        Takes the first arguments, addresses for pointers.

    Raises:
        RuntimeError: if a hook of Triton's keeps it from compiling.
    """
    compiled = kernel.warmup(*given, *fixed, grid=grid, **options)
    if compiled is None:
        raise RuntimeError(f"{kernel.__name__} was not compiled: a hook of Triton's")
    observed = functools.partial(compiled[grid], stream=stream)  # loads it too
    run = functools.partial(
        compiled.run, *grid, stream, compiled.function, compiled.packed_metadata,
        None, None, None,  # what hooks are told, and the two hooks
    )  # fmt: skip
    return _Direct(run, observed, fixed)


class _Direct:
    """Launches a compiled kernel; so that hooks see it if there are some."""

    __slots__ = ("_alive", "_fixed", "_observed", "_run")

    def __init__(
        self,
        run: Callable[..., object],
        observed: Callable[..., object],
        fixed: tuple[Any, ...],
    ) -> None:
        self._run, self._observed = run, observed
        self._alive = fixed  # addresses alone would not keep the memory
        self._fixed = tuple(
            x.data_ptr() if hasattr(x, "data_ptr") else x for x in fixed
        )

    def __call__(self, *first: Any) -> None:
        """Launch it."""
        (self._observed if _is_observed() else self._run)(*first, *self._fixed)


def _is_observed() -> bool:
    """Whether someone is to be told of launches: a profiler, say."""
    enter, leave = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook
    # A chain of them, which may be empty, or a function or None in its place.
    return bool(getattr(enter, "calls", enter) or getattr(leave, "calls", leave))
