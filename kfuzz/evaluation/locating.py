"""Which line of a kernel a finding comes from, found by intervention.

One expression of its source is changed at a time. Where the failing cases pass with
the change and those that passed still do, the line is where it goes wrong.
"""

import linecache
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from hashlib import sha256
from itertools import chain
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple, Protocol

from torch import Tensor

from kfuzz.contracts.binding import Derived
from kfuzz.contracts.classes import LATER
from kfuzz.contracts.language import Probe
from kfuzz.contracts.suite import judge
from kfuzz.core.budget import Depth
from kfuzz.core.errors import KfuzzError
from kfuzz.core.finding import Line, relative
from kfuzz.core.recipe import Case, poison_of
from kfuzz.core.verdict import Failure, Kind, Signature
from kfuzz.evaluation.calling import unsupported_because
from kfuzz.evaluation.edits import Code, Edit, codes_of, edits_of, traced
from kfuzz.evaluation.evaluator import Evaluator
from kfuzz.numerics.accumulation import as_integers, identical
from kfuzz.targets.cuda_source import CudaSource

OF_MEMORY: Final = frozenset({Kind.READ_OUTSIDE, Kind.WRITE_OUTSIDE})
# Cases besides the minimum that a change is held against, of either outcome.
MOST_FAILING: Final = 8
MOST_PASSING: Final = 12
# A changed kernel may take so many times what it took before, and so long at least.
_SLOWER: Final = 4.0
_LEAST_SECONDS: Final = 0.5
# Nothing is tried where there is time for fewer changes.
_LEAST_TRIED: Final = 4
# Nothing is certain from here on: what is missing may be added at several lines.
_ADDING: Final = 2.0
# Nor where fewer cases fail: much may mend these by chance.
_LEAST_FAILING: Final = 3
# A change that mends the minimum names its line if this is its share at least.
_NEARLY: Final = 0.5
# Of the time so much goes to sorting the other cases at most.
_SORTING: Final = 0.25
# What costs so much more than the least that mends it is not tried.
_MARGIN: Final = 0.6
# Of changes that come to the same the shortest is taken that costs so much more.
_FORM: Final = 0.25
NEIGHBOURS: Final = 50
"""Cases of either outcome that a patch is held against."""


class Draft(NamedTuple):
    """A change that lets every case pass that it was held against.

    Attributes:
        line: where it is, and what shows that.
        path: of the file.
        before: its text.
        after: the same with the change.
    """

    line: Line
    path: str
    before: str
    after: str


class Located(NamedTuple):
    """What came of looking for a line.

    Attributes:
        line: the line, None where none was found.
        drafts: changes that mend it, where these were asked for.
        why: why no change was tried, or not all, "" where all were.
    """

    line: Line | None = None
    drafts: tuple[Draft, ...] = ()
    why: str = ""


class Change(Protocol):
    """A change that can be tried, as an `Edit` is."""

    @property
    def cost(self) -> float:
        """How far it is from the original: the least is tried first."""

    @property
    def file(self) -> str:
        """The file that it is in."""

    @property
    def line(self) -> int:
        """The line, counted from 1."""

    @property
    def column(self) -> int:
        """Where on the line, counted from 0."""

    @property
    def words(self) -> str:
        """What takes the place of what."""

    def made(self) -> AbstractContextManager[bool]:
        """Have calls in the block run the changed kernel; whether they can."""


