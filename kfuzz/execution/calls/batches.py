"""Running a batch: one kernel on many items, with one check for all of them."""

import math
import random
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import torch
from torch import Tensor

from kfuzz.core.errors import message_of
from kfuzz.core.recipe import TensorSpec, contiguous_strides
from kfuzz.cuda.driver import forget_errors, torch_runtime
from kfuzz.execution.calls import results
from kfuzz.execution.calls.compiling import by_kernel
from kfuzz.execution.calls.torch_state import put_back
from kfuzz.execution.device.backends import backend_of, fault_of
from kfuzz.execution.device.surroundings import surroundings_of
from kfuzz.execution.interpreter.watch import Launches, watch
from kfuzz.execution.memory.allocations import GuardedAllocations, Prepared
from kfuzz.execution.memory.placement import Placement, as_batch, is_sparse, place
from kfuzz.execution.memory.poison import ALTERNATING, Poison
from kfuzz.execution.memory.slots import (
    EXACT_BELOW,
    Arena,
    PoisonedSlot,
    Rows,
    guard_bytes,
    next_slot,
    raw_memory,
    slot_room,
)
from kfuzz.execution.values.fills import SEED, seeded, stretch
from kfuzz.numerics.run import AllocationTouch, Expected, Run, Touch, UncheckedLaunch

UNCHECKED: Final = "unchecked launch"
"""How the reason begins for which every item is suspect that one has failed."""

STEP_SECONDS: Final = 0.01
"""Time after which the watchdog is notified that another call begins."""

ISOLATED: Final = 4
"""Items of a batch, item 0 among them, whose memory is as that of a case alone:
storages that begin and end with it. Each costs as much as many others."""

RAISES: Final = 8
"""Exceptions in a row after which the items left are not run."""

# Items whose calls are not as recorded, after which none is prepared any more.
_DEVIATIONS: Final = 8


