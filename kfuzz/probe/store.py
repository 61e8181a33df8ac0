"""How results are rounded when they are stored."""

import math
from collections.abc import Sequence
from typing import Final

from kfuzz.core.arithmetic_facts import Outcome, Reading
from kfuzz.core.recipe import Case
from kfuzz.probe.formats import precision, unit
from kfuzz.probe.rows import Row
from kfuzz.probe.subject import Inapplicable, Subject, shown

STORE: Final = "store"
STOCHASTIC: Final = "stochastic"

# Results beside 1, in units roundoff u: ties at 1 and 3; the last is negative.
_BESIDE: Final = (1.0, 3.0, 1.5, 0.5, -1.5)
_TOLD: Final = {
    (0.0, 4.0, 2.0, 0.0, -2.0): ("rne", "to nearest, ties to even"),
    (0.0, 2.0, 0.0, 0.0, 0.0): ("rz", "towards zero"),
    (2.0, 4.0, 2.0, 0.0, -2.0): ("", "to nearest, ties away from zero"),
    (2.0, 4.0, 2.0, 2.0, 0.0): ("", "upwards"),
    (0.0, 2.0, 0.0, 0.0, -2.0): ("", "downwards"),
    (2.0, 4.0, 2.0, 2.0, -2.0): ("", "away from zero"),
}
_DRAWS: Final = 4096
_SIGNIFICANT: Final = 8.0


def store(subject: Subject) -> Reading:
    """Return how results between two numbers of the output's format are rounded."""
    _require_rounded(subject)
    u = unit(subject.dtype)
    asked = [(math.copysign(1.0, b), b * u) for b in _BESIDE]
    got, cases = _sums(subject, asked)
    beside = tuple(
        (value - one) / u for value, (one, _) in zip(got, asked, strict=True)
    )
    raw = (f"1 + {{1, 3, 1.5, 0.5}} u and -1 - 1.5 u give {shown(got)}",)
    mode = subject.claims.store
    if beside not in _TOLD:
        drawn = all(
            b in (math.floor(w / 2) * 2, math.ceil(w / 2) * 2)
            for b, w in zip(beside, _BESIDE, strict=True)
        )
        return subject.reading(
            STORE, "either neighbour" if drawn else "", mode,
            Outcome.AS_DECLARED if drawn and mode == "stochastic" else
            Outcome.UNDECIDED, observed=raw,
            reason="" if drawn else "no rounding of the exact sums gives this",
        )  # fmt: skip
    name, found = _TOLD[beside]
    if mode == "stochastic":
        outcome = Outcome.BETTER if name else Outcome.AS_DECLARED
    else:
        outcome = Outcome.AS_DECLARED if name == mode else Outcome.DIFFERS
    differs = outcome is Outcome.DIFFERS
    return subject.reading(
        STORE, found, mode, outcome, observed=raw,
        witnesses=tuple(cases),
        claims={"store": name} if differs and name else {},
    )  # fmt: skip


def stochastic(subject: Subject) -> Reading:
    """Return whether equal results are rounded now up, now down.

    A quarter of the way to the next number chance goes up once in four times.
    """
    _require_rounded(subject)
    u = unit(subject.dtype)
    draws = min(_DRAWS, subject.budget.rows)
    got, cases = _sums(subject, [(1.0, 0.5 * u)] * draws)
    up = sum(v > 1 for v in got)
    share = up / len(got)
    mode = subject.claims.store
    raw = (f"{up} of {len(got)} results of 1 + u / 2 are 1 + 2 u",)
    if 0 < up < len(got):
        scale = math.sqrt(len(got) * 0.25 * 0.75)
        odd = abs(up - 0.25 * len(got)) / scale > _SIGNIFICANT
        found = f"up in {share:.0%} of equal sums" + (", not in a quarter" * odd)
        drawn = mode == "stochastic"
        return subject.reading(
            STOCHASTIC, found, mode,
            Outcome.AS_DECLARED if drawn else Outcome.DIFFERS, observed=raw,
            witnesses=tuple(cases),
            claims={} if drawn else {"store": "stochastic"},
        )  # fmt: skip
    better = mode == "stochastic"
    return subject.reading(
        STOCHASTIC, "equal sums are rounded alike", mode,
        Outcome.BETTER if better else Outcome.AS_DECLARED, observed=raw,
    )  # fmt: skip


def _require_rounded(subject: Subject) -> None:
    """Raise Inapplicable unless exact sums are rounded on the way to the result."""
    if isinstance(subject.elements, str):
        if not subject.adder.exact:
            raise Inapplicable("weights are rounded before")
        if subject.adder.output != subject.dtype:
            raise Inapplicable("results have another format than the data")
    elif subject.elements.name != "add":
        raise Inapplicable(f"no exact results of {subject.elements.name} are known")
    if precision(subject.dtype) >= precision("float32"):
        raise Inapplicable("results are as wide as sums")


def _sums(
    subject: Subject, asked: Sequence[tuple[float, float]]
) -> tuple[list[float], list[Case]]:
    """Return the results of additions of two numbers, and the cases that give them."""
    if not isinstance(subject.elements, str):
        case, got = subject.elementwise(*zip(*asked, strict=True))
        return list(got), [case]
    n = subject.size()
    scale = subject.adder.divisor(n)
    rows = [Row(0.0, {0: one * scale, 1: other * scale}) for one, other in asked]
    # What divides the sum is taken out again.
    got = [v / scale for v in subject.values(n, rows)]
    return got, [subject.first_case(n, rows[: subject.budget.rows])[0]]
