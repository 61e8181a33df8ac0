"""The processes of a sanitized program: each launch is interpreted and checked.

Every Python process below the command calls `begin` as it imports torch (`site`): the
program itself, the workers of a test run, and what these start.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from functools import partial, wraps
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, Final

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from kfuzz.core.verdict import Access
from kfuzz.execution.calls.patches import Patches
from kfuzz.execution.device import simulated
from kfuzz.execution.interpreter import watch
from kfuzz.execution.interpreter.memory import (
    AddressCheck,
    Program,
    Reach,
    Region,
    Regions,
    tensors_in,
)
from kfuzz.execution.memory.allocations import places
from kfuzz.execution.memory.poison import Poison, fill_poison, poison_bytes, poison_word
from kfuzz.execution.memory.slots import WriteMap
from kfuzz.features.observe import faults
from kfuzz.features.observe.watching import FOUND, shape_of

_weak: Final[Any] = StorageWeakRef  # untyped

LEAST_BYTES: Final = 2
"""Of an element: the poison of a byte is too common as data to tell it from that."""


WRITING_SECONDS: Final = 0.5
"""Between two times that what was seen is left for the command."""


MOST_BYTES: Final = 1 << 30
"""Of memory that is followed: more may be there in name alone, until it is written."""


class FreshMemory:
    """What `torch.empty` and its kin gave, as long as it lives.

    What it holds at first is poison. Torch's own operators write to it unseen: what
    holds anything else was written.
    """

    def __init__(self) -> None:
        self._maps: dict[int, tuple[Any, WriteMap, torch.dtype]] = {}
        self._most = 1 << 10

    def follow(self, patches: Patches) -> None:
        """Poison all that is allocated from now on."""
        for place in places():
            patches.set(place.owner, place.name, self._poisoning(place.function))

    def _poisoning(self, true: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(true)
        def allocate(*args: Any, **kwargs: Any) -> Any:
            made = true(*args, **kwargs)
            if (
                type(made) is Tensor
                and made.layout is torch.strided
                and not made.is_meta
                and made.dtype is not torch.bool
                and made.dtype.itemsize >= LEAST_BYTES
                and 0 < made.untyped_storage().nbytes() <= MOST_BYTES
            ):
                self._poison(made)
            return made

        return allocate

    def _poison(self, made: Tensor) -> None:
        storage, memory = made.untyped_storage(), _bytes(made)
        size = memory.numel() // made.dtype.itemsize * made.dtype.itemsize
        with torch._C.DisableTorchFunction():
            fill_poison(memory[:size], made.dtype, Poison.NAN)
        pattern = poison_bytes(made.dtype, Poison.NAN)
        writes = WriteMap(size, made.dtype.itemsize, pattern)
        self._maps[storage.data_ptr()] = _weak(storage), writes, made.dtype
        if len(self._maps) > self._most:
            live = {at: m for at, m in self._maps.items() if not m[0].expired()}
            self._maps, self._most = live, max(2 * len(live), self._most)

    def writes(self, tensor: Tensor) -> tuple[WriteMap, torch.dtype] | None:
        """Return what is written of a tensor's memory, and what it was made for.

        None where all is written.
        """
        storage = tensor.untyped_storage()
        held = self._maps.get(storage.data_ptr())
        if held is None or held[0].expired() or held[0] != _weak(storage):
            return None
        return None if held[1].complete else held[1:]

    def before(self, given: Iterable[Any]) -> "Before | None":
        """Return the memory that a launch is given; None where all of it is written."""
        tensors = tensors_in(list(given))
        fresh = [made for t in tensors if (made := self.writes(t)) is not None]
        return Before(self, tensors) if fresh else None

    def reach(self, given: Mapping[str, Any]) -> "LaunchReach":
        """Return what a launch may touch, by the kernel's names of its arguments."""
        names: dict[int, list[str]] = {}
        for name, value in given.items():
            for tensor in tensors_in(value):
                names.setdefault(tensor.untyped_storage().data_ptr(), []).append(name)
        return LaunchReach(self, names)


class LaunchReach(Reach):
    """The storages whose tensors one launch is given."""

    def __init__(self, fresh: FreshMemory, names: Mapping[int, list[str]]) -> None:
        super().__init__({}, {}, None)
        self._fresh = fresh
        self._names = names

    def regions(self, launched: Iterable[Tensor]) -> Regions:
        """Return what one launch may touch."""
        made: dict[int, Region] = {}
        for tensor in launched:
            storage = tensor.untyped_storage()
            low, size = storage.data_ptr(), storage.nbytes()
            if not size or low in made:
                continue
            dtype = str(tensor.dtype).removeprefix("torch.")
            names = self._names.get(low, [])
            memory = f"{', '.join(names) or 'its own'} {dtype}{list(tensor.shape)}"
            writes = (self._fresh.writes(tensor) or (None,))[0]
            made[low] = Region(
                low, low + size, tensor.itemsize, names[0] if names else "", memory,
                None, writes,
            )  # fmt: skip
        return Regions(made.values())