class Unsupported(Exception):
    """A structure cannot be run as a batch."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class _Lost(Exception):
    """The device can do nothing more, for a fault as `backends.fault_of` names it."""


@dataclass(frozen=True)
class BatchRun:
    """What the calls of a batch left.

    Attributes:
        outputs: results by output name, [items, *shape], on the device, contiguous;
            rows of items that failed hold anything.
        failed: per item that the host knows to be suspect, why.
        dropped: items that were not called for want of time; their rows hold anything.
        touched: bool [items] on the device: bytes changed that are no result's.
        unsupported: why the structure cannot be run as a batch; then nothing else
            is valid.
        lost: the fault for which the device can do nothing more, as
            `backends.fault_of` names it; then nothing can be read. Only what came to
            light during the calls: the device has not been waited for.
    """

    outputs: Mapping[str, Tensor] = field(default_factory=dict)
    failed: Mapping[int, str] = field(default_factory=dict)
    dropped: frozenset[int] = frozenset()
    touched: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.bool))
    unsupported: str = ""
    lost: str = ""


def run_batch(
    asked: results.Invocation,
    values: Mapping[str, Tensor],
    *,
    arena: Arena,
    step: Callable[[], None],
    seconds: float = math.inf,
) -> BatchRun:
    """Call a kernel once for each item, on guarded, poisoned memory.

    A suspect is an item to judge alone (`run.execute`); what is not suspect, and whose
    outputs are right, would have passed there but for what a call leaves to the ones
    after it. Placement, guard zones, poison, the reading of results and what holds
    during a call are those of a case alone. Fresh memory holds the NaN poison for even
    items, the finite one for odd ones. Allocations are guarded as far as
    `GuardedAllocations` does: by that mode in the first call; in the others by prepared
    memory, where the first of them shows that all comes through torch's Python
    functions.

    Nothing waits for the device unless a call raises. Whoever waits for it next should
    do so under `occupied.by_kernel` and look for a fault.

    Args:
        asked: the kernel and the structure of the cases.
        values: per tensor [items, *shape], contiguous, on the arena's device.
        arena: memory to use; it is overwritten.
        step: called before the first call and whenever another begins and
            `STEP_SECONDS` have passed.
        seconds: after which no further call begins, from the end of the first one on:
            that one may compile for all of them.

    Raises:
        HarnessError: if values do not fit the recipe, or elements overlap other than by
            a stride of 0.
    """
    why = _unsupported(asked.specs, arena.device)
    if why:
        return BatchRun(unsupported=why)
    try:
        return _Batch(asked, values, arena, step, seconds).run()
    except Unsupported as error:
        return BatchRun(unsupported=error.why)
    except torch.OutOfMemoryError:
        return BatchRun(unsupported="memory ran out for so many items at once")
    except RuntimeError as error:
        # The kernel's exceptions are dealt with: this is kfuzz's own work, which may
        # be the first to meet what a launch did.
        fault = fault_of(arena.device)
        if fault:
            return BatchRun(lost=fault)
        if "DefaultCPUAllocator" in message_of(error):
            return BatchRun(unsupported="memory ran out for so many items at once")
        raise


class _Batch:
    """The calls of one batch."""

    def __init__(
        self,
        asked: results.Invocation,
        values: Mapping[str, Tensor],
        arena: Arena,
        step: Callable[[], None],
        seconds: float,
    ) -> None:
        self.asked = asked
        self.items = len(next(iter(values.values())))
        self.arena = arena
        self.device = arena.device
        self.step = step
        self.isolated = isolated(self.items)
        self.placement = Placement(
            arena, asked.specs, values, items=self.items, alignment=asked.alignment,
            around=asked.around, unwritten=asked.destinations, fresh=ALTERNATING,
            isolated=self.isolated,
        )  # fmt: skip
        self.results = results.BatchResults(asked, self.placement, self.device)
        self.arguments = list(zip(*self.placement.every.values(), strict=True))
        # Why items are suspect, and the calls that raised since the last that returned.
        self.suspects: dict[int, str] = {}
        self.in_a_row = 0
        self.strays: dict[int, Tensor] = {}
        self.launches = Launches()
        self.unchecked = ""
        self.due = 0.0
        self.seconds, self.until = seconds, math.inf
        self.dropped: set[int] = set()

    def run(self) -> BatchRun:
        """Call the kernel for all items."""
        try:
            with (
                watch(config=self.asked.config) as self.launches,
                results.environment(self.device),
            ):
                prepared = self._calls()
                self._check_unwatched()
        except _Lost as lost:
            return BatchRun(lost=str(lost))
        failed = {**self.results.failed, **self.suspects}
        if self.unchecked:  # by one of them
            failed = {n: failed.get(n, self.unchecked) for n in range(self.items)}
        return BatchRun(
            outputs=self.results.outputs,
            failed=dict(sorted(failed.items())),
            dropped=frozenset(self.dropped),
            touched=self._touched(prepared),
        )

    def _calls(self) -> Prepared | None:
        """Call the kernel for all items, on prepared memory as soon as possible.

        The first call may import, compile and fill caches; what the second one
        allocates is what the others will.

        Returns:
            The prepared memory, if there is any.
        """
        to_record = True
        for number in range(self.items):
            if number == 1:
                self.until = time.perf_counter() + self.seconds
            left = range(number, self.items)
            if not self._goes_on(left):
                return None
            if number > 0 and to_record and not has_traced():
                prepared = Prepared(self.device, number, len(left), self.isolated)
                with prepared:
                    returned: dict[int, object] = {}
                    if not self._recorded_call(prepared, returned):
                        continue  # it raised: the next one is recorded
                    again: list[int] = []
                    if prepared.sound:
                        again = self._prepared_calls(prepared, returned)
                if prepared.sound:
                    around = surroundings_of(self.device)
                    if around is not None:
                        self.unchecked = _described(around.take_unchecked())
                    strangers = self.results.gather(returned, prepared.columns)
                    returned.clear()
                    self._call_again(sorted({*again, *strangers}))
                    return prepared
                to_record = False
                self.placement.restore(number)
            self._guarded_call(number)
        return None

    def _call(self, number: int) -> object:
        """Call the kernel for one item."""
        return self.asked.call(*self.arguments[number], **self.asked.scalars)

    def _recorded_call(self, prepared: Prepared, returned: dict[int, object]) -> bool:
        """Call the first of the items to prepare for; return whether it returned."""
        number = prepared.first
        try:
            made = results.attempt(
                partial(self._call, number), self.device, prepared.recording()
            )
        finally:
            prepared.recorded()
            if prepared.error is not None:
                raise prepared.error
        if self._returned(number, made):
            returned[number] = made.returned
        return number in returned

    def _prepared_calls(
        self, prepared: Prepared, returned: dict[int, object]
    ) -> list[int]:
        """Call the items left on prepared memory.

        Returns:
            Which to call again.
        """
        call, scalars, arguments = self.asked.call, self.asked.scalars, self.arguments
        clock = time.perf_counter
        first, count = prepared.first, prepared.count
        again: list[int] = []
        for number in range(first + 1, self.items):
            if (self.in_a_row or clock() >= self.due) and not self._goes_on(
                range(number, self.items)
            ):
                break
            prepared.row, prepared.at = number - first, 0
            try:
                returned[number] = call(*arguments[number], **scalars)
            except BaseException as error:
                self._returned(
                    number, results.Call(raised=results.caught(error, self.device))
                )
                if prepared.at <= count:
                    continue
                self.suspects.pop(number, None)  # until it is called as if alone
            self.in_a_row = 0
            if prepared.at != count:
                again.append(number)
                if len(again) > _DEVIATIONS:
                    again += range(number + 1, self.items)
                    break
        for number in again:
            returned.pop(number, None)
        return again

    def _call_again(self, again: Sequence[int]) -> None:
        """Call items under guard whose calls were not as recorded."""
        self.in_a_row = 0
        for at, number in enumerate(again):
            if not self._goes_on(again[at:]):
                return
            self.placement.restore(number)
            self._guarded_call(number)

    def _guarded_call(self, number: int) -> None:
        """Call one item under the mode, and read what it returned."""
        guard = GuardedAllocations(self.device, ALTERNATING[number % 2])
        made = results.attempt(partial(self._call, number), self.device, guard)
        self._check_unwatched()
        if self._returned(number, made):
            self.results.take(number, made.returned)
            self.strays[number] = guard.changed()

    def _returned(self, number: int, made: results.Call) -> bool:
        """Note why an item is suspect for its call; return whether it returned.

        Raises:
            _Lost: if the device can do nothing more.
            Unsupported: if the backend cannot run the first item.
        """
        if (raised := made.raised) is not None:
            if raised.lost:
                raise _Lost(raised.fault)
            self.in_a_row += 1
            why = f"raised {raised.type}: {raised.message}"
            if raised.backend or raised.gpu:
                text = raised.message if raised.backend else raised.gpu
                if number == 0:  # for all items, then
                    raise Unsupported(text)
                why = f"backend: {text}"
            self.suspects[number] = why
            return False
        self.in_a_row = 0
        if why := _described(made.unchecked):
            self.suspects[number] = why
        return True

    def _check_unwatched(self) -> None:
        """Check that nothing ran that has to be watched call by call.

        Raises:
            Unsupported: if Triton's interpreter ran a program.
        """
        if self.launches.programs:
            raise Unsupported("Triton's interpreter watches every call by itself")

    def _goes_on(self, left: Collection[int]) -> bool:
        """Tell the watchdog of a call, or give up the items that are left."""
        if self.in_a_row > RAISES:
            why = f"not run: {self.in_a_row} calls before it raised"
            self.suspects.update(dict.fromkeys(left, why))
            return False
        now = time.perf_counter()
        if now >= self.until:
            self.dropped.update(left)
            return False
        if now >= self.due:
            self.step()
            self.due = now + STEP_SECONDS
        return True

    def _touched(self, prepared: Prepared | None) -> Tensor:
        """Return in whose calls bytes changed that are no result's."""
        free = (*self.asked.inplace, *self.asked.destinations)
        touched = self.placement.touched(free)
        own = None if prepared is None else prepared.touched()
        if prepared is not None and own is not None:
            touched[prepared.first :].logical_or_(own)
        for number, stray in self.strays.items():
            touched[number].logical_or_(stray)
        return touched


