"""Sizes that a kernel rejects: found by bisection, whatever the values are.

What is raised for the size alone is a limit, which a `shape_class` makes explicit. What
is raised at ordinary sizes, or depends on values, is no limit.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor

from kfuzz.contracts.binding import Derived, sized
from kfuzz.contracts.evidence import Evidence
from kfuzz.contracts.language import Probe
from kfuzz.contracts.suite import judge
from kfuzz.core.random_streams import Purpose, is_sampled
from kfuzz.core.recipe import Case
from kfuzz.evaluation.calling import Caller, without_edge
from kfuzz.execution.values.fills import logical_values
from kfuzz.numerics.accumulation import as_integers
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
        if not kernel.operator.accepts(case, kernel.declaration):
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


# Trivial baselines: what computes nothing is judged in place of a kernel's results.
#
# A judgement that admits zeros, NaN, a copy of an input or the results of the case
# before has no power over the kernel. On one case that may be right: zeros may be
# expected, or no bound may say much of data so ill-conditioned. So a case tells only
# whether an baseline was refused, and of baselines those alone that differ from the
# kernel's own results by a factor of two, or in being finite, where these are decided.
# What the cases come to is for the run to say.

SHARE: Final = 1 / 32
"""The part of the conforming cases on which baselines are tried."""

MOST: Final = 32
"""Cases of one process after which no more are tried: they have shown what they can."""

ZEROS: Final = "zeros"
NANS: Final = "NaN"
COPY: Final = "a copy of an input"
STALE: Final = "the results of the case before"

# Results of more elements are not kept for the next case.
_MOST_KEPT: Final = 1 << 20
# Smaller than half of the larger one: no rounding explains it.
_FAR: Final = 0.5
# What judges values; where none of it is in force no baseline can be refused.
_JUDGES: Final = frozenset({"K-VAL-01"})

Outputs = Mapping[str, Tensor]


class TrivialBaselines:
    """Tries baselines on some of a kernel's cases, one after the other."""

    def __init__(self) -> None:
        self._before: Outputs = {}
        self._cases = 0

    def tried(
        self, evidence: Evidence, values: Outputs, classes: Collection[str]
    ) -> dict[str, bool]:
        """Return by kind whether each baseline was refused, {} on most cases."""
        before, mine = self._before, dict(evidence.base.outputs)
        if sum(y.numel() for y in mine.values()) <= _MOST_KEPT:
            self._before = mine
        judged = _JUDGES & set(classes)
        if not judged or self._cases >= MOST or not is_tried(evidence.case):
            return {}
        self._cases += 1
        told = {}
        for kind, outputs in _made(mine, values, before):
            if _differs(evidence, outputs):
                run = replace(evidence.base, outputs=outputs)
                other = replace(evidence, runs={Probe.BASE: run})
                told[kind] = judge(other, classes)[1] is not None
        return told


def is_tried(case: Case) -> bool:
    """Whether a case is among those on which baselines are tried."""
    return not case.pinned and is_sampled(case.seed, Purpose.BASELINES, SHARE)


def _made(
    mine: Outputs, values: Outputs, before: Outputs
) -> Iterator[tuple[str, Outputs]]:
    """Yield baselines of a case's results, each with its kind."""
    yield ZEROS, {n: torch.zeros_like(y) for n, y in mine.items()}
    if any(y.is_floating_point() for y in mine.values()):
        yield (
            NANS,
            {
                n: torch.full(y.shape, torch.nan, device=y.device).to(y.dtype)
                if y.is_floating_point()
                else torch.zeros_like(y)
                for n, y in mine.items()
            },
        )
    shapes = {x.shape: x for x in reversed(list(values.values()))}
    copies = {
        n: shapes[y.shape].to(y.dtype) for n, y in mine.items() if y.shape in shapes
    }
    if copies:
        yield COPY, {**mine, **copies}
    if before and all(_fits(before.get(n), y) for n, y in mine.items()):
        yield STALE, {n: _over(before[n], y) for n, y in mine.items()}


def _fits(old: Tensor | None, y: Tensor) -> bool:
    return old is not None and old.dtype == y.dtype and old.numel() > 0


def _over(old: Tensor, y: Tensor) -> Tensor:
    """Return old elements in the shape of a result, from the first one again."""
    places = torch.arange(y.numel(), device=y.device) % old.numel()
    words = as_integers(old.reshape(-1))  # float8 has no indexing
    return words[places].view(old.dtype).reshape(y.shape)


def _differs(evidence: Evidence, outputs: Outputs) -> bool:
    """Whether an baseline is far from the kernel's results where these are decided."""
    for name, accepted in (evidence.acceptance or {}).items():
        y, other = (
            z.to(torch.float64) for z in (evidence.base.outputs[name], outputs[name])
        )
        decided = ~(accepted.undecided | accepted.ambiguous)[0]
        far = (y - other).abs() > _FAR * torch.maximum(y.abs(), other.abs())
        far |= y.isnan() != other.isnan()
        far |= (y != other) & (y.isinf() | other.isinf()) & ~(y.isnan() & other.isnan())
        if bool((far & decided).any()):
            return True
    return False
