"""Launches of a kernel for sizes of any order, and what they have in common."""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final

from kfuzz.contracts.binding import BoundKernel
from kfuzz.core.recipe import Case
from kfuzz.execution.launches.capture import Captured, NotCapturedError, capture
from kfuzz.prove.fitting import ENOUGH, Fit
from kfuzz.prove.groups import (
    Grouping,
    Made,
    grouped,
)
from kfuzz.prove.relations import Relations
from kfuzz.prove.samples import drawn, far, grown, neighbours
from kfuzz.strategies.membership import ignored_index
from kfuzz.strategies.parameters import IndexParameter

FITTED: Final = 0.75
"""Of the launches so many are fitted; the others are held against that."""

# Launches of one kind, of fewer more are sought, from so many each.
_FEW: Final = 24
_TEMPLATES: Final = 2
# Other configurations of an autotuner are captured for one case in so many.
_APART: Final = 8
# Calls in which indices are out of bounds, and those whose wrapper reads other numbers,
# so many each.
_STRAYS: Final = 4
_ASKED: Final = 16
_ANSWERS: Final = 3


class Sampling:
    """Captures the launches of a kernel, and fits them.

    Args:
        kernel: the kernel.
        until: `time.process_time()` after which no more are captured.
        pause: called every now and then.
    """

    def __init__(
        self, kernel: BoundKernel, *, until: float,
        pause: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self._kernel, self._until, self._pause = kernel, until, pause
        self.calls: list[Captured] = []
        self._uncaptured: dict[str, int] = {}
        self._limit = ""
        self._free: frozenset[str] = frozenset()

    def capture(self) -> None:
        """Capture the launches of cases of many sizes."""
        plain = drawn(self._kernel)
        self._free = self._unchecked(plain)
        configs = 1
        every = (*plain, *far(self._kernel, plain), *grown(self._kernel, plain))
        for number, case in enumerate(every):
            if time.process_time() > self._until and self.calls:
                break
            # Configurations differ in their constants: a few sizes of each tell.
            for config in range(1 if number % _APART else configs):
                call = self._captured(case, config=config)
                if call is None:
                    break
                configs = max(configs, min(call.configs, 4))
        self._enrich()
        declared = len(self._kernel.declaration.configs)
        for case in plain[: 8 if declared > 1 else 0]:
            for config in range(1, declared):
                if self._captured(case, config=config) is None:
                    break
        self._answer()

    def _captured(
        self, case: Case, *, config: int = 0, answers: int = 0
    ) -> Captured | None:
        """Capture a call; None where that fails."""
        self._pause()
        try:
            call = capture(
                self._kernel, case, config=config, answers=answers, free=self._free
            )
        except NotCapturedError as error:
            why = str(error)
            self._uncaptured[why] = self._uncaptured.get(why, 0) + 1
            if error.limit and not self._limit:
                self._limit = why
            return None
        self.calls.append(call)
        return call

    def _unchecked(self, cases: Sequence[Case]) -> frozenset[str]:
        """Return the arguments whose indices may be out of bounds in a launch.

        Where something is declared for such indices a search draws them: then only a
        wrapper that rejects them keeps them from its kernels.
        """
        kernel, found = self._kernel, set()
        if kernel.declaration.out_of_bounds == "undefined":
            return frozenset()
        for name, parameter in kernel.operator.inputs.items():
            if not (isinstance(parameter, IndexParameter) and parameter.strays):
                continue
            given = [c for c in cases if name in c.tensors and c.tensors[name].numel]
            for case in given[-_STRAYS:]:
                bound = case.bound(case.tensors[name])
                ignored = ignored_index(kernel.operator.inputs, parameter, case)
                for index in {bound, -1, -2} - {ignored}:
                    with suppress(NotCapturedError):
                        if capture(kernel, case, stray=(name, index)).launches:
                            found.add(name)
        return frozenset(found)

    def _answer(self) -> None:
        """Capture what is launched where the wrapper reads other numbers.

        Which launches follow from the values of tensors, and how, is not known: what
        differs between these answers is free.
        """
        asking = [call for call in self.calls if call.reads]
        for call in asking[:: max(len(asking) // _ASKED, 1)]:
            for answers in range(1, 1 + _ANSWERS):
                with suppress(NotCapturedError):
                    made = capture(
                        self._kernel, call.case, answers=answers, free=self._free
                    )
                    self.calls.append(made)

    def _enrich(self) -> None:
        """Capture more launches of the kinds of which there are few."""
        for _ in range(2):
            grouping = Grouping.of(
                launch for call in self.calls for launch in call.launches
            )
            for group in grouped(self.calls, grouping).values():
                if len(group) >= _FEW:
                    continue
                for made in group[:_TEMPLATES]:
                    for case in neighbours(self._kernel, made.case):
                        if self._captured(case) is None:
                            break

    def nothing(self) -> str:
        """Return why nothing can be proved, "" where something may be."""
        if self._limit:  # what those calls launch could be anything
            return f"its launches are not known: {self._limit}"
        if any(call.launches for call in self.calls):
            return ""
        if self._uncaptured:
            why = max(self._uncaptured, key=lambda text: self._uncaptured[text])
            return f"its launches are not known: {why}"
        if not self.calls:
            return "no case is in its domain"
        return "it launches no Triton kernel"

    def fit(self, group: Sequence[Made]) -> Relations:
        """Fit a group's launches, until those held out agree."""
        launches = [made.launch for made in group]
        count = max(int(len(launches) * FITTED), 1)
        # Every so many one, so that small and large ones are on both sides.
        step = max(len(launches) // max(len(launches) - count, 1), 2)
        held = launches[::step]
        fitted = [n for i, n in enumerate(launches) if i % step] or launches
        varied = self._varied(group)
        for _ in range(8):
            relations = Fit(fitted, varied=varied).fitted()
            broken = [n for n in held if relations.broken_by(n) is not None]
            if not broken:
                return relations
            fitted = [*fitted, *broken]
        return Fit(launches, varied=varied).fitted()

    def _varied(self, group: Sequence[Made]) -> bool:
        """Whether a group's launches are many, of all that its cases may differ in.

        What they have in common then is the wrapper's, or the domain's, and no chance.
        """
        every, own = (
            _values(cases)
            for cases in ((c.case for c in self.calls), (m.case for m in group))
        )
        return len(group) >= _FEW and all(
            len(seen) >= min(len(every[name]), ENOUGH) for name, seen in own.items()
        )


def _values(cases: Iterable[Case]) -> dict[str, set[object]]:
    """Return the values of each dimension and scalar of some cases."""
    found: dict[str, set[object]] = {}
    for case in cases:
        for name, value in (*case.dims.items(), *case.scalars.items()):
            found.setdefault(name, set()).add(str(value))
    return found
