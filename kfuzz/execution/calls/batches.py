"""Running a burst: one kernel on many members, with one check for all of them."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Final

import torch
from torch import Tensor

from kfuzz.core.recipe import TensorSpec
from kfuzz.execution.calls.batch_results import MemberResults
from kfuzz.execution.calls.invocation import Invocation
from kfuzz.execution.calls.occupied import by_kernel
from kfuzz.execution.calls.suspects import Lost, Suspects, Unsupported
from kfuzz.execution.device.devices import fault_of
from kfuzz.execution.device.surroundings import surroundings_of
from kfuzz.execution.interpreter.reach import Reach
from kfuzz.execution.interpreter.watch import watch, watches
from kfuzz.execution.memory.allocations import GuardedAllocations
from kfuzz.execution.memory.batch_rows import BurstArena as BurstArena
from kfuzz.execution.memory.batch_rows import MemberRows, fresh_poison
from kfuzz.execution.memory.batch_rows import row_bytes as row_bytes
from kfuzz.execution.memory.destinations import write_maps
from kfuzz.execution.memory.overreach import OVERREACH, Overreach
from kfuzz.execution.memory.prepared import Prepared
from kfuzz.execution.memory.windows import is_sparse
from kfuzz.execution.values.randomness import SEED, seeded

UNCHECKED: Final = "unchecked launch"
"""How the reason begins for which every member is suspect that one has failed."""

STEP_SECONDS: Final = 0.01
"""Time after which the watchdog is told that another call begins."""

APART: Final = 4
"""Members of a burst, member 0 among them, whose memory is as that of a case alone:
storages that begin and end with it. Each costs as much as many others."""

# Members whose calls are not as recorded, after which none is prepared any more.
_DEVIATIONS: Final = 8


@dataclass(frozen=True)
class BurstRun:
    """What the calls of a burst left.

    Attributes:
        outputs: results by output name, [members, *shape], on the device, contiguous;
            rows of members that failed hold anything.
        failed: per member that the host knows to be suspect, why.
        touched: bool [members] on the device: bytes changed that are no result's.
        unsupported: why the structure cannot be run as a burst; then nothing else
            is valid.
        lost: the fault for which the device can do nothing more, as
            `devices.fault_of` names it; then nothing can be read. Only what came to
            light during the calls: the device has not been waited for.
    """

    outputs: Mapping[str, Tensor] = field(default_factory=dict)
    failed: Mapping[int, str] = field(default_factory=dict)
    touched: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.bool))
    unsupported: str = ""
    lost: str = ""


def run_burst(
    asked: Invocation,
    values: Mapping[str, Tensor],
    *,
    arena: BurstArena,
    step: Callable[[], None],
) -> BurstRun:
    """Call a kernel once for each member, on guarded, poisoned memory.

    A suspect is a member to judge alone (`run.execute`); what is not suspect, and
    whose outputs are right, would have passed there but for what a call leaves to the
    ones after it. Fresh memory holds the NaN poison for even members, the finite one
    for odd ones. Memory comes from `member_rows`; allocations are guarded as far as
    `GuardedAllocations` does: by that mode in the first call, until bursts have shown
    that it is like the others; in these by prepared memory (`prepared`), where the
    first of them shows that all comes through torch's Python functions.

    Nothing waits for the device unless a call raises. Whoever waits for it next should
    do so under `occupied.by_kernel` and look for a fault.

    Args:
        asked: the kernel and the structure of the cases.
        values: per tensor [members, *shape], contiguous, on the arena's device.
        arena: memory to use; it is overwritten.
        step: called before the first call and whenever another begins and
            `STEP_SECONDS` have passed.

    Raises:
        HarnessError: if values do not fit the recipe, or elements overlap other than by
            a stride of 0.
    """
    why = _unsupported(asked.specs, arena.device)
    if why:
        return BurstRun(unsupported=why)
    try:
        with torch.no_grad():
            return _Burst(asked, values, arena, step).run()
    except Unsupported as error:
        return BurstRun(unsupported=error.why)
    except torch.OutOfMemoryError:
        return BurstRun(unsupported="memory ran out for so many members at once")
    except RuntimeError as error:
        # The kernel's exceptions are dealt with: this is kfuzz's own work, which may
        # be the first to meet what a launch did.
        fault = fault_of(arena.device)
        if fault:
            return BurstRun(lost=fault)
        if "DefaultCPUAllocator" in str(error):
            return BurstRun(unsupported="memory ran out for so many members at once")
        raise


class _Burst:
    """The calls of one burst."""

    def __init__(
        self,
        asked: Invocation,
        values: Mapping[str, Tensor],
        arena: BurstArena,
        step: Callable[[], None],
    ) -> None:
        self.asked = asked
        self.specs = asked.specs
        self.members = len(next(iter(values.values())))
        self.arena = arena
        self.device = arena.device
        self.surroundings = surroundings_of(arena.device)
        self.step = step
        places = tuple(asked.destinations)
        self.free = (*asked.inplace, *places)
        self.apart = apart(self.members)
        self.rows = MemberRows(
            arena, asked.specs, values, members=self.members,
            alignment=asked.alignment, around=asked.around, unwritten=places,
            apart=self.apart,
        )  # fmt: skip
        self.results = MemberResults(
            self.rows, asked.expected, device=self.device, inplace=asked.inplace,
            destinations=places,
        )  # fmt: skip
        self.arguments = list(zip(*self.rows.tensors.values(), strict=True))
        self.suspects = Suspects(self.device)
        self.overreach = Overreach(self.rows)
        self.strays: dict[int, Tensor] = {}
        self.unchecked = ""
        self.due = 0.0

    def run(self) -> BurstRun:
        """Call the kernel for all members."""
        if self.surroundings is not None:
            self.surroundings.forget_errors()
        try:
            with self._environment():
                prepared = self._calls()
        except Lost as lost:
            return BurstRun(lost=lost.fault)
        failed = {**self.results.failed, **self.suspects.why}
        if self.unchecked:  # by one of them
            failed = {n: failed.get(n, self.unchecked) for n in range(self.members)}
        return BurstRun(
            outputs=self.results.outputs,
            failed=dict(sorted(failed.items())),
            touched=self._touched(prepared),
        )

    @contextmanager
    def _environment(self) -> Iterator[None]:
        """What holds during all calls, as during one alone."""
        with ExitStack() as stack:
            stack.enter_context(watch(config=self.asked.config))
            stack.enter_context(by_kernel())
            stack.enter_context(seeded(self.device, SEED))
            stack.enter_context(self.overreach)
            yield

    def _calls(self) -> Prepared | None:
        """Call the kernel for all members, on prepared memory as soon as possible.

        The first call may import, compile and fill caches; what the second one
        allocates is what the others will. Once bursts have gone that way, the first
        call is taken to be like the others, until it is not.

        Returns:
            The prepared memory, if there is any.
        """
        to_record = True
        for number in range(self.members):
            left = range(number, self.members)
            if not self._goes_on(left):
                return None
            early = number > 0 or bool(self.arena.settled)
            replaces = early and not is_delicate()
            if replaces:
                self.overreach.begin()
            if to_record and replaces:
                prepared = Prepared(self.arena, number, len(left), self.apart)
                self.overreach.later = prepared.columns
                with prepared:
                    returned: dict[int, object] = {}
                    if not self._recorded_call(prepared, returned):
                        continue  # it raised: the next one is recorded
                    again: list[int] = []
                    if prepared.sound:
                        again = self._prepared_calls(prepared, returned)
                if prepared.sound:
                    self.unchecked = self._unchecked()
                    strangers = self.results.gather(returned, prepared.columns)
                    returned.clear()
                    self._call_again(sorted({*again, *strangers}))
                    return prepared
                to_record = False
                self.rows.restore(number)
            self._guarded_call(number)
        return None

    def _call(self, number: int) -> object:
        """Call the kernel for one member."""
        return self.asked.call(*self.arguments[number], **self.asked.scalars)

    def _recorded_call(self, prepared: Prepared, returned: dict[int, object]) -> bool:
        """Call the first of the members to prepare for; return whether it returned."""
        number = prepared.first
        self.overreach.seen = False
        try:
            with prepared.recording():
                returned[number] = self._call(number)
        except BaseException as error:
            self.suspects.raised(number, error)
            return False
        finally:
            prepared.recorded()
            if prepared.error is not None:
                raise prepared.error
        self._returned(number)
        if unchecked := self._unchecked():  # before a launch of kfuzz's raises it
            self.suspects.why[number] = unchecked
        return True

    def _returned(self, number: int) -> None:
        """Note that a call returned."""
        self.suspects.in_a_row = 0
        if self.overreach.seen:
            self.overreach.seen = False
            self.suspects.why[number] = OVERREACH

    def _prepared_calls(
        self, prepared: Prepared, returned: dict[int, object]
    ) -> list[int]:
        """Call the members left on prepared memory.

        Args:
            prepared: what the first of them asked for.
            returned: takes what each returned.

        Returns:
            Whom to call again.
        """
        call, scalars, arguments = self.asked.call, self.asked.scalars, self.arguments
        suspects, overreach = self.suspects, self.overreach
        clock, first, count = time.perf_counter, prepared.first, prepared.count
        again: list[int] = []
        for number in range(first + 1, self.members):
            if (suspects.in_a_row or clock() >= self.due) and not self._goes_on(
                range(number, self.members)
            ):
                break
            prepared.row, prepared.at = number - first, 0
            try:
                returned[number] = call(*arguments[number], **scalars)
            except BaseException as error:
                suspects.raised(number, error)
                self.overreach.seen = False
                if prepared.at <= count:
                    continue
                suspects.withdraw(number)  # until it is called as if alone
            suspects.in_a_row = 0
            if overreach.seen:  # asked here, or it would cost a call for each member
                self._returned(number)
            if prepared.at != count:
                again.append(number)
                if len(again) > _DEVIATIONS:
                    again += range(number + 1, self.members)
                    break
        for number in again:
            returned.pop(number, None)
        self._settle(first, len(again) > _DEVIATIONS)
        return again

    def _settle(self, first: int, failed: bool) -> None:
        """Note whether the first call of the next burst may be recorded."""
        if failed and first == 0:
            self.arena.settled = False
        elif not failed and self.arena.settled is None:
            self.arena.settled = True

    def _call_again(self, again: Sequence[int]) -> None:
        """Call members under guard whose calls were not as recorded."""
        self.suspects.in_a_row = 0
        for place, number in enumerate(again):
            if not self._goes_on(again[place:]):
                return
            self.rows.restore(number)
            self._guarded_call(number)

    def _guarded_call(self, number: int) -> None:
        """Call one member under the mode, and read what it returned."""
        guard = GuardedAllocations(self.device, fresh_poison(number))
        with ExitStack() as stack:
            launches = None
            if watches():
                launches = stack.enter_context(
                    watch(self._reach(number, guard), config=self.asked.config)
                )
            stack.enter_context(guard)
            self.overreach.seen = False
            try:
                returned = self._call(number)
            except BaseException as error:
                stack.close()
                self.suspects.raised(number, error)
                return
        self._returned(number)
        if unchecked := self._unchecked():  # before a launch of kfuzz's raises it
            self.suspects.why[number] = unchecked
        if launches is not None:
            self.suspects.watched(number, launches)
        self.results.take(number, returned)
        self.strays[number] = guard.changed()

    def _unchecked(self) -> str:
        """Return which failed launch a call left behind, "" if none; clear it.

        What need not be a launch's error is charged with wrong results only, which
        show by themselves.
        """
        around = self.surroundings
        left = None if around is None else around.take_unchecked()
        if left is None or not left.certain:
            return ""
        return f"{UNCHECKED}: {left.name}"

    def _reach(self, number: int, guard: GuardedAllocations) -> Reach:
        """Return what one member's launches may touch."""
        return Reach(
            self.specs,
            {name: all_[number] for name, all_ in self.rows.tensors.items()},
            guard,
            owned=[(self.rows.low, self.rows.high)],
            poison=self.asked.around,
            writes=write_maps(self.asked.destinations, fresh_poison(number)),
        )

    def _goes_on(self, left: Sequence[int]) -> bool:
        """Tell the watchdog of a call, or give up the members that are left."""
        if self.suspects.give_up(left):
            return False
        now = time.perf_counter()
        if now >= self.due:
            self.step()
            self.due = now + STEP_SECONDS
        return True

    def _touched(self, prepared: Prepared | None) -> Tensor:
        """Return in whose calls bytes changed that are no result's."""
        touched = self.rows.touched(free=self.free)
        own = None if prepared is None else prepared.touched()
        if prepared is not None and own is not None:
            touched[prepared.first :].logical_or_(own)
        for number, stray in self.strays.items():
            touched[number].logical_or_(stray)
        return touched


def apart(members: int) -> frozenset[int]:
    """Return which members of a burst have memory as a case alone has it.

    All where calls are watched one by one, which costs far more.
    """
    some = members if is_delicate() else APART
    return frozenset(i * members // some for i in range(min(some, members)))


def is_delicate() -> bool:
    """Whether calls have to be watched one by one, or torch's functions are traced.

    Many libraries import the tracer; only what has been traced may hold on to functions
    that prepared memory replaces.
    """
    return watches() or _has_traced()


def _has_traced() -> bool:
    """Whether torch.compile has traced anything in this process."""
    tracer = sys.modules.get("torch._dynamo.utils")
    return tracer is not None and tracer.counters["frames"]["total"] > 0


def _unsupported(specs: Mapping[str, TensorSpec], device: torch.device) -> str:
    """Return why the arguments cannot lie in rows, "" if they can."""
    for name, spec in specs.items():
        if is_sparse(spec, getattr(torch, spec.dtype).itemsize, device):
            return f"{name} spans far more memory than it has elements"
    return ""
