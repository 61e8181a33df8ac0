"""Searching for the input on which two implementations differ."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

import torch
from torch import Tensor

from kfuzz.contracts.binding import Derived
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.oracle import compare_all
from kfuzz.core.budget import Depth, Scale
from kfuzz.core.dtypes import DTYPES
from kfuzz.core.finding import Line
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import Observed, in_digits
from kfuzz.engine.confirm import domain_of, fitted
from kfuzz.engine.reduce import reduce_case
from kfuzz.engine.search.found import drawn
from kfuzz.engine.workers.runner import Runner
from kfuzz.evaluation.calling import posed
from kfuzz.execution.values.fills import HOST, pinned
from kfuzz.execution.values.formula import INTEGERS
from kfuzz.features.diff.sides import NAMED, OPEN, REFERENCE
from kfuzz.report.text import one_line

FACTOR: Final = 4.0
"""What is allowed where no operator decides: so often the root of the longest sum that
a case may have, times how far one rounding of the inputs moves the results."""
# Steps of neighbouring inputs: all away from 0, all towards it, in turn, and mixed.
_WAYS: Final = ((1, 1), (-1, -1), (1, -1), (-1, 1), (), ())
_SHRINK_SECONDS: Final = 60.0
_LINE_SECONDS: Final = 30.0


@dataclass(frozen=True)
class Difference:
    """How two implementations differ on a case.

    Attributes:
        kind: "value", "special value", "form", "raises" or "bits".
        output: the result concerned, with the place in it.
        old: what the old one gives.
        new: what the new one gives.
        allowed: what would be, in words.
        outside: which side lies outside an operator's bound, "" where that is no one's.
        case: the smallest on which they differ so.
        first: the one that was found.
        line: the line of the side that is outside, None where none is known.
    """

    kind: str
    output: str
    old: str
    new: str
    case: Case
    first: Case
    allowed: str = ""
    outside: str = ""
    line: Line | None = None


class Differing:
    """Two implementations, each in a child of its own.

    Attributes:
        counts: cases by what came of them: "equal", "within", "uncompared".
        whys: why cases were not compared, and how often each.
        cut: whether the time ended the search.
    """

    def __init__(self, old: Runner, new: Runner, rule: str, *, bits: bool) -> None:
        self.counts: Counter[str] = Counter()
        self.whys: Counter[str] = Counter()
        self.cut = False
        self._old, self._new = old, new
        self._rule, self._bits = rule, bits
        self._kernel = old.loaded.kernel

    def search(
        self, cases: int, seed: int, ends: Callable[[], bool]
    ) -> Difference | None:
        """Return a smallest case on which they differ; None where none is found."""
        tried = self._old.generate(
            budget=self._old.place.budget, without=frozenset(), scale=Scale.USUAL,
            cases=cases, seed_value=seed,
        )  # fmt: skip
        for case in tried:
            if ends():
                self.cut = True
                break
            came = self._came_to(case)
            if isinstance(came, Difference):
                # Neither differs from itself, and made values differ as those drawn.
                first, sides = self._old.pin(case), (self._old, self._new)
                again = self._came_to(first)
                steady = not any(side.observe(first, 2).unlike for side in sides)
                if steady and isinstance(again, Difference):
                    return self._smallest(again)
                came = "uncompared"
            self.counts[came] += 1
        return None

    def _came_to(self, case: Case) -> Difference | str:
        """Return how they differ on a case, or what to count it as."""
        old, new = self._old.observe(case), self._new.observe(case)
        if old.problem or new.problem:
            if (old.problem and new.problem) or not (old.calls and new.calls):
                self.whys[one_line(old.problem or new.problem)] += 1
                return "uncompared"
            one, two = (one_line(o.problem) or "returns" for o in (old, new))
            return Difference("raises", "", one, two, case, case)
        one, two = (
            ", ".join(f"{n}: {s.dtype}{[*s.shape]}" for n, s in o.outputs.items())
            for o in (old, new)
        )
        if one != two:
            return Difference("form", "", one, two, case, case)
        if old.outputs == new.outputs:
            return "equal"
        if not self._bits:
            return self._apart(self._old.pin(case), old, new) or "within"
        unlike = {n: _raw(x) != _raw(y) for n, x, y in _pairs(old, new)}
        return _worst("bits", case, old, new, unlike) or "within"

    def _apart(self, case: Case, old: Observed, new: Observed) -> Difference | None:
        """Return how results differ beyond what the rule allows."""
        if self._rule == OPEN:
            return self._unexplained(case, old, new, {})
        values = {n: pinned(s, HOST) for n, s in case.tensors.items()}
        claims, operator = self._kernel.declaration, self._kernel.operator
        accepted = posed(operator, claims, Derived(case, values)).acceptance or {}
        mine, its = (
            compare_all({n: pinned(s, HOST) for n, s in o.outputs.items()}, accepted)
            for o in (old, new)
        )
        missed = {n: (mine[n].missed[0], its[n].missed[0]) for n in accepted}
        # What is guessed holds where the old one keeps to it.
        if self._rule != NAMED and any(bool(m.any()) for m, _ in missed.values()):
            return self._unexplained(case, old, new, {})
        bounds = {n: (c.low[0], c.high[0]) for n, c in its.items()}
        for side, at in (("new", 1), ("old", 0)):
            alone = {n: m[at] & ~m[1 - at] for n, m in missed.items()}
            found = _worst("value", case, old, new, alone, bounds)
            if self._rule == REFERENCE:
                found = found and self._unexplained(case, old, new, alone)
            elif found:
                text = f"{found.allowed}, by the bound of {operator.name}"
                found = replace(found, outside=side, allowed=text)
            if found:
                return found
        both = {n: m & other for n, (m, other) in missed.items()}
        if any(bool(m.any()) for m in both.values()):
            return self._unexplained(case, old, new, both)
        return None

    def _unexplained(
        self, case: Case, old: Observed, new: Observed, where: Mapping[str, Tensor]
    ) -> Difference | None:
        """Return a difference that no rounding of the inputs explains.

        Args:
            case: with all values explicit.
            old: its results.
            new: its results.
            where: which elements are asked for, by output; all by default.
        """
        moved = [
            (base, side.observe(rounded))
            for rounded in _rounded(case, self._kernel.operator)
            for base, side in ((old, self._old), (new, self._new))
        ]
        sizes = [n for s in case.tensors.values() for n in s.shape]
        most = max((s.numel for s in case.tensors.values()), default=1)
        floats = [s for s in case.tensors.values() if DTYPES[s.dtype].kind == "float"]
        given = [_finite(pinned(s, HOST).double()).abs() for s in floats if s.numel]
        largest = max((float(x.max()) for x in given), default=0.0)
        values: dict[str, Tensor] = {}
        special: dict[str, Tensor] = {}
        for name, x, y in _pairs(old, new):
            a, b = x.double(), y.double()
            spread, open_ = torch.zeros_like(a), torch.zeros_like(a, dtype=torch.bool)
            for base, seen in moved:
                if seen.problem or seen.outputs[name].shape != base.outputs[name].shape:
                    open_ |= True
                    continue
                p, q = (pinned(o.outputs[name], HOST).double() for o in (base, seen))
                open_ |= _class(p) != _class(q)
                spread = torch.maximum(spread, _finite((p - q).abs()))
            if x.dtype.is_floating_point:
                info = torch.finfo(x.dtype)
                spread += _finite(torch.maximum(a.abs(), b.abs())) * info.eps
                spread += info.tiny
            terms = max(*sizes, 1, most // max(x.numel(), 1))
            if x.dtype.is_floating_point:
                # Partial sums may overflow in one order, and in another not.
                overflows = terms * largest > torch.finfo(x.dtype).max
                open_ |= overflows & (a.isinf() ^ b.isinf())
            asked = where.get(name, torch.ones_like(open_)) & ~open_
            special[name] = asked & (_class(a) != _class(b))
            far = _finite((a - b).abs()) > FACTOR * math.sqrt(terms) * spread
            if not x.dtype.is_floating_point:  # beyond what float64 tells apart, too
                far = torch.where(spread > 0, far, x != y)
            values[name] = asked & ~special[name] & far
        found = _worst("special value", case, old, new, special)
        found = found or _worst("value", case, old, new, values)
        text = f"{FACTOR:g} sqrt(longest sum) roundings of the inputs"
        return found and replace(found, allowed=text)

    def _smallest(self, found: Difference) -> Difference:
        """Return the difference on the smallest case that shows one of its kind."""
        best = found

        def fails(case: Case) -> bool:
            nonlocal best
            made, alike = self._came_to(case), (best.kind, best.outside)
            if isinstance(made, str) or (made.kind, made.outside) != alike:
                return False
            best = made
            return True

        operator = self._kernel.operator
        reduce_case(
            found.case, fails, domain_of(self._old, found.case),
            deadline=time.monotonic() + _SHRINK_SECONDS,
            fitted=lambda case: fitted(operator, case),
        )  # fmt: skip
        for side in (self._old, self._new):
            side.close()  # what comes next comes from fresh processes
        if not fails(best.case):
            best = found
        return replace(best, first=found.case, line=self._line(best))

    def _line(self, found: Difference) -> Line | None:
        """Return the line of the side that is outside, where it can be found."""
        if self._rule != NAMED or not found.outside:
            return None
        side = self._new if found.outside == "new" else self._old
        failure = side.judge(found.case, Depth.SEARCH).failure
        if failure is None:
            return None
        until = time.monotonic() + _LINE_SECONDS
        signature = failure.signature(self._kernel.name)
        cases = [found.case, *drawn(self._old.loaded)]
        return side.line_of(cases, signature, until, False).line


def _pairs(old: Observed, new: Observed) -> Iterator[tuple[str, Tensor, Tensor]]:
    for name, spec in old.outputs.items():
        yield name, pinned(spec, HOST), pinned(new.outputs[name], HOST)


def _raw(x: Tensor) -> Tensor:
    return x.view(INTEGERS[x.element_size()])


def _finite(x: Tensor) -> Tensor:
    return x.nan_to_num(0.0, 0.0, 0.0)


def _class(x: Tensor) -> Tensor:
    """Return 0 for a number, 1 for NaN, and 2 and 3 for infinities."""
    return x.isnan() + 2 * (x == torch.inf) + 3 * (x == -torch.inf)


def _rounded(case: Case, operator: Operator) -> Iterator[Case]:
    """Yield the case with each number of its inputs at one beside it."""
    for number, way in enumerate(_WAYS):
        chance = torch.Generator().manual_seed(number)
        tensors = dict(case.tensors)
        for name, spec in case.tensors.items():
            if DTYPES[spec.dtype].kind == "float" and spec.values:
                x = pinned(spec, HOST)
                steps = torch.randint(0, 2, x.shape, generator=chance) * 2 - 1
                for at, step in enumerate(way):
                    steps.flatten()[at::2] = step
                made = (_raw(x) + steps).to(_raw(x).dtype)
                beside = made.view(x.dtype).double()
                stays = (x.double() == 0) | ~x.double().isfinite() | ~beside.isfinite()
                bits = torch.where(stays, _raw(x), made).numpy().tobytes()
                tensors[name] = replace(spec, values=bits)
        yield fitted(operator, replace(case, tensors=tensors))


def _worst(
    kind: str,
    case: Case,
    old: Observed,
    new: Observed,
    masks: Mapping[str, Tensor],
    bounds: Mapping[str, tuple[Tensor, Tensor]] = MappingProxyType({}),
) -> Difference | None:
    """Return the greatest difference among masked elements, None if none is."""
    for name, x, y in _pairs(old, new):
        mask = masks.get(name)
        if mask is None or not bool(mask.any()):
            continue
        a, b = x.double().flatten(), y.double().flatten()
        far = (a - b).abs().nan_to_num(torch.inf, torch.inf)
        at = int(torch.where(mask.flatten(), far, -1.0).argmax())
        place = [int(i) for i in torch.unravel_index(torch.tensor(at), x.shape)]
        count = int(mask.sum())
        some = f" ({count} of {mask.numel()} elements differ)" if count > 1 else ""
        ends = ", ".join(f"{end.flatten()[at]:.9g}" for end in bounds.get(name, ()))
        one, other = in_digits(9, a[at].item(), b[at].item())
        told = one, other + some
        output = f"{name}{place or ''}"
        return Difference(kind, output, *told, case, case, ends and f"[{ends}]")
    return None
