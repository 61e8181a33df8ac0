"""Which line of a kernel a finding comes from, found by intervention.

One expression of its source is changed at a time. Where the failing cases pass with
the change and those that passed still do, the line is where it goes wrong.
"""

import linecache
import signal
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from kfuzz.contracts.binding import Derived
from kfuzz.contracts.classes import CLASSES
from kfuzz.contracts.language import Probe
from kfuzz.contracts.oracle import expected_metadata, given
from kfuzz.contracts.suite import judge
from kfuzz.core.budget import Depth
from kfuzz.core.errors import KfuzzError
from kfuzz.core.finding import Line
from kfuzz.core.recipe import Case, poison_of
from kfuzz.core.verdict import Failure, Signature
from kfuzz.evaluation.calling import posed, unsupported_because
from kfuzz.evaluation.edits import Edit, codes_of, edits_of, relative, traced
from kfuzz.evaluation.evaluator import Evaluator

# Kinds that one call does not show.
_LATER: Final = frozenset(k for c in CLASSES.values() for k in c.later_kinds)
# Cases besides the minimum that a change is held against, of either outcome.
MOST_FAILING: Final = 8
MOST_PASSING: Final = 12
# A changed kernel may take so many times what it took before, and so long at least.
_SLOWER: Final = 20.0
_LEAST_SECONDS: Final = 0.5
# What costs so much more than the least that mends it is not tried.
_MARGIN: Final = 0.9


class _Overdue(BaseException):
    """A changed kernel takes far longer than the kernel itself."""


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raise `_Overdue` where the block takes longer."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: Any) -> None:
        raise _Overdue

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class _Cases:
    """Judges cases again and again; what is accepted of each is computed once."""

    def __init__(self, evaluator: Evaluator, classes: Collection[str], deep: bool):
        self._evaluator = evaluator
        self._classes = classes
        self._deep = deep
        self._posed: dict[int, Any] = {}
        self._seconds: dict[int, float] = {}
        self._held: list[Case] = []

    def first(self, case: Case) -> tuple[bool | None, Failure | None]:
        """Return what the kernel as it is does on a case, as `passes`."""
        began = time.monotonic()
        outcome, failure = self._outcome(case)
        self._held.append(case)  # its number stays its own
        self._seconds[id(case)] = time.monotonic() - began
        return outcome, failure

    def passes(self, case: Case) -> bool:
        """Whether a case of which `first` was asked conforms."""
        limit = max(_SLOWER * self._seconds[id(case)], _LEAST_SECONDS)
        try:
            with _limited(limit):
                return self._outcome(case)[0] is True
        except _Overdue:
            return False
        except KfuzzError:
            return False

    def _outcome(self, case: Case) -> tuple[bool | None, Failure | None]:
        """Return whether a case conforms, None where it is not judged, and why not."""
        if self._deep:
            report = self._evaluator.judge(case, Depth.SEARCH)
            if report.error or report.unsupported or report.refusal:
                return None, None
            return report.failure is None, report.failure
        known = self._posed.get(id(case))
        if known is None:
            known = self._posed[id(case)] = self._pose(case)
        evidence, derived, expected, caller = known
        base = caller.run(derived, expected, poison_of(derived.case))
        if unsupported_because(base):
            return None, None
        evidence = replace(evidence, runs={Probe.BASE: base})
        _, failure = judge(evidence, self._classes)
        if failure is not None:
            return False, failure
        judged = base.comparable or evidence.acceptance is None
        return (True if judged else None), None

    def _pose(self, case: Case) -> tuple[Any, ...]:
        evaluator = self._evaluator
        kernel, case = evaluator.kernel, evaluator.settled(case)
        operator, claims = kernel.operator, kernel.declaration
        derived = Derived(case, evaluator.values(case))
        evidence = posed(operator, claims, derived)
        accepted = evidence.acceptance
        expected = {} if accepted is None else expected_metadata(accepted)
        places = given(operator, case, derived.values, claims, expected) or {}
        lacking = kernel.arguments.lacking(case.tensors)
        evidence = replace(
            evidence,
            case=replace(case, destinations=places),
            explicit=kernel.explicit,
            lacking=tuple(n for n in lacking if n not in operator.listed),
        )
        return evidence, derived, expected, evaluator.caller(case)


class Locating:
    """Looks for the line of one finding.

    Attributes:
        tried: how many changes were run.
        fixes: those with which all cases conform, the least first.
        complete: whether all that were to be tried were.
    """

    def __init__(self, evaluator: Evaluator, signature: Signature, root: Path) -> None:
        self._evaluator = evaluator
        self._signature = signature
        self._root = root
        self._cases = _Cases(
            evaluator, evaluator.setting.classes, signature.kind in _LATER
        )
        self.tried = 0
        self.fixes: list[Edit] = []
        self.failing: list[Case] = []
        self.passing: list[Case] = []
        self.complete = False

    def line(self, cases: Sequence[Case], deadline: float) -> Line | None:
        """Return the line; None where none was found.

        Args:
            cases: the minimum, then others.
            deadline: `time.monotonic()` at which to stop.
        """
        codes = codes_of(self._evaluator.kernel.function)
        if not any(code.jit for code in codes):
            return None
        with traced(codes):
            outcome, _ = self._cases.first(cases[0])
        if outcome is not False:
            return None
        self.failing = [cases[0]]
        half = time.monotonic() + 0.25 * max(deadline - time.monotonic(), 0.0)
        with traced(codes):
            for case in cases[1:]:
                self._sort(case)
                if time.monotonic() >= half:
                    break
        with traced(codes):
            self._cases.passes(cases[0])
        self._try(edits_of(codes), deadline)
        return self._named()

    def _sort(self, case: Case) -> None:
        full = len(self.failing) > MOST_FAILING, len(self.passing) >= MOST_PASSING
        if all(full):
            return
        outcome, failure = self._cases.first(case)
        if outcome is True and not full[1]:
            self.passing.append(case)
        elif failure is not None and not full[0]:
            alike = failure.signature(self._signature.kernel).symptom
            if alike == self._signature.symptom:
                self.failing.append(case)

    def _try(self, edits: Sequence[Edit], deadline: float) -> None:
        for edit in edits:
            if self.fixes and edit.cost > self.fixes[0].cost + _MARGIN:
                break
            if time.monotonic() >= deadline:
                return
            self.tried += 1
            with edit.made() as possible:
                if possible and all(
                    map(self._cases.passes, (*self.failing, *self.passing))
                ):
                    self.fixes.append(edit)
        self.complete = True

    def _named(self) -> Line | None:
        if not self.fixes:
            return None
        best = self.fixes[0]
        lines = {(edit.code.file, edit.line) for edit in self.fixes}
        certain = len(lines) == 1 and self.complete
        n, m = len(self.failing), len(self.passing)
        fail = f"the {n} cases that fail pass" if n > 1 else "the failing case passes"
        evidence = f"{best.words}, {fail}, and {m} that passed still do"
        return Line(
            relative(best.code.file, self._root),
            best.line,
            certain,
            evidence,
            best.column,
            linecache.getline(best.code.file, best.line).rstrip(),
        )
