"""The process that proves, as the search has it: what it gets, and what it sends."""

import inspect
import math
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kfuzz.contracts.binding import BoundKernel, Derived
from kfuzz.core.budget import SizeBudget
from kfuzz.core.event import KernelProof
from kfuzz.core.recipe import Case, poison_of
from kfuzz.evaluation.evaluator import Evaluator, Setting
from kfuzz.execution.calls.patches import Patches
from kfuzz.execution.interpreter import watch
from kfuzz.execution.interpreter.programs import shaped
from kfuzz.execution.launches.building import beside
from kfuzz.execution.launches.capture import (
    UNKNOWN,
    Captured,
    ConstArgument,
    Launch,
    Recorder,
    TensorArgument,
    sizes_of,
)
from kfuzz.execution.processes.child import LOOK
from kfuzz.features.prove.ir.values import ATOMIC, LOAD, STORE

if TYPE_CHECKING:
    from kfuzz.features.prove.sampling import Watch


ENTRY: Final = "kfuzz.features.prove.proving:serve"
_AT_ONCE: Final = 8


class Task(NamedTuple):
    """What is to be proved.

    Attributes:
        targets: as on the command line.
        root: the project.
        seconds: for each kernel.
    """

    targets: tuple[str, ...]
    root: Path
    seconds: float


class Counterexample(NamedTuple):
    """A case on which a property seems not to hold, with the source's line and why."""

    property: str
    case: Case
    line: int
    why: str


@dataclass
class Outcome:
    """What came of one kernel.

    Attributes:
        proof: what is proved; counterexamples are open until they are run.
        counterexamples: cases to run, those of one property together, small ones first.
        watch: the premises, None where nothing is proved.
    """

    proof: KernelProof
    counterexamples: list[Counterexample] = field(default_factory=list)
    watch: "Watch | None" = None


class Proving:
    """The process, and the outcomes that it has sent. Threads may share it.

    Args:
        task: what to prove.
        idle: whether it is to leave the processors to others.

    Attributes:
        failed: why it proves nothing, "" while it may.
    """

    def __init__(self, task: Task, *, idle: bool = False) -> None:
        self.failed = ""
        self._outcomes: dict[str, Outcome] = {}
        # By kernel, the cases that were handed over; how many of them were sent, and
        # were held against the premises; and which one of these a launch breaks.
        self._cases: dict[str, Sequence[Case]] = {}
        self._sent: Counter[str] = Counter()
        self._seen: Counter[str] = Counter()
        self._broken: dict[str, str] = {}
        self._asked = self._done = False
        self._lock = threading.RLock()
        self._process = beside(ENTRY, interpret=False, idle=idle)
        self._process.send(task)

    def outcome(
        self, node_id: str, *, stop: threading.Event, until: float = math.inf
    ) -> Outcome | None:
        """Return what came of a kernel, waiting for it; None where nothing did.

        Args:
            node_id: the kernel.
            stop: ends the wait.
            until: `time.monotonic()` at which it ends.
        """
        self._receive(0.0)
        while node_id not in self._outcomes and not self._done:
            if stop.is_set() or time.monotonic() >= until:
                break
            self._receive()
        return self._outcomes.get(node_id)

    def watch(self, node_id: str, cases: Sequence[Case]) -> None:
        """Have the launches of a kernel's cases held against its premises.

        Args:
            node_id: the kernel.
            cases: all of them so far: those that are new are taken.
        """
        with self._lock:
            self._cases[node_id] = cases
            self._receive(0.0)

    def watched(self, node_id: str, *, until: float) -> tuple[int, str]:
        """Return how many cases were held against premises, and what one breaks.

        Args:
            node_id: the kernel.
            until: `time.monotonic()` until which those that are left are waited for.
        """
        with self._lock:
            count = len(self._cases.get(node_id, ()))
            while not self.failed and not self._broken.get(node_id):
                if self._seen[node_id] >= count or time.monotonic() >= until:
                    break
                self._receive()
            return self._seen[node_id], self._broken.get(node_id, "")

    def enough(self) -> None:
        """Have no further kernel proved."""
        if not self._done:
            self._process.send(None)

    def close(self) -> None:
        """End the process."""
        self._process.close()

    def _receive(self, seconds: float = LOOK) -> None:
        """Take what the process has sent, and send it what is to be watched."""
        with self._lock:
            try:
                while self._process.ready(seconds):
                    self._take(self._process.receive())
                    seconds = 0.0
            except (EOFError, OSError):
                self._done = True
                self.failed = self.failed or "the process that proves ended"
                return
            if self._asked:
                return
            for node_id, cases in self._cases.items():
                first = self._sent[node_id]
                if first < len(cases) and node_id in self._outcomes:
                    # Few at once: it takes them between one proof's parts.
                    sent = tuple(cases[first : first + _AT_ONCE])
                    self._sent[node_id] += len(sent)
                    self._process.send((node_id, sent))
                    self._asked = True
                    return

    def _take(self, message: object) -> None:
        match message:
            case None:
                self._done = True
            case str():
                self._done, self.failed = True, message
            case (str() as name, int() as count, str() as broken):
                self._asked = False
                self._seen[name] += count
                self._broken[name] = self._broken.get(name) or broken
            case (str() as name, Outcome() as outcome):
                self._outcomes[name] = outcome


# What the interpreter records of real launches, access by access.
#
# In a process whose kernels are interpreted. The graph of a kernel has to say the same
# of the same launch: where it does not, one of the two is wrong, and nothing is proved.

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
    watch.current().together = False  # what one program touches is asked for
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
            addresses = np.asarray(ptrs)[shaped(mask, ptrs.shape).astype(np.bool_)]
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
