"""What the interpreter records of real launches, access by access.

In a process whose kernels are interpreted. The graph of a kernel has to say the same of
the same launch: where it does not, one of the two is wrong, and nothing is proved.
"""

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kfuzz.contracts.binding import BoundKernel
from kfuzz.contracts.derive import Derived
from kfuzz.core.budget import SizeBudget
from kfuzz.core.case_surroundings import poison_of
from kfuzz.core.recipe import Case
from kfuzz.evaluation.evaluator import Evaluator, Setting
from kfuzz.execution.calls.patches import Patches
from kfuzz.execution.interpreter import watch
from kfuzz.execution.launches.capture import Captured, Recorder, sizes_of
from kfuzz.execution.launches.launch import (
    UNKNOWN,
    ConstArgument,
    Launch,
    TensorArgument,
)
from kfuzz.prove.ir.values import ATOMIC, LOAD, STORE

_BUDGET: Final = SizeBudget(elements=1 << 14, rows=1 << 10)

Pairs = NDArray[np.int64]


@dataclass(frozen=True)
class Observed:
    """One launch, and what it touched.

    Attributes:
        launch: the launch.
        touched: by kind of access and argument the pairs of a program's number, x
            fastest, and a byte's distance from the argument's pointer.
        unowned: accesses through pointers that come from no argument.
    """

    launch: Launch
    touched: Mapping[tuple[str, str], Pairs]
    unowned: int = 0


class _Recorder(Recorder):
    """Records launches of real tensors: each by its own pointer."""

    def tensor(self, tensor: Tensor) -> TensorArgument:
        made = super().tensor(tensor)
        return replace(made, before=UNKNOWN, storage=tensor.data_ptr())


class _Touches:
    """The accesses of one launch."""

    def __init__(self, pointers: Mapping[int, str], grid: tuple[int, int, int]) -> None:
        self._pointers, self._grid = pointers, grid
        self._program = 0
        self._found: dict[tuple[str, str], list[Pairs]] = {}
        self.unowned = 0

    def begin(self, place: tuple[int, int, int]) -> None:
        x, y, z = place
        self._program = x + self._grid[0] * (y + self._grid[1] * z)

    def add(self, kind: str, origin: int | None, addresses: Any) -> None:
        name = self._pointers.get(origin if origin is not None else -1)
        if name is None or origin is None:
            self.unowned += 1
            return
        offsets = (addresses.astype(np.uint64) - np.uint64(origin)).view(np.int64)
        offsets = np.unique(offsets)
        programs = np.full(offsets.shape, self._program, np.int64)
        pairs = np.stack([programs, offsets], 1)
        self._found.setdefault((kind, name), []).append(pairs)

    def all(self) -> dict[tuple[str, str], Pairs]:
        return {
            key: np.unique(np.concatenate(found), axis=0)
            for key, found in self._found.items()
        }


def observe(kernel: BoundKernel, case: Case) -> list[Observed]:
    """Run a kernel on a case in the interpreter; return its launches.

    Raises:
        Exception: whatever the call, or what prepares it, raises.
    """
    setting = Setting(torch.device("cpu"), _BUDGET, frozenset())
    evaluator = Evaluator(kernel, setting)
    case = evaluator.settled(case)
    caller = evaluator.caller(case)
    derived = Derived(case, evaluator.values(case))
    call = kernel.taking(case.tensors)
    made: list[Observed] = []

    def observed(*args: Any, **kwargs: Any) -> Any:
        with _recording(case, made):
            return call(*args, **kwargs)

    caller.run(derived, {}, poison_of(case), instead=observed)
    return made


@contextmanager
def _recording(case: Case, made: list[Observed]) -> Iterator[None]:
    from triton.runtime import interpreter
    from triton.runtime.jit import KernelParam

    patches = Patches()
    check: Any = watch.current().check
    begin, launched = check.program, interpreter.InterpretedFunction.run
    now: list[_Touches] = []

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        if warmup:
            return launched(self, *args, grid=grid, warmup=warmup, **kwargs)
        recorder = _Recorder(Captured(case), sizes_of(case))
        parameters = inspect.signature(self.fn).parameters.values()
        params = [KernelParam(i, p, False, False) for i, p in enumerate(parameters)]
        recorder.launch(
            SimpleNamespace(fn=self.fn, params=params), *args, grid=grid, **kwargs
        )
        launch = _plain(recorder.made.launches[0])
        pointers: dict[int, str] = {}
        for name, argument in launch.arguments.items():
            if isinstance(argument, TensorArgument):
                pointers.setdefault(argument.storage, name)
        touches = _Touches(pointers, launch.grid)
        now[:] = [touches]
        try:
            return launched(self, *args, grid=grid, warmup=warmup, **kwargs)
        finally:
            now.clear()
            made.append(Observed(launch, touches.all(), touches.unowned))

    def program(place: tuple[int, int, int]) -> None:
        begin(place)
        if now:
            now[0].begin(place)

    def note(kind: str, ptrs: Any, mask: Any) -> None:
        if now:
            live = np.broadcast_to(_as_flags(mask, ptrs.shape), ptrs.shape)
            addresses = np.asarray(ptrs)[live]
            if addresses.size:
                now[0].add(ATOMIC if check.atomic else kind, check.origin, addresses)

    def wrapped(name: str, kind: str, pointers: int, mask: int | None) -> Any:
        original = getattr(check, name)

        def called(*args: Any) -> Any:
            note(kind, args[pointers], True if mask is None else args[mask])
            return original(*args)

        return called

    patches.set(interpreter.InterpretedFunction, "run", run)
    check.program = program
    for name, kind, pointers, mask in _HOOKED:
        setattr(check, name, wrapped(name, kind, pointers, mask))
    try:
        yield
    finally:
        patches.undo()


def _plain(launch: Launch) -> Launch:
    """Return a launch without what other processes cannot have."""
    arguments = {
        name: replace(a, value=None)
        if isinstance(a, ConstArgument) and not isinstance(a.value, int | None)
        else a
        for name, a in launch.arguments.items()
    }
    return replace(launch, arguments=arguments, options={})


# What of the check is listened to, with the places of pointers and masks.
_HOOKED: Final[tuple[tuple[str, str, int, int | None], ...]] = (
    ("load", LOAD, 1, 2),
    ("store", STORE, 1, 3),
    ("atomic_rmw", ATOMIC, 2, 4),
    ("atomic_cas", ATOMIC, 1, None),
)


def _as_flags(mask: Any, shape: tuple[int, ...]) -> Any:
    flags = np.asarray(mask).astype(np.bool_)
    return flags.reshape(shape) if flags.size == int(np.prod(shape)) else flags
