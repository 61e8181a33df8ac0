"""Elementary functions, and what IEEE 754 says of special values."""

import math
from collections.abc import Callable
from typing import Final

from kfuzz.core.arithmetic_facts import Outcome, Reading
from kfuzz.core.dtypes import DTYPES, pack_bits, unpack_numbers
from kfuzz.probe.formats import least_normal, rounded, ulps, unit
from kfuzz.probe.rows import Row
from kfuzz.probe.subject import Inapplicable, Subject, number

INTRINSICS: Final = "intrinsics"
SPECIAL: Final = "special"

# Units in the last place: what documented functions of float32 keep to, and, where
# results are rounded to fewer bits, half of one more.
_FINE: Final = {"float32": 2.5}
_NARROW: Final = 0.75
# Instructions that approximate are off by 2^-11 of a result, or by less.
_APPROXIMATE: Final = 2.0**-10
_SHOWN: Final = 16
_SAMPLED: Final = 2048
# Exponentials below this vanish: flushing is the matter of another probe.
_TINY: Final = 2.0


def _sigmoid(x: float) -> float:
    if x >= 0:
        return 1 / (1 + math.exp(-x))
    grown = math.exp(x)
    return grown / (1 + grown)


def _gelu(x: float) -> float:
    return 0.5 * x * math.erfc(-x / math.sqrt(2))


def _gelu_tanh(x: float) -> float:
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return 0.5 * x * (1 + math.tanh(inner))


_FUNCTIONS: Final[dict[str, tuple[Callable[[float], float], float, float]]] = {
    # Each with the range of its arguments.
    "exp": (math.exp, -87.0, 88.0),
    "log": (math.log, 2.0**-100, 2.0**100),
    "tanh": (math.tanh, -8.0, 8.0),
    "sigmoid": (_sigmoid, -80.0, 80.0),
    "silu": (lambda x: x * _sigmoid(x), -80.0, 80.0),
    "gelu": (_gelu, -3.0, 8.0),
    "gelu_tanh": (_gelu_tanh, -3.0, 8.0),
}
# Where fast forms are furthest off.
_TELLING: Final = {
    "exp": [80.0, 84.5, 87.75, -80.0, -86.5],
    "log": [1 + 2.0**-23, 1 - 2.0**-24, 1 + 2.0**-12, 0.75],
    "tanh": [0.5, 0.25, 2.0**-12, -1.5],
}


def intrinsics(subject: Subject) -> Reading:
    """Return how far an elementary function is from the true one, at most."""
    elements = subject.elements
    if isinstance(elements, str) or elements.name not in _FUNCTIONS:
        raise Inapplicable("it is no elementary function")
    function, low, high = _FUNCTIONS[elements.name]
    xs = _arguments(subject.dtype, elements.name, low, high)
    _, got = subject.elementwise(xs)
    off = [
        (ulps(y, function(x), subject.dtype), x, y)
        for x, y in zip(xs, got, strict=True)
        if abs(function(x)) >= _TINY * least_normal(subject.dtype)
        and math.isfinite(rounded(function(x), subject.dtype))
    ]
    worst = sorted(off, reverse=True)[:_SHOWN]
    most, at, value = worst[0]
    found = f"{most:.3g} ulp at most, at {number(at)}"
    fine = most <= _FINE.get(subject.dtype, _NARROW)
    approx = subject.claims.approx
    outcome = Outcome.AS_DECLARED
    if fine and approx:
        outcome = Outcome.BETTER
    elif not fine and not approx:
        outcome = Outcome.DIFFERS
    differs = outcome is Outcome.DIFFERS
    witness = elements.case([x for _, x, _ in worst]) if differs else None
    return subject.reading(
        INTRINSICS, found, "fast forms" if approx else "accurate forms", outcome,
        observed=(f"at {number(at)}: {number(value)}, {function(at)!r} is right",),
        witnesses=() if witness is None else (witness,),
        claims={"approx": True} if differs and most * unit(subject.dtype) < _APPROXIMATE
        else {},
    )  # fmt: skip


