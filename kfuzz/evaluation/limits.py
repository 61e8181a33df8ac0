"""Sizes that a kernel rejects: found by bisection, whatever the values are.

What is raised for the size alone is a limit, which a `shape_class` makes explicit. What
is raised at ordinary sizes, or depends on values, is no limit.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kfuzz.contracts.binding import Derived, sized
from kfuzz.core.recipe import Case
from kfuzz.evaluation.calling import Caller, without_edge
from kfuzz.execution.values.fills import logical_values
from kfuzz.numerics.run import Raised

# Exceptions that people raise on purpose, for what they do not support.
_DELIBERATE: Final = (
    "AssertionError",
    "NotImplementedError",
    "TypeError",
    "ValueError",
)
# Greatest sizes below these are no limit but a fault; the second where the exception
# need not be deliberate.
_LEAST_LIMIT: Final = 16
_ORDINARY: Final = 256
# Divisors that blocks and vector loads ask for.
_DIVISORS: Final = (2, 4, 8, 16, 32, 64, 128, 256)
_NUMBER: Final = re.compile(r"0x[0-9a-f]+|\d+")
# Two kinds of values: what depends on them is no matter of size.
_FAMILIES: Final = ("randn", "zeros")


@dataclass(frozen=True)
class Limit:
    """A condition on one size outside of which a kernel raises.

    Attributes:
        text: what is rejected, in words: "N above 65,536".
        keeps: the condition, as `shape_class` takes it: "N <= 65536".
        type: the exception's type.
        message: its first line without numbers.
        axis: the dimension's name in a shape class.
        most: greatest size taken; 0 where a divisor limits it.
        divisor: what sizes are multiples of; 1 where they are limited from above.
    """

    text: str
    keeps: str
    type: str
    message: str
    axis: str
    most: int = 0
    divisor: int = 1

    def explains(self, raised: Raised, sizes: dict[str, int]) -> bool:
        """Whether a call that raised met this limit.

        Args:
            raised: what it raised.
            sizes: of the case, by their names in a shape class.
        """
        n = sizes.get(self.axis, 0)
        beyond = n > self.most if self.most else bool(n % self.divisor)
        return beyond and _like(raised) == (self.type, self.message)


def limit_of(caller: Caller, case: Case, raised: Raised) -> Limit | None:
    """Return the limit of one size that a case is beyond; None if there is none.

    Args:
        caller: calls the kernel.
        case: for which it raised.
        raised: what it raised.
    """
    search = _Search(caller, case, raised)
    if not all(search.raises({}, family) for family in _FAMILIES):
        return None
    for axis, n in sorted(case.dims.items(), key=lambda item: -item[1]):
        if n < 2:
            continue
        found = search.above(axis, n) or search.indivisible(axis, n)
        if found is not None:
            return found
    return None


@dataclass(frozen=True)
class _Search:
    """Asks of which sizes a kernel raises as it did."""

    caller: Caller
    case: Case
    raised: Raised

    def raises(self, sizes: dict[str, int], family: str = "randn") -> bool | None:
        """Whether it raises alike at these sizes; None where that cannot be said."""
        kernel = self.caller.kernel
        case = sized(kernel.operator, self.case, sizes, family)
        if not kernel.operator.admits(case, kernel.declaration):
            return None
        device = self.caller.memory.device
        values = {name: logical_values(case, name, device) for name in case.tensors}
        evidence, unsupported = self.caller.evidence(
            without_edge(Derived(case, values))
        )
        if unsupported or self.caller.lost:
            return None
        found = evidence.base.raised
        if found is None:
            return False
        return True if _like(found) == _like(self.raised) else None

    def above(self, axis: str, n: int) -> Limit | None:
        """Return the greatest size that is taken, if all above it are not."""
        # Ordinary sizes below it, the greatest first.
        powers = (1 << k for k in range(min((n - 1).bit_length() - 1, 10), -1, -1))
        low = next((s for s in powers if self.raises({axis: s}) is False), 0)
        if not low:
            return None
        high = n
        while high - low > 1:
            middle = (low + high) // 2
            answer = self.raises({axis: middle})
            if answer is None:
                return None
            low, high = (low, middle) if answer else (middle, high)
        least = _LEAST_LIMIT if self.raised.type in _DELIBERATE else _ORDINARY
        beyond = low + 1 + (n - low - 1) // 3, (low + n + 1) // 2, n, n + 1, n + n // 8
        within = {low - 1, low // 2, low // 2 + 1, low // 3, 3} - {0}
        if low < least or not self._parts(axis, beyond, within):
            return None
        name, like = self._name(axis), _like(self.raised)
        return Limit(f"{name} above {low:,}", f"{name} <= {low}", *like, name, low)

    def indivisible(self, axis: str, n: int) -> Limit | None:
        """Return what sizes have to be multiples of, if all multiples are taken."""
        if self.raised.type not in _DELIBERATE:
            return None
        for divisor in _DIVISORS:
            if n % divisor == 0:
                continue
            taken = [k * divisor for k in (1, 2, 3, 5)]
            half = divisor // 2
            others = {half, 3 * half, 5 * half, divisor + 1, 2 * divisor - 1} - {0}
            if self._parts(axis, (s for s in others if s % divisor), taken):
                name, like = self._name(axis), _like(self.raised)
                text = f"{name} that is no multiple of {divisor}"
                keeps = f"{name} % {divisor} == 0"
                return Limit(text, keeps, *like, name, divisor=divisor)
        return None

    def _parts(self, axis: str, beyond: Iterable[int], within: Iterable[int]) -> bool:
        """Whether it takes all sizes within a limit, and raises beyond."""
        takes = all(self.raises({axis: s}) is False for s in within)
        return takes and all(self.raises({axis: s}) for s in beyond)

    def _name(self, axis: str) -> str:
        """Return the name that a shape class has for a dimension."""
        operator = self.caller.kernel.operator
        if any(axis in p.names for p in operator.tensors.values()):
            return axis
        lead, reduced = self.case.lead, operator.reduced_axis(self.case)
        at = lead.axes.index(axis) - len(lead.axes) if axis in lead.axes else 0
        last = -1 if reduced is None else reduced
        if at == last:
            return "N"
        # M is the product of all other sizes: here of this one alone.
        places = range(-len(lead.shape), 0)
        alone = all(lead.shape[i] == 1 for i in places if i not in (at, last))
        return "M" if alone else axis


def _like(raised: Raised) -> tuple[str, str]:
    """Return what exceptions of one cause have in common."""
    return raised.type, _NUMBER.sub("", raised.message)
