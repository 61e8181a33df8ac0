"""Hundreds of calls of one child: what a candidate makes of its history.

The first result for each input is judged as in any case, with what the call left of the
arguments. A later one with the same bits is as right; one with other bits is judged
from the bytes that came back, which are played to the evaluator in the candidate's
place. Where the bits of each call vary, most results are only held to the bound, which
is derived once.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from torch import Tensor

from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CaseReport
from kfuzz.numerics.elements import identical, same_bits

MOST: Final = 1_500
"""Calls of a run: more than warm-ups, timings and checks of the usual benchmarks."""

HUNDREDS: Final = 640
"""Calls that are made though they take more than their share of the time."""

# Results of one input with other bits than the first that are judged in full, whatever
# the bound says.
_JUDGED: Final = 16

Call = Callable[..., Any]
Holds = Callable[[Any], bool]


@dataclass(frozen=True)
class Recorded:
    """What came back of one call, to be played to whoever judges it.

    Attributes:
        returned: the results, None where it raised.
        raised: the exception, None where it returned.
        left: the arguments that it changed, as it left them, None for each other one.
    """

    returned: Any = None
    raised: Exception | None = None
    left: tuple[Tensor | None, ...] = ()

    @classmethod
    def of(cls, call: Call, values: Sequence[Tensor]) -> "Recorded":
        """Call on copies of values and keep what comes back."""
        given = [x.clone() for x in values]
        try:
            returned = _copied(call(*given))
        except Exception as error:
            return cls(raised=error)
        pairs = zip(given, values, strict=True)
        left = tuple(None if identical(x, was) else x for x, was in pairs)
        return cls(returned=returned, left=left)

    def play(self, *tensors: Tensor) -> Any:
        """Give what came back, again."""
        if self.raised is not None:
            raise self.raised
        for x, left in zip(tensors, self.left, strict=False):
            if left is not None:
                x.copy_(left)
        return _copied(self.returned)

    def is_like(self, other: "Recorded", *, bits: bool) -> bool:
        """Whether both returned, and the same; without `bits` of any values."""
        if self.raised is not None or other.raised is not None:
            return False
        same = _same(self.left, other.left, bits=True)
        return same and _same(self.returned, other.returned, bits=bits)


def long_run(
    cases: Sequence[Case],
    *,
    values: Callable[[Case], Sequence[Tensor]],
    call: Call,
    judge: Callable[[Case, Recorded], CaseReport],
    bound: Callable[[Case], Holds],
    seed: int,
    calls: int,
    over: Callable[[int], bool],
) -> tuple[Case, CaseReport] | None:
    """Call on cases in a row; return the first that fails, and how.

    Args:
        cases: small ones.
        values: returns the tensors of one.
        call: calls the candidate.
        judge: judges what came back of a call on a case.
        bound: returns what tells whether the results of a case lie within their bound.
        seed: the order of the cases depends on it.
        calls: how many are made.
        over: whether there is no more time, given how many calls were made.
    """
    draw = random.Random(seed)
    given = [list(values(case)) for case in cases]
    firsts: dict[int, Recorded] = {}
    bounds: dict[int, Holds] = {}
    judged = dict.fromkeys(range(len(cases)), 0)
    for made_so_far in range(calls):
        if over(made_so_far):
            return None
        number = draw.randrange(len(cases))
        made = Recorded.of(call, given[number])
        first = firsts.get(number)
        if first is not None and first.is_like(made, bits=True):
            continue
        known = first if judged[number] >= _JUDGED else None
        if known is not None and known.is_like(made, bits=False):
            if number not in bounds:
                bounds[number] = bound(cases[number])
            if bounds[number](made.returned):
                continue
        judged[number] += 1
        report = judge(cases[number], made)
        if report.failure is not None:
            return cases[number], report
        firsts.setdefault(number, made)
    return None


def _copied(returned: Any) -> Any:
    if isinstance(returned, Tensor):
        return returned.clone()
    if isinstance(returned, tuple | list):
        return type(returned)(map(_copied, returned))
    return returned


def _same(one: Any, other: Any, *, bits: bool) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        alike = (one.shape, one.dtype, one.stride()) == (
            other.shape,
            other.dtype,
            other.stride(),
        )
        return alike and (not bits or bool(same_bits(one, other).all()))
    if isinstance(one, tuple | list) and type(one) is type(other):
        same = partial(_same, bits=bits)
        return len(one) == len(other) and all(map(same, one, other))
    return one is None and other is None
