"""Launches of a kernel for sizes of any order, and what they have in common."""

import time
from typing import Final

from kfuzz.contracts.binding import BoundKernel
from kfuzz.prove.capture import Captured, NotCapturedError, capture
from kfuzz.prove.fitting import Fit
from kfuzz.prove.groups import (
    Group,
    Grouping,
    grouped,
)
from kfuzz.prove.relations import Relations
from kfuzz.prove.samples import drawn, grown, neighbours

FITTED: Final = 0.75
"""Of the launches so many are fitted; the others are held against that."""

# Launches of one kind, of fewer more are sought, from so many each.
_FEW: Final = 24
_TEMPLATES: Final = 2
# Other configurations of an autotuner are captured for one case in so many.
_APART: Final = 8


class Sampling:
    """Captures the launches of a kernel, and fits them.

    Args:
        kernel: the kernel.
        until: `time.process_time()` after which no more are captured.

    Attributes:
        calls: with their launches.
    """

    def __init__(self, kernel: BoundKernel, *, until: float) -> None:
        self._kernel, self._until = kernel, until
        self.calls: list[Captured] = []
        self._uncaptured: dict[str, int] = {}

    def capture(self) -> None:
        """Capture the launches of cases of many sizes."""
        plain = drawn(self._kernel)
        configs = 1
        for number, case in enumerate((*plain, *grown(self._kernel, plain))):
            if time.process_time() > self._until and self.calls:
                break
            # Configurations differ in their constants: a few sizes of each tell.
            for config in range(1 if number % _APART else configs):
                try:
                    call = capture(self._kernel, case, config=config)
                except NotCapturedError as error:
                    why = str(error)
                    self._uncaptured[why] = self._uncaptured.get(why, 0) + 1
                    break
                self.calls.append(call)
                configs = max(configs, min(call.configs, 4))
        self._enrich()
        declared = len(self._kernel.declaration.configs)
        for case in plain[: 8 if declared > 1 else 0]:
            for config in range(1, declared):
                try:
                    self.calls.append(capture(self._kernel, case, config=config))
                except NotCapturedError:
                    break

    def _enrich(self) -> None:
        """Capture more launches of the kinds of which there are few."""
        for _ in range(2):
            grouping = Grouping.of(
                launch for call in self.calls for launch in call.launches
            )
            for group in grouped(self.calls, grouping).values():
                if len(group.made) >= _FEW:
                    continue
                for made in group.made[:_TEMPLATES]:
                    for case in neighbours(self._kernel, made.case):
                        try:
                            self.calls.append(capture(self._kernel, case))
                        except NotCapturedError:
                            break

    def nothing(self) -> str:
        """Return why nothing can be proved, "" where something may be."""
        if any(call.launches for call in self.calls):
            return ""
        if self._uncaptured:
            why = max(self._uncaptured, key=lambda text: self._uncaptured[text])
            return f"its launches are not known: {why}"
        if not self.calls:
            return "no case is in its domain"
        return "it launches no Triton kernel"

    def fit(self, group: Group) -> Relations:
        """Fit a group's launches, until those held out agree."""
        launches = [made.launch for made in group.made]
        count = max(int(len(launches) * FITTED), 1)
        # Every so many one, so that small and large ones are on both sides.
        step = max(len(launches) // max(len(launches) - count, 1), 2)
        held = launches[::step]
        fitted = [n for i, n in enumerate(launches) if i % step] or launches
        for _ in range(8):
            relations = Fit(fitted).fitted()
            broken = [n for n in held if relations.broken_by(n) is not None]
            if not broken:
                return relations
            fitted = [*fitted, *broken]
        return Fit(launches).fitted()
