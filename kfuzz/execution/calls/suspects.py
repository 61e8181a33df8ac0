"""Which members of a burst are suspect for what the host sees of their calls."""

from collections.abc import Collection
from typing import Final

import torch

from kfuzz.execution.device.devices import fault_of
from kfuzz.execution.device.gpuless import lack_of_gpu
from kfuzz.execution.device.surroundings import surroundings_of
from kfuzz.execution.interpreter.traps import explanation
from kfuzz.execution.interpreter.watch import (
    Launches,
    interpreting,
    is_interpreter_failure,
)
from kfuzz.execution.processes.interrupts import is_child

RAISES: Final = 8
"""Exceptions in a row after which the members left are not run."""

MEMORY: Final = "memory: "
"""How the reason begins for accesses that Triton's interpreter saw, and where."""

# Where accesses prove a fault; others are worth one member of a burst for each cause.
_OUTSIDE: Final = frozenset({"before", "after", "slack", "elsewhere"})


class Unsupported(Exception):
    """A structure cannot be run as a burst.

    Attributes:
        why: the reason, in words.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Lost(Exception):
    """The device can do nothing more.

    Attributes:
        fault: as `devices.fault_of` names it.
    """

    def __init__(self, fault: str) -> None:
        super().__init__(fault)
        self.fault = fault


class Suspects:
    """The members that did what none should, and why each is suspect.

    Attributes:
        why: the reason by member.
        in_a_row: calls that raised since the last one that returned.
    """

    def __init__(self, device: torch.device) -> None:
        self.why: dict[int, str] = {}
        self.in_a_row = 0
        self._device = device
        self._seen: set[tuple[str, str, str]] = set()

    def raised(self, number: int, error: BaseException) -> None:
        """Note an exception that left the kernel; waits for the device.

        Raises:
            Lost: if the device can do nothing more.
            Unsupported: if the backend cannot run the first member.
            KeyboardInterrupt: if it is the user's.
        """
        if isinstance(error, KeyboardInterrupt) and not is_child():
            raise error  # the user's, not the kernel's
        if fault := fault_of(self._device):
            raise Lost(fault) from None
        if (around := surroundings_of(self._device)) is not None:
            around.forget_errors()
        self.in_a_row += 1
        trap = explanation(error, interpreted=interpreting())
        trap = trap or lack_of_gpu(error, self._device)
        if trap or is_interpreter_failure(error):
            self._distrust(number, trap or _first_line(error))
        else:
            self.why[number] = f"raised {type(error).__name__}: {_first_line(error)}"

    def withdraw(self, number: int) -> None:
        """Take back what an exception made of a member: its call counts for nothing."""
        self.why.pop(number, None)
        self.in_a_row = 0

    def give_up(self, left: Collection[int]) -> bool:
        """Whether too many raised in a row; then all that are left are suspect."""
        if self.in_a_row <= RAISES:
            return False
        why = f"not run: {self.in_a_row} calls before it raised"
        self.why.update(dict.fromkeys(left, why))
        return True

    def watched(self, number: int, launches: Launches) -> None:
        """Note what Triton's interpreter saw in a call.

        Accesses outside make a member suspect. Of the others, which are charged only
        if a result depends on them, each does in the first member that shows it.

        Raises:
            Unsupported: if the first member's results may be wrong whatever it does.
        """
        if launches.unreliable:
            self._distrust(number, launches.unreliable)
        for access in launches.accesses:
            key = (access.where, access.line, access.memory)
            if access.where in _OUTSIDE or key not in self._seen:
                self._seen.add(key)
                at = f" at {access.line}" if access.line else ""
                what = f"{access.access} of {access.memory}{at}: {access.where}"
                self.why[number] = f"{MEMORY}{what}"
                return

    def _distrust(self, number: int, why: str) -> None:
        """Deal with a backend that may be wrong: for all members if for the first."""
        if number == 0:
            raise Unsupported(why)
        self.why[number] = f"backend: {why}"


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else ""
