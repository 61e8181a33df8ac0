"""Sizes that a kernel rejects: found by bisection, whatever the values are.

What is raised for the size alone, of whatever type, is a limit, which a `shape_class`
makes explicit. What is raised at all or at single sizes, or depends on values, is none.
"""

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

import torch
from torch import Tensor

from kfuzz.contracts.binding import Derived, sized
from kfuzz.contracts.evidence import Evidence
from kfuzz.contracts.language import Probe
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.suite import judge
from kfuzz.core.declaration import ShapeClass
from kfuzz.core.random_streams import Purpose, is_sampled
from kfuzz.core.recipe import Case
from kfuzz.evaluation.calling import Caller, without_edge
from kfuzz.execution.values.fills import logical_values
from kfuzz.numerics.accumulation import as_integers
from kfuzz.numerics.run import Raised

# A kernel that takes no size above this, or only sizes from the second on, has a fault.
_LEAST_GREATEST: Final = 16
_LEAST_LEAST: Final = 3
# Divisors that blocks and vector loads ask for.
_DIVISORS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_NUMBER: Final = re.compile(r"0x[0-9a-f]+|\d+")
# Two kinds of values: what depends on them is no matter of size.
_FAMILIES: Final = ("randn", "zeros")


@dataclass(frozen=True)
class Limit:
    """A condition on sizes outside of which a kernel raises.

    Attributes:
        text: what is rejected, in words: "N above 65,536".
        keeps: the condition, as `shape_class` takes it: "N <= 65536".
        like: what the exceptions have in common.
    """

    text: str
    keeps: str
    like: tuple[str, str]

    def explains(self, raised: Raised, sizes: Mapping[str, int]) -> bool:
        """Whether a call that raised met this limit.

        Args:
            raised: what it raised.
            sizes: of the case, by their names in a shape class.
        """
        known = ShapeClass(self.keeps).names <= set(sizes)
        beyond = known and not ShapeClass(self.keeps).accepts(sizes)
        return beyond and _like(raised) == self.like


def limit_of(caller: Caller, case: Case, raised: Raised) -> Limit | None:
    """Return the limit of the sizes that a case is beyond; None if there is none.

    Args:
        caller: calls the kernel.
        case: for which it raised.
        raised: what it raised.
    """
    kernel, device = caller.kernel, caller.memory.device

    @cache
    def raises(family: str, *sizes: tuple[str, int]) -> bool | None:
        made = sized(kernel.operator, case, dict(sizes), family)
        if not kernel.operator.accepts(made, kernel.declaration):
            return None
        values = {name: logical_values(made, name, device) for name in made.tensors}
        evidence, unsupported = caller.evidence(without_edge(Derived(made, values)))
        found = evidence.base.raised
        if unsupported or caller.lost or (found is not None and found.memory):
            return None
        return found is not None

    if not all(raises(family) for family in _FAMILIES):
        return None
    for name, axes in _named_axes(kernel.operator, case).items():
        alone = [(axis, 1) for axis in axes[1:]]

        def at(n: int) -> bool | None:
            return raises(_FAMILIES[0], (axes[0], n), *alone)  # noqa: B023

        n = math.prod(case.dims[axis] for axis in axes)
        if found := _condition(name, n, at):
            text, keeps, first = found
            # Whatever the other sizes are, and of a product whichever is large.
            ones = [(axis, 1) for axis in case.lead.axes]
            ends = (axes[0], axes[-1])
            if all(raises(_FAMILIES[0], *ones, (end, first)) for end in ends):
                return Limit(text, keeps, _like(raised))
    return None


def _named_axes(operator: Operator, case: Case) -> dict[str, tuple[str, ...]]:
    """Return the axes whose product each expression of a shape class is."""
    named = {name for p in operator.tensors.values() for name in p.names}
    made: dict[str, tuple[str, ...]] = {a: (a,) for a in case.dims if a in named}
    axes, reduced = case.lead.axes, operator.reduced_axis(case)
    if axes and named.isdisjoint(axes):
        own = axes[-1 if reduced is None else reduced]
        made["N"] = (own,)
        if rest := tuple(axis for axis in axes if axis != own):
            made |= {"M": rest, "M * N": (own, *rest)}
    return made


def _condition(
    name: str, n: int, raises: Callable[[int], bool | None]
) -> tuple[str, str, int] | None:
    """Return what is rejected, the condition that keeps it out, and such a size.

    Args:
        name: of the size.
        n: at which the kernel raises.
        raises: whether it does at a size; None where that cannot be said.
    """

    def takes(*sizes: int) -> bool:
        return all(raises(s) is False for s in sizes)

    def rejects(*sizes: int) -> bool:
        return all(raises(s) for s in sizes)

    if not n or not rejects(n):
        return None
    # Its multiples are taken, if they are small; 0 where nothing small is.
    unit = next((d for d in _DIVISORS if takes(d, 2 * d, 3 * d)), 0)
    if unit and n % unit:
        others = (unit // 2, 3 * unit // 2, 5 * unit // 2, unit + 1, 2 * unit - 1)
        if rejects(*(s for s in others if s % unit)):
            text = f"{name} that is no multiple of {unit}"
            return text, f"{name} % {unit} == 0", unit + 1
        unit = 0
    step = max(unit, 1)
    powers = [step << k for k in range(11)]
    ordinary = reversed(powers) if unit else powers
    edge = next((s for s in ordinary if (s < n) == bool(unit) and takes(s)), 0)
    bad, least = n, _LEAST_GREATEST if unit else _LEAST_LEAST
    while edge and abs(bad - edge) > step:
        middle = (bad + edge) // 2 // step * step
        edge, bad = (middle, bad) if takes(middle) else (edge, middle)
    if edge < least:
        return None
    if unit:
        found = f"{name} above {edge:,}", f"{name} <= {edge}", bad
        beyond = [bad + (n - bad) // 3, (bad + n) // 2, n + step, 2 * n, 3 * n]
        within = [edge - step, edge // 2, edge // 2 + step, edge // 3]
    else:
        found = f"{name} below {edge:,}", f"{name} >= {edge}", bad
        beyond = [1, 2, edge // 2, edge - 1]
        within = [edge + 1, 2 * edge - 1, 5 * edge]
    sizes = ([max(s // step, 1) * step for s in some] for some in (within, beyond))
    return found if takes(*next(sizes)) and rejects(*next(sizes)) else None


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