class Before:
    """The memory that a launch is given, as it is before."""

    def __init__(self, fresh: FreshMemory, tensors: Iterable[Tensor]) -> None:
        # Memory, what it holds, where that is poison, and which poisons there are.
        self._held: list[tuple[Tensor, Tensor, Tensor, WriteMap | None]] = []
        self._words: list[tuple[torch.dtype, int, int]] = []
        for tensor in {t.untyped_storage().data_ptr(): t for t in tensors}.values():
            memory, made = _bytes(tensor), fresh.writes(tensor)
            writes, dtype = made or (None, torch.uint8)
            word, old = poison_word(dtype, Poison.NAN)
            new = poison_word(dtype, Poison.FINITE)[1]
            self._words.append((word, old, new))
            unwritten = _words(memory, word) == old
            if writes is None:
                unwritten = unwritten & False
            self._held.append((memory, memory.clone(), unwritten, writes))

    def decides(self, again: Callable[[], object]) -> bool:
        """Whether what the launch leaves follows what unwritten memory holds.

        Args:
            again: launches once more, with other poison there. What the first launch
                left is there again afterwards.
        """
        after = [memory.clone() for memory, *_ in self._held]
        for (memory, before, unwritten, _), (word, _, new) in self._both():
            memory.copy_(before)
            _words(memory, word).masked_fill_(unwritten, new)
        try:
            again()
            for (memory, _, unwritten, writes), (word, old, _) in self._both():
                if writes is not None:  # what no launch wrote is alike
                    left = unwritten & ~_marked(writes, unwritten)
                    _words(memory, word).masked_fill_(left, old)
            return any(
                not torch.equal(memory, was)
                for (memory, *_), was in zip(self._held, after, strict=True)
            )
        except Exception:
            return True
        finally:
            for (memory, *_), was in zip(self._held, after, strict=True):
                memory.copy_(was)

    def _both(self) -> Iterator[tuple[Any, tuple[torch.dtype, int, int]]]:
        return zip(self._held, self._words, strict=True)