def isolated(items: int) -> frozenset[int]:
    """Return which items of a batch have memory as a case alone has it.

    All where calls are guarded one by one, which costs far more.
    """
    some = items if has_traced() else ISOLATED
    return frozenset(i * items // some for i in range(min(some, items)))


def has_traced() -> bool:
    """Whether torch.compile has traced anything in this process.

    Many libraries import the tracer; only what has been traced may hold on to functions
    that prepared memory replaces.
    """
    tracer = sys.modules.get("torch._dynamo.utils")
    return tracer is not None and tracer.counters["frames"]["total"] > 0


def _described(left: UncheckedLaunch | None) -> str:
    """Return why a failed launch that a call left behind makes it suspect, "" if not.

    What need not be a launch's error is reported as wrong results only, which show by
    themselves.
    """
    return f"{UNCHECKED}: {left.name}" if left is not None and left.certain else ""


def _unsupported(specs: Mapping[str, TensorSpec], device: torch.device) -> str:
    """Return why a structure cannot be run as a batch, "" if it can."""
    for name, spec in specs.items():
        if is_sparse(spec, getattr(torch, spec.dtype).itemsize, device):
            return f"{name} spans far more memory than it has elements"
    return ""


# Arguments of billions of elements: placed, filled and compared in parts.
#
# Nothing but the arguments and the results themselves is as large as they are.

SLICE_ELEMENTS: Final = 1 << 23
"""Elements that are made, and judged, at once: 64 MiB of float64."""

WORKING_BYTES: Final = 64 * 8 * SLICE_ELEMENTS
"""What judging a slice may take: some sixty tensors of float64."""

MARGIN_BYTES: Final = 1 << 30
"""Left free on the device: contexts of other processes, compiled code."""


def lacking(wanted: int, device: torch.device) -> str:
    """Return what is missing for so many bytes beside the judge's, "" if nothing is."""
    free = backend_of(device).free_bytes(device)
    if free is None or wanted + WORKING_BYTES + MARGIN_BYTES <= free:
        return ""
    needed = (wanted + WORKING_BYTES + MARGIN_BYTES) / 2**30
    return f"needs {needed:.3g} GiB of memory, {free / 2**30:.3g} GiB are free"


class LargePlacement:
    """Contiguous arguments, each in memory of its own between guard zones.

    Attributes:
        tensors: the arguments by name; their elements are not set.
        elements: the same memory, flat.
    """

    def __init__(
        self,
        specs: Mapping[str, TensorSpec],
        *,
        device: torch.device,
        alignment: int,
        poison: Poison,
    ) -> None:
        """Allocate the arguments and poison the zones.

        Args:
            specs: contiguous recipes without offset.
            device: where they lie.
            alignment: bytes; as for `memory.place`.
            poison: what the zones hold.
        """
        self._guarded: dict[str, PoisonedSlot] = {}
        self.tensors: dict[str, Tensor] = {}
        # What a kernel does to the tensor objects that it is given is its own affair.
        self.elements: dict[str, Tensor] = {}
        for name, spec in specs.items():
            dtype: torch.dtype = getattr(torch, spec.dtype)
            nbytes, align = spec.numel * dtype.itemsize, max(alignment, dtype.itemsize)
            guard, exact = guard_bytes(nbytes), align < EXACT_BELOW
            memory = raw_memory(slot_room(nbytes, guard, align), device)
            slot = next_slot(
                memory.data_ptr(), 0, nbytes, guard, alignment=align, exact=exact
            )
            guarded = PoisonedSlot(
                Rows(memory), slot, dtype, (poison,), zones_only=True
            )
            form = dtype, spec.shape, contiguous_strides(spec.shape), 0
            self._guarded[name] = guarded
            self.tensors[name] = guarded.rows.isolated(0, slot, form)
            self.elements[name] = self.tensors[name].data.view(-1)

    def touches(self) -> list[Touch]:
        """Return what was written around the arguments; waits for the device."""
        return [
            Touch(name, *stray, guarded.dtype.itemsize)
            for name, guarded in self._guarded.items()
            for stray in guarded.strays()
        ]


def fill_stretches(
    elements: Tensor, spec: TensorSpec, *, at_once: int, step: Callable[[], None]
) -> None:
    """Write an argument's values a stretch at a time."""
    for start in range(0, spec.numel, at_once):
        step()
        stop = min(start + at_once, spec.numel)
        elements[start:stop] = stretch(spec, start, stop, elements.device)


def run_large(
    call: Callable[[], object], *, device: torch.device, fresh: Poison, config: int = 0
) -> tuple[results.Call, tuple[AllocationTouch, ...]]:
    """Call a kernel once; its own allocations are guarded while they fit.

    Args:
        call: takes nothing.
        device: where it runs.
        fresh: what memory holds that the kernel allocates.
        config: which autotune configuration runs, modulo their number.

    Returns:
        What came of it, its results in its own memory, and the writes around the
        kernel's own allocations.
    """
    free = backend_of(device).free_bytes(device)
    limit = sys.maxsize if free is None else max(free - WORKING_BYTES, 0)
    allocations = GuardedAllocations(device, fresh, limit=limit)
    with watch(config=config):
        made = results.call_once(call, device, allocations)
    return made, tuple(allocations.touches()) if made.raised is None else ()


def wanted_bytes(
    specs: Mapping[str, TensorSpec], expected: Mapping[str, Expected]
) -> int:
    """Return the bytes of arguments and results.

    Results count twice: memory is taken plainly, then between guard zones.
    """
    total = 0
    for spec in specs.values():
        total += spec.numel * getattr(torch, spec.dtype).itemsize
    for wanted in expected.values():
        total += 2 * torch.Size(wanted.shape).numel() * wanted.dtype.itemsize
    return total


# Calls of a kernel that overlap: from several threads, or beside a busy stream.

SWITCH_SECONDS: Final = 1e-6
"""How often threads take turns in Python: as often as can be, so that calls mesh."""

CALLS: Final = 4
"""Calls that a thread makes one after the other once it is started."""

PAUSES: Final = 0.25
"""Share of calls and returns, from Python, at which a thread lets others run."""

DELAY_CYCLES: Final = 20_000_000
"""Clock cycles, some 10 ms, that a GPU's stream waits before arguments are written."""


@dataclass(frozen=True)
class Overlapping:
    """What calls that overlap have in common.

    Attributes:
        asked: the kernel and the form of its arguments.
        device: where it runs.
        fresh: what destinations hold.
    """

    asked: results.Invocation
    device: torch.device
    fresh: Poison


class PlacedCall:
    """A kernel with its arguments where they lie; nothing guards what it allocates."""

    def __init__(
        self, common: Overlapping, values: Mapping[str, Tensor], arena: Arena
    ) -> None:
        asked, self.common = common.asked, common
        self._placement = place(
            asked.specs, values, device=common.device, alignment=asked.alignment,
            poison=asked.around, arena=arena, unwritten=asked.destinations,
            fresh=common.fresh,
        )  # fmt: skip
        self._reader = results.Reader(asked, self._placement, common.device)

    def write(self, values: Mapping[str, Tensor], *, poison: bool = False) -> None:
        """Give the arguments other elements, and poison the destinations if asked."""
        self._placement.write(as_batch(values), (self.common.fresh,) if poison else ())

    def call(self) -> object:
        """Call the kernel, and return what it does."""
        asked = self.common.asked
        returned = asked.call(*self._placement.tensors.values(), **asked.scalars)
        # A launch that failed unseen was reported where it was, if it was to be: torch
        # would raise its error from the next operator.
        forget_errors(torch_runtime())
        return returned

    def read(self, returned: object) -> Run:
        """Copy the results of a call."""
        read = self._reader.read(returned)
        return Run(
            outputs=read.outputs, metadata=read.problem,
            results=read.results,
        )  # fmt: skip

    def run(self) -> Run:
        """Call the kernel once and copy its results."""
        try:
            with torch.no_grad():
                return self.read(self.call())
        except BaseException as error:
            return Run(raised=results.raised_by(error, self.common.device))


def in_threads(
    common: Overlapping, data: Sequence[Mapping[str, Tensor]], rounds: int
) -> Iterator[tuple[int, Run]]:
    """Yield what each of several threads got that call a kernel at the same time.

    Each has its own data in its own memory; an event starts all of them together.
    Memory that they allocate is not guarded, and nothing is looked for around it.

    Args:
        common: the kernel and the form of its arguments.
        data: per thread the logical elements of its arguments.
        rounds: how often they are started, for `CALLS` calls each.

    Yields:
        The number of the thread and the results of a call, round after round.
    """
    placed = [PlacedCall(common, values, Arena(common.device)) for values in data]
    for _ in range(rounds):
        runs: list[list[Run]] = [[] for _ in data]
        start = threading.Event()

        def work(
            number: int, start: threading.Event = start, runs: list[list[Run]] = runs
        ) -> None:
            start.wait()
            with _pausing(number):
                for _ in range(CALLS):
                    if common.asked.inplace:
                        placed[number].write(data[number])
                    runs[number].append(placed[number].run())

        threads = [
            threading.Thread(target=work, args=(number,), daemon=True)
            for number in range(len(data))
        ]
        with by_kernel(), _meshing(), seeded(common.device, SEED), put_back():
            for thread in threads:
                thread.start()
            start.set()
            for thread in threads:
                thread.join()
        for number, made in enumerate(runs):
            for run in made:
                yield number, run


def on_side_stream(
    common: Overlapping, data: Sequence[Mapping[str, Tensor]], rounds: int
) -> Iterator[tuple[int, Run]]:
    """Yield what a kernel gets on a GPU's stream that has yet to write its arguments.

    The arguments hold the next data's elements. A stream of its own waits, writes
    this data's, runs the kernel and copies its results; no event joins it to any
    other stream. What the kernel does on another one then comes too early.

    Args:
        common: the kernel and the form of its arguments, on a GPU.
        data: several data, taken in turn.
        rounds: how often each is taken.

    Yields:
        The number of the data and its results, round after round.
    """
    arena = Arena(common.device)
    stream = torch.cuda.Stream(common.device)  # type: ignore[no-untyped-call]
    for turn in range(rounds * len(data)):
        number = turn % len(data)
        placed = PlacedCall(common, data[(number + 1) % len(data)], arena)
        torch.cuda.synchronize(common.device)
        with by_kernel(), put_back():
            with torch.cuda.stream(stream), seeded(common.device, SEED):
                torch.cuda._sleep(DELAY_CYCLES)  # type: ignore[no-untyped-call]
                placed.write(data[number])
                # To measure would wait for the stream.
                with watch(config=common.asked.config):
                    run = placed.run()
            torch.cuda.synchronize(common.device)
        yield number, run


@contextmanager
def _pausing(number: int) -> Iterator[None]:
    """Have the thread let others run at some of its calls of functions.

    Two operators of a wrapper follow one another in microseconds, faster than a busy
    machine wakes another thread.
    """
    chance = random.Random(number)

    def pause(frame: object, event: str, argument: object) -> None:
        if chance.random() < PAUSES:
            time.sleep(0)

    sys.setprofile(pause)
    try:
        yield
    finally:
        sys.setprofile(None)


@contextmanager
def _meshing() -> Iterator[None]:
    """Have Python's threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