def _arguments(dtype: str, name: str, low: float, high: float) -> list[float]:
    """Return arguments: all of a 16-bit format, a sample of a wider one."""
    bits = 8 * DTYPES[dtype].itemsize
    if bits <= 16:
        every = unpack_numbers(pack_bits(range(1 << bits), dtype), dtype)
        return [x for x in every if low <= x <= high and x]
    step = (high - low) / _SAMPLED
    even = [rounded(low + i * step, "float32") for i in range(1, _SAMPLED)]
    if low > 0:  # by exponents
        even = [
            rounded(2.0 ** (math.log2(low) + i * math.log2(high / low) / _SAMPLED),
                    "float32")
            for i in range(1, _SAMPLED)
        ]  # fmt: skip
    return [*_TELLING.get(name, []), *[x for x in even if x]]


_INF, _NAN = math.inf, math.nan
# Arguments of elementwise operators, and the result that IEEE 754 gives them.
_SPECIAL: Final[dict[str, list[tuple[float, ...]]]] = {
    "add": [(_INF, -_INF, _NAN), (_NAN, 1.0, _NAN)],
    "mul": [(0.0, _INF, _NAN), (0.0, _NAN, _NAN), (_INF, -1.0, -_INF)],
    "relu": [(_NAN, _NAN), (-_INF, 0.0)],
    "exp": [(_NAN, _NAN), (_INF, _INF), (-_INF, 0.0)],
    "log": [(_NAN, _NAN), (-1.0, _NAN), (0.0, -_INF)],
    "tanh": [(_NAN, _NAN), (_INF, 1.0)],
    "sigmoid": [(_NAN, _NAN), (-_INF, 0.0)],
    "copy": [(_NAN, _NAN)],
    "silu": [(_NAN, _NAN)],
    "gelu": [(_NAN, _NAN)],
    "gelu_tanh": [(_NAN, _NAN)],
}


def special(subject: Subject) -> Reading:
    """Return whether NaN and infinities have the results that IEEE 754 gives them."""
    mode = subject.claims.nonfinite
    if mode != "propagate":
        raise Inapplicable(f'nonfinite="{mode}" is declared')
    inf, nan = _INF, _NAN
    asked: list[tuple[str, float, float]] = []
    cases = []
    if not DTYPES[subject.dtype].has_inf:
        raise Inapplicable(f"{subject.dtype} has no infinity")
    if isinstance(subject.elements, str):
        n = subject.size()
        rows = [
            ("a NaN among the terms", Row(0.0, {3: nan}), nan),
            ("Inf and -Inf", Row(0.0, {0: inf, 5: -inf}), nan),
            ("Inf alone", Row(1.0, {2: inf}), inf),
        ]
        right = Row(1.0)
        if subject.adder.products:
            right = Row(1.0, {9: 0.0})
            rows.append(("0 times Inf", Row(0.0, {9: inf}), nan))
        got = subject.values(n, [row for _, row, _ in rows], [right])
        asked = [
            (what, value, wanted)
            for (what, _, wanted), value in zip(rows, got, strict=True)
        ]
        cases = [subject.case(n, [row], [right]) for _, row, _ in rows]
    else:
        name = subject.elements.name
        if name not in _SPECIAL:
            raise Inapplicable(f"no special results of {name} are listed")
        for *values, wanted in _SPECIAL[name]:
            case, [value, *_] = subject.elementwise(*[[v] * 16 for v in values])
            asked.append((f"{name} of {', '.join(map(repr, values))}", value, wanted))
            cases.append(case)
    wrong = [i for i, (_, got, want) in enumerate(asked) if not _same(got, want)]
    raw = tuple(f"{what}: {got!r}, {want!r} is right" for what, got, want in asked)
    if not wrong:
        return subject.reading(
            SPECIAL, "as IEEE 754 specifies", mode, Outcome.AS_DECLARED, observed=raw
        )
    found = "; ".join(f"{asked[i][0]} gives {asked[i][1]!r}" for i in wrong)
    return subject.reading(
        SPECIAL, found, mode, Outcome.DIFFERS, observed=raw,
        witnesses=tuple(cases[i] for i in wrong),
    )  # fmt: skip


def _same(got: float, wanted: float) -> bool:
    return math.isnan(got) if math.isnan(wanted) else got == wanted