class Overdue(BaseException):
    """A block takes longer than it may; no `Exception`, which a file may handle."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise `Overdue` where the block takes longer, in the main thread alone.

    Again and again: what it interrupts may swallow it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    is_over = False

    def end(number: int, frame: Any) -> None:
        if not is_over:
            raise Overdue

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield
    finally:
        is_over = True
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# Whether a case conforms, None where it is not judged, and why not.
_Outcome = tuple[bool | None, Failure | None]
_Judging = Callable[[Case], _Outcome]


class _Cases:
    """Judges cases again and again; what is accepted of each is computed once.

    Attributes:
        deep: whether one call does not show it.
        until: `time.monotonic()` at which calls end.
        cut_short: whether a call was ended in the middle.
        left: a hash of what the last call left, "" where that is not known.
    """

    def __init__(self, evaluator: Evaluator, *, deep: bool, limits: bool) -> None:
        self._evaluator = evaluator
        self.deep, self._limits = deep, limits
        self._posed: dict[int, Any] = {}
        # How a case is judged, the cheapest first, and how long that took.
        self._steps: dict[int, list[tuple[_Judging, float]]] = {}
        self._held: list[Case] = []
        self.until = math.inf
        self.cut_short = False
        self.left = ""

    def first(self, case: Case) -> _Outcome:
        """Return what the kernel as it is does on a case, as `called`."""
        self._held.append(case)  # its number stays its own
        steps = self._steps[id(case)] = []
        made: _Outcome = None, None
        for judged in (self.called, self._examined)[: 1 + self.deep]:
            began, before = time.monotonic(), made[0]
            made = judged(case)
            if steps and made[0] is not before:
                steps.clear()  # one call does not show it
            steps.append((judged, time.monotonic() - began))
        return made

    def passes(self, case: Case) -> bool:
        """Whether a case of which `first` was asked conforms."""
        for judged, seconds in self._steps[id(case)]:
            limit = min(_SLOWER * seconds, self.until - time.monotonic())
            # What fails ends at the first call that shows it, what passes makes all.
            limit = max(limit, _LEAST_SECONDS * (_SLOWER if self.deep else 1))
            try:
                with limited(limit) if self._limits else nullcontext():
                    if judged(case)[0] is not True:
                        return False
            except Overdue:
                self.cut_short = True
                return False
            except KfuzzError:
                return False
        return True

    def _examined(self, case: Case) -> _Outcome:
        """Return what further calls of a case show besides, as `called`."""
        report = self._evaluator.judge(case, Depth.SEARCH)
        if report.error or report.unsupported or report.refusal:
            return None, None
        return report.failure is None, report.failure

    def called(self, case: Case) -> _Outcome:
        """Return whether a case conforms, None where it is not judged, and why not."""
        known = self._posed.get(id(case))
        if known is None:
            known = self._posed[id(case)] = self._pose(case)
        evidence, expected, derived, caller = known
        base = caller.run(derived, expected, poison_of(derived.case))
        if unsupported_because(base):
            return None, None
        bits = (as_integers(output).numpy() for output in base.outputs.values())
        self.left = sha256(b"".join(each.tobytes() for each in bits)).hexdigest()
        evidence = replace(evidence, runs={Probe.BASE: base})
        _, failure = judge(evidence, self._evaluator.setting.classes)
        if failure is not None:
            return False, failure
        judged = base.comparable or evidence.acceptance is None
        return (True if judged else None), None

    def _pose(self, case: Case) -> tuple[Any, ...]:
        case = self._evaluator.settled(case)
        derived = Derived(case, self._evaluator.values(case))
        caller = self._evaluator.caller(case)
        return *caller.before_run(derived), derived, caller


class Locating:
    """Looks for the line of one finding.

    Attributes:
        codes: the functions that are changed.
        tried: how many changes were run.
        fixes: those with which every case conforms, the least first.
        nearly: those with which the minimum does, each with the share of failing cases
            that do, times that of the others.
        complete: whether all that were to be tried were.
        why: why none was, or not all, "" where all were.
    """

    limits = True
    """Whether a call is ended in the middle that takes far longer than before."""

    def __init__(self, evaluator: Evaluator, signature: Signature, root: Path) -> None:
        self._evaluator = evaluator
        self._signature = signature
        self._root = root
        deep = signature.kind in LATER
        self._cases = _Cases(evaluator, deep=deep, limits=self.limits)
        self._failing: list[Case] = []
        self._passing: list[Case] = []
        self._failure: Failure | None = None
        self._rest: Iterator[Case] = iter(())
        self._used: list[Case] = []
        self.why = ""
        self.codes: list[Code] = []
        self.tried = 0
        self.fixes: list[Change] = []
        self.nearly: list[tuple[float, Change]] = []
        self.complete = False

    def line(self, cases: Sequence[Case], deadline: float) -> Line | None:
        """Return the line; None where none was found.

        Args:
            cases: the minimum, then others.
            deadline: `time.monotonic()` at which to stop.
        """
        self._cases.until = deadline
        self.why = self._opened(cases[0])
        if self.why:
            return None
        self._cases.deep |= bool(self._cases.called(cases[0])[0])
        outcome, self._failure = self._cases.first(cases[0])
        if outcome is not False:
            self.why = "it does not show on the CPU, in Triton's interpreter"
            return None
        self._failing = [cases[0]]
        began = time.monotonic()
        sorting = began + _SORTING * (deadline - began)
        self._rest = iter(cases[1:])
        for case in self._rest:
            self._sort(case)
            enough = len(self._failing) > MOST_FAILING
            enough = enough and len(self._passing) >= MOST_PASSING
            if enough or time.monotonic() >= sorting:
                break
        began = time.monotonic()
        self._cases.passes(cases[0])
        each = time.monotonic() - began
        if each * _LEAST_TRIED > deadline - began:
            self.why = f"in the interpreter its smallest case takes {each:.1f} s a call"
            return None
        changes = self._changes(of_memory=self._signature.kind in OF_MEMORY)
        self._try(changes, deadline)
        self._separate(deadline)
        line = self._named()
        if line is None and not self.complete:
            self.why = f"time ended after {self.tried:,} of {len(changes):,} changes"
        return line

    def _opened(self, minimum: Case) -> str:
        """Look at which functions run; return why none can be changed, or ""."""
        kernel = self._evaluator.kernel.function
        self._cases.called(minimum)  # what is accepted of it is known from now on
        self.codes = codes_of(kernel, lambda: self._cases.called(minimum))
        with traced(self.codes):
            self._cases.called(minimum)
        held = getattr(kernel, "__globals__", {}).values()
        if any(isinstance(each, CudaSource) for each in held):
            return "of kernels in CUDA C++ no line is looked for"
        return "" if self.codes else "it runs no function whose source is at hand"

    def _changes(self, *, of_memory: bool) -> Sequence[Change]:
        """Return the changes that are tried, the least first."""
        return edits_of(self.codes, of_memory=of_memory)

    def drafts(self, deadline: float) -> tuple[Draft, ...]:
        """Return changes that mend it, after `line`, the least first.

        Each is held against further cases, `NEIGHBOURS` in all where there are so many
        within the time. Of those at a line that leave the same bits there is one.

        Args:
            deadline: `time.monotonic()` at which to stop.
        """
        self._cases.until = deadline
        fixes = [edit for edit in self.fixes if isinstance(edit, Edit)]
        left = {edit: "" for edit in fixes if not edit.is_of_check}
        known, held = [*self._failing, *self._passing], 0
        for case in chain(known, self._used, self._rest):
            if held >= NEIGHBOURS or not left:
                break
            if time.monotonic() >= deadline:
                self.why = f"changes could not be held against {NEIGHBOURS} cases"
                return ()
            if held >= len(known):
                outcome, failure = self._cases.first(case)
                if outcome is not True and not self._is_alike(failure):
                    continue
            held += 1
            left = {
                edit: before + self._cases.left
                for edit, before in left.items()
                if self._mends(edit, case)
            }
        made: dict[tuple[object, ...], Draft] = {}
        least: dict[tuple[object, ...], float] = {}
        for edit, bits in left.items():
            before = "".join(linecache.getlines(edit.code.file))
            if (after := edit.patched(before)) is None:
                continue
            alike = edit.code.file, edit.line, bits
            worse = edit.cost > least.setdefault(alike, edit.cost) + _FORM
            other = made.get(alike)
            if other is None or not (worse or len(after) >= len(other.after)):
                evidence = f"{edit.words}, it passes"
                line = self._line(edit.file, edit.line, evidence, edit.column)
                made[alike] = Draft(line, edit.code.file, before, after)
        return tuple(made.values())

    def _sort(self, case: Case) -> None:
        outcome, failure = self._cases.first(case)
        if outcome is True and len(self._passing) < MOST_PASSING:
            self._passing.append(case)
        elif self._is_alike(failure) and len(self._failing) <= MOST_FAILING:
            self._failing.append(case)

    def _is_alike(self, failure: Failure | None) -> bool:
        if failure is None:
            return False
        alike = failure.signature(self._signature.kernel)
        return alike.symptom == self._signature.symptom

    def _mends(self, edit: Change, case: Case) -> bool:
        with edit.made() as possible:
            return possible and self._cases.passes(case)

    def _try(self, edits: Sequence[Change], deadline: float) -> None:
        minimum, *others = self._failing
        self.complete, least = True, math.inf
        for edit in edits:
            if edit.cost > least + _MARGIN:
                continue
            if time.monotonic() >= deadline or not self._is_sound():
                self.complete = False
                break
            self.tried += 1
            with edit.made() as possible:
                if not possible or not self._cases.passes(minimum):
                    continue
                mended = 1 + sum(map(self._cases.passes, others))
                kept = sum(map(self._cases.passes, self._passing))
            if mended == len(self._failing) and kept == len(self._passing):
                self.fixes.append(edit)
                least = min(least, edit.cost)
            else:
                held = kept / len(self._passing) if self._passing else 1.0
                self.nearly.append((mended / len(self._failing) * held, edit))
        if time.monotonic() >= deadline:  # the last of them may have been cut short
            self.complete = False
        self.fixes.sort(key=lambda edit: edit.cost)
        self.nearly.sort(key=lambda each: (-each[0], each[1].cost))

    def _is_sound(self) -> bool:
        """Whether the process still judges as it did, where a call was cut short."""
        if not self._cases.cut_short:
            return True
        passes = self._cases.passes
        fails = not passes(self._failing[0])
        self._cases.cut_short = False
        return fails and all(map(passes, self._passing[:1]))

    def _separate(self, deadline: float) -> None:
        """Leave out what further cases refute, where several lines would do."""
        while len({edit.line for edit in self.fixes}) > 1:
            case = next(self._rest, None)
            if case is None or time.monotonic() >= deadline:
                return
            self._used.append(case)
            if self._cases.first(case)[0] is None:
                continue
            kept = [edit for edit in self.fixes if self._mends(edit, case)]
            if time.monotonic() >= deadline:  # what was cut short is not refuted
                return
            self.fixes = kept or self.fixes

    def _named(self) -> Line | None:
        fail, held = len(self._failing), len(self._passing)
        if self.fixes:
            best = self.fixes[0]
            alone = len({(e.file, e.line) for e in self.fixes}) == 1
            failing = f"the {fail} cases that fail pass" if fail > 1 else "it passes"
            evidence = f"{best.words}, {failing}, and {held} that passed still do"
            sure = self.complete and best.cost < _ADDING and fail >= _LEAST_FAILING
            # Of what torch functions lack few rules know.
            sure = sure and any(code.jit for code in self.codes) == bool(self.codes)
            where = best.file, best.line, evidence, best.column
            return self._line(*where, certain=alone and sure)
        if (seen := self._accessed() or self._modifying()) is not None:
            return seen
        if not self.nearly or self.nearly[0][0] < _NEARLY:
            return None
        best = self.nearly[0][1]
        evidence = f"{best.words}, the smallest case passes, but not every other one"
        return self._line(best.file, best.line, evidence, best.column)

    def _accessed(self) -> Line | None:
        """Return the line of a stray access, where no change of one mends it."""
        failure = self._failure
        assert failure is not None
        for code in self.codes:
            for access in failure.accesses:
                file, _, number = access.line.rpartition(":")
                if file and Path(file).name == Path(code.file).name:
                    return self._line(code.file, int(number), failure.message)
        return None

    def _modifying(self) -> Line | None:
        """Return the line after which an argument that is to be kept has other bits."""
        if self._signature.kind is not Kind.INPUT_MODIFIED or self._failure is None:
            return None
        found: list[tuple[str, int]] = []
        given: list[tuple[Tensor, Tensor]] = []
        last: dict[FrameType, int] = {}

        def look(frame: FrameType, event: str) -> None:
            # Autograd gives the gradient to a function of this name.
            if event == "call" and not (given and frame.f_code.co_name != "backward"):
                tensors = [x for x in frame.f_locals.values() if isinstance(x, Tensor)]
                given.extend((x, x.detach().clone()) for x in tensors)
            kept = all(identical(x.detach(), was) for x, was in given)
            if not found and not kept and frame in last:
                found.append((frame.f_code.co_filename, last[frame]))
            last[frame] = frame.f_lineno

        with traced(self.codes, look):
            self._cases.first(self._failing[0])
        if not found:
            return None
        words = f"after this line an argument is changed: {self._failure.message}"
        return self._line(*found[0], words)

    def _line(
        self,
        file: str,
        line: int,
        evidence: str,
        column: int | None = None,
        *,
        certain: bool = False,
    ) -> Line:
        source = linecache.getline(file, line).rstrip()
        if column is None:
            column = len(source) - len(source.lstrip())
        return Line(relative(file, self._root), line, certain, evidence, column, source)