def _words(memory: Tensor, word: torch.dtype) -> Tensor:
    size = word.itemsize
    return memory[: memory.numel() // size * size].view(word)


def _marked(writes: WriteMap, like: Tensor) -> Tensor:
    """Return which words of memory a launch has written."""
    complete, elements = writes.state()
    if elements is None:
        return torch.full_like(like, complete)
    marked = torch.from_numpy(elements)
    return marked.repeat_interleave(-(-like.numel() // marked.numel()))[: like.numel()]


def _bytes(tensor: Tensor) -> Tensor:
    """Return all memory of a tensor's storage."""
    storage = tensor.untyped_storage()
    with torch.no_grad(), torch._C.DisableTorchFunction():
        empty = torch.zeros(0, dtype=torch.uint8)
        return empty.set_(storage, 0, (storage.nbytes(),), (1,))


class _Check(AddressCheck):
    """Checks a launch whose programs may have to run one after the other.

    Attributes:
        before: the memory that it is given as it is before that; None where all of it
            is written, or programs ran at once, which read nothing unwritten.
    """

    def __init__(self, fresh: FreshMemory, given: Mapping[str, Any]) -> None:
        super().__init__(fresh.reach(given), hints=True)
        self.before: Before | None = None
        self._fresh, self._given = fresh, given

    def program(self, index: Program) -> None:
        """Begin a program of the launch."""
        if not self._order:
            self.before = self._fresh.before(self._given.values())
        super().program(index)


class _Checking:
    """Checks the launches of this process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pid = os.getpid()
        self._seen = faults.Seen()
        self._fresh = FreshMemory()
        self._lock = threading.RLock()
        self._around = ExitStack()  # never left, and kept lest it be collected
        self._written = 0.0

    def install(self, owner: Any) -> None:
        """Check what is launched, by a class of Triton's, until the process ends."""
        patches, around = Patches(), self._around
        around.enter_context(simulated.gpu())
        around.enter_context(watch.watch())
        self._fresh.follow(patches)
        patches.set(owner, "run", self._launching(owner.run))
        simulated.compile_to_triton(self._uncompiled)
        faults.at_end(self.write)

    def write(self) -> None:
        """Leave what was seen; in a fork what it saw itself."""
        with self._lock:
            if self._pid == os.getpid() and (self._seen.launches or self._seen.lacking):
                faults.leave(self._folder, faults.KIND, self._seen)
                self._written = time.monotonic()

    def _launching(self, run: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(run)
        def launch(function: Any, *args: Any, **kwargs: Any) -> Any:
            if os.getpid() != self._pid:
                self._pid, self._seen = os.getpid(), faults.Seen()
            if kwargs.get("warmup"):
                return _Compiled(function)
            code = function.fn.__code__
            kernel = faults.Kernel(code.co_filename, code.co_firstlineno, code.co_name)
            given = dict(zip(function.arg_names, args, strict=False)) | {
                name: v for name, v in kwargs.items() if name in function.arg_names
            }
            with self._lock:  # the interpreter has one grid for all threads
                try:
                    again = partial(run, function, *args, **kwargs)
                    return self._checked(kernel, given, again)
                finally:  # a process that is killed leaves nothing more
                    if time.monotonic() - self._written > WRITING_SECONDS:
                        self.write()

        return launch

    def _checked(
        self, kernel: faults.Kernel, given: Mapping[str, Any], run: Callable[[], Any]
    ) -> Any:
        launches, seen = watch.current(), self._seen
        programs = launches.programs
        launches.check = check = _Check(self._fresh, given)
        try:
            return run()
        except Exception as error:
            check.before = None  # made again, it would raise again
            if watch.is_interpreter_failure(error) and not launches.accesses:
                programs = launches.programs  # not all of them ran
                key = kernel, _first_line(error)
                seen.lacking[key] = seen.lacking.get(key, 0) + 1
            raise
        except BaseException:  # asked to end: nothing is launched once more for it
            launches.check = None
            raise
        finally:
            found, launches.check = launches.accesses, None
            unread, before = [a for a in found if a.where == "unwritten"], check.before
            if unread and before is not None and not before.decides(run):
                found = tuple(a for a in found if a not in unread)
            if launches.programs > programs:
                seen.launches[kernel] = seen.launches.get(kernel, 0) + 1
            if found:
                self._note(kernel, found, given)

    def _uncompiled(self, model: Any, error: Exception) -> None:
        """Count a call of what `torch.compile` could not make Triton kernels of."""
        code = getattr(getattr(model, "forward", model), "__code__", None)
        file, line = (code.co_filename, code.co_firstlineno) if code else ("", 0)
        name = getattr(model, "__name__", type(model).__name__)
        key = faults.Kernel(file, line, f"torch.compile({name})"), _first_line(error)
        with self._lock:
            self._seen.lacking[key] = self._seen.lacking.get(key, 0) + 1

    def _note(
        self, kernel: faults.Kernel, found: Iterable[Access], given: Mapping[str, Any]
    ) -> None:
        frame: FrameType | None = sys._getframe(1)
        shown = {
            name: shape_of(value, with_values=False)
            if isinstance(value, Tensor)
            else faults.Unknown(f"{value!r:.60}")
            for name, value in given.items()
        }
        while frame is not None and _is_between(frame):
            frame = frame.f_back
        caller = "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
        made = [
            faults.Fault(kernel, a, shown, caller, faults.test_of_now()) for a in found
        ]
        FOUND[:] = [fault.words for fault in made]
        for fault in made:
            self._seen.add(fault)


class _Compiled:
    """What compiling a kernel without a launch gives: it takes little of a GPU."""

    n_regs, n_spills, n_max_threads = 32, 0, 1024
    metadata = SimpleNamespace(shared=1024, num_warps=4, num_stages=1, num_ctas=1)

    def __init__(self, function: Any) -> None:
        self._function = function

    def _init_handles(self) -> None: ...

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return partial(self._function.run, grid=grid, warmup=False)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0]


def _is_between(frame: FrameType) -> bool:
    """Whether a frame lies between a launch and whoever wrote it."""
    module = str(frame.f_globals.get("__name__", ""))
    return module.partition(".")[0] in ("triton", "kfuzz", "contextlib", "functools")


def begin() -> None:
    """Check what this process launches from now on, if Triton is there."""
    with suppress(ImportError):
        from triton.runtime.interpreter import InterpretedFunction

        simulated.declare(os.environ[faults.GPU])
        _Checking(Path(os.environ[faults.FOLDER])).install(InterpretedFunction)
