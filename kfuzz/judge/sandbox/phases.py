"""Where the seconds of a judgement go: its phases, and what is waited for in each."""

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


class Phases:
    """Seconds by phase; those waited for a child's part count under both their names.

    "confirm" is all of that phase, "confirm: calls" what of it was waited for calls.
    """

    def __init__(self, phase: str) -> None:
        """Begin the first phase."""
        self._phase = phase
        self._since = time.monotonic()
        self._spent: defaultdict[str, float] = defaultdict(float)

    def begin(self, phase: str) -> str:
        """End the phase and begin another; return the name of the one that ended."""
        now, before = time.monotonic(), self._phase
        self._spent[before] += now - self._since
        self._phase, self._since = phase, now
        return before

    @contextmanager
    def within(self, phase: str) -> Iterator[None]:
        """Be in another phase meanwhile."""
        before = self.begin(phase)
        try:
            yield
        finally:
            self.begin(before)

    @contextmanager
    def waiting(self, part: str) -> Iterator[None]:
        """Count what is waited for a part of the phase."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._spent[f"{self._phase}: {part}"] += time.monotonic() - began

    @property
    def seconds(self) -> Mapping[str, float]:
        """Seconds so far, by phase and by part of one."""
        self.begin(self._phase)
        return {name: round(spent, 3) for name, spent in self._spent.items()}
