"""Probes of everything but the order of additions."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from kfuzz.core.declaration import Accumulator
from kfuzz.core.dtypes import DTYPES, pack_bits, unpack_numbers
from kfuzz.core.recipe import Case
from kfuzz.features.lab.probe.orders import meeting
from kfuzz.features.lab.probe.sums import (
    NOTHING,
    ONES,
    SHORT,
    SIZES,
    Inapplicable,
    Outcome,
    Reading,
    Row,
    Subject,
    Unobserved,
    number,
    rounded,
    shown,
    ulps,
)
from kfuzz.numerics.formats import FORMATS

INTRINSICS: Final = "intrinsics"

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
    extended = math.exp(x)
    return extended / (1 + extended)


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
        if abs(function(x)) >= _TINY * FORMATS[subject.dtype].min_normal
        and math.isfinite(rounded(function(x), subject.dtype))
    ]
    worst = sorted(off, reverse=True)[:_SHOWN]
    most, at, value = worst[0]
    found = f"{most:.3g} ulp at most, at {number(at)}"
    fine = most <= _FINE.get(subject.dtype, _NARROW)
    approx = subject.claims.approx
    outcome = Outcome.AS_DECLARED
    if fine == approx:
        outcome = Outcome.BETTER if fine else Outcome.DIFFERS
    near = most * FORMATS[subject.dtype].unit < _APPROXIMATE
    return subject.reading(
        INTRINSICS, found, "fast forms" if approx else "accurate forms", outcome,
        observed=(f"at {number(at)}: {number(value)}, {function(at)!r} is right",),
        witnesses=tuple(filter(None, [elements.case([x for _, x, _ in worst])])),
        claims={"approx": True} if near else {},
    )  # fmt: skip


def _arguments(dtype: str, name: str, low: float, high: float) -> list[float]:
    """Return arguments: all of a 16-bit format, a sample of a wider one."""
    bits = 8 * DTYPES[dtype].itemsize
    if bits <= 16:
        every = unpack_numbers(pack_bits(range(1 << bits), dtype), dtype)
        return [x for x in every if low <= x <= high and x]
    if low > 0:  # by exponents
        ratio = math.log2(high / low) / _SAMPLED
        even = [low * 2.0 ** (i * ratio) for i in range(1, _SAMPLED)]
    else:
        even = [low + i * (high - low) / _SAMPLED for i in range(1, _SAMPLED)]
    sampled = (rounded(x, "float32") for x in even)
    return [*_TELLING.get(name, []), *filter(None, sampled)]


# What becomes of operands and of products: TF32, subnormal numbers, contraction.

OPERANDS: Final = "operands"
SUBNORMALS: Final = "subnormals"
CONTRACTION: Final = "contraction"

_X: Final = 1 + 2.0**-11 + 2.0**-12 + 2.0**-23
_SQUARED: Final = 1 + 2.0**-12 + 2.0**-23
# What the square is in float32, rounded once.
_SQUARE: Final = 1 + 2.0**-11 + 2.0**-22 + 2.0**-23
# One unit in the last place is lost by truncation too.
_CUT: Final = 1.5 * 2.0**-23
_UNROUNDED: Final = "products are added unrounded, as by fused multiply-add"


def operands(subject: Subject) -> Reading:
    """Return the format in which float32 operands are multiplied or added.

    1 + 2^-11 + 2^-12 + 2^-23 is 1 + 2^-10 rounded to TF32 or float16, 1 truncated to
    TF32 and in bfloat16; 1 + 2^-9 tells these apart, and 1e5 float16.
    """
    if subject.dtype != "float32":
        raise Inapplicable("it concerns float32 data")
    n = subject.size()
    alone = [Row(0.0, {0: x}) for x in (_X, 1 + 2.0**-9, 100000.0)]
    fine, coarse, large = subject.values(n, alone)
    raw = [f"1 + 2^-11 + 2^-12 + 2^-23 gives 1 + {number(fine - 1)}"]
    raw += [f"1 + 2^-9 gives 1 + {number(coarse - 1)}", f"100000 gives {number(large)}"]
    square, case = None, subject.case(n, alone[:1])
    factors = Row(0.0, {0: _SQUARED})
    if subject.adder.products:
        [square] = subject.values(n, [factors], [factors])
        raw.append(f"(1 + 2^-12 + 2^-23)^2 gives 1 + {number(square - 1)}")
    narrow = {
        1 + 2.0**-10: ("TF32, rounded", "tf32"), 1.0: ("TF32, truncated", "tf32"),
    }  # fmt: skip
    if math.isinf(large):
        found, bits = "float16", "float16"
    elif fine == _X and square is not None and abs(square - _SQUARE) > _CUT:
        found, bits = "in parts, as three products in TF32", "tf32x3"
        case = subject.case(n, [factors], [factors])
    elif fine == _X:
        found = bits = "float32"
    elif coarse == 1:
        found = bits = "bfloat16"
    elif fine in narrow:
        found, bits = narrow[fine]
    else:
        raise Unobserved("no format gives this", observed=tuple(raw), terms=n)
    model = subject.accumulator.model
    ranked = {"bfloat16": 0, "float16": 0, "tf32": 1, "tf32x3": 2, "float32": 3}
    declared = "tf32" if model == "any_tensor_core" else model
    wanted = ranked.get(declared, 3)
    # The two narrow formats have one rank, but not one precision and range.
    if ranked[bits] == wanted and (wanted or bits == declared):
        outcome = Outcome.AS_DECLARED
    else:
        outcome = Outcome.BETTER if ranked[bits] > wanted else Outcome.DIFFERS
    text = {1: "TF32", 2: "three products in TF32", 0: model}.get(wanted, "float32")
    return subject.reading(
        OPERANDS, found, text, outcome, terms=n, observed=tuple(raw),
        claims={"accumulator": bits} if bits.startswith("tf32") else {},
        witnesses=(case,),
    )  # fmt: skip


def subnormals(subject: Subject) -> Reading:
    """Return whether subnormal numbers keep their value, at several lengths."""
    asked = list(_asked(subject))
    flushed = [what for what, _, got, wanted in asked if got != wanted]
    raw = tuple(
        f"{what}: {number(got)}, {number(wanted)} if kept"
        for what, _, got, wanted in asked
    )
    mode = subject.claims.subnormals
    if any(got not in (0.0, wanted) for _, _, got, wanted in asked):
        why = "what is there is neither kept nor 0"
        raise Unobserved(why, declared=mode, observed=raw)
    every = len(flushed) == len(asked)
    found = "kept" if not flushed else "flushed"
    if flushed and not every:
        found = f"flushed: {', '.join(dict.fromkeys(flushed))}"
    outcome = Outcome.AS_DECLARED
    if (mode == "preserve" and flushed) or (mode == "flush" and not every):
        outcome = Outcome.DIFFERS
    elif mode == "any" and not flushed:
        outcome = Outcome.BETTER
    kept, better = mode == "flush", outcome is Outcome.BETTER
    return subject.reading(
        SUBNORMALS, found, mode, outcome, observed=raw,
        witnesses=tuple(c for _, c, got, wanted in asked if (got == wanted) is kept),
        claims={"subnormals": "flush" if every else "any"},
        adopts={"subnormals": "preserve"} if better else {},
    )  # fmt: skip


def _asked(subject: Subject) -> Iterator[tuple[str, Case, float, float]]:
    """Yield what is asked: in words, the case, what came, what is right."""
    if not isinstance(subject.elements, str):
        yield from _of_elements(subject)
        return
    adder = subject.adder
    n = subject.size()
    lengths = {n, *[m for m in (128, 256) if m <= subject.most_terms]}
    low, least = FORMATS[adder.output].min_normal, FORMATS[adder.output].min_subnormal
    data_low = FORMATS[subject.dtype].min_normal
    data_least = FORMATS[subject.dtype].min_subnormal
    for terms in sorted(m for m in lengths if subject.accepts(m)):
        divisor = float(adder.divisor(terms))

        def one(
            what: str, row: Row, right: Row, wanted: float,
            terms: int = terms, divisor: float = divisor,
        ) -> tuple[str, Case, float, float]:  # fmt: skip
            case = subject.case(terms, [row], [right])
            [value] = subject.values(terms, [row], [right])
            return what, case, value / divisor, wanted

        if divisor > 1:  # the mean of equal terms is each of them
            yield one("results", Row(data_least), ONES[0], data_least)
            continue
        # TF32 holds the first; the least would be rounded away, which is no flushing.
        given = data_low / 2 if subject.dtype == "float32" else data_least
        row = Row(0.0, {0: given})
        if adder.products:
            # Times a power of two, so that the result is no matter of its own.
            up = 4.0 if adder.output != subject.dtype else 2.0**10
            if subject.dtype in ("float32", "bfloat16", "float64"):
                up = 2.0**40
            yield one("operands", row, Row(1.0, {0: up}), given * up)
            if adder.output == subject.dtype:
                small = Row(0.0, {0: low * 2.0**5})
                yield one("products", small, Row(1.0, {0: 2.0**-6}), low / 2)
        else:
            yield one("operands", row, ONES[0], given)
        if adder.output == subject.dtype and least < low:
            cut = Row(0.0, {0: 1.5 * data_low, 1: -data_low})
            yield one("sums", cut, ONES[0], data_low / 2)


def _of_elements(subject: Subject) -> Iterator[tuple[str, Case, float, float]]:
    elements = subject.elements
    assert not isinstance(elements, str)
    low, least = FORMATS[subject.dtype].min_normal, FORMATS[subject.dtype].min_subnormal
    copies: list[tuple[str, tuple[float, ...], float]]
    copies = [("operands", (least,), least), ("operands", (low / 2,), low / 2)]
    known: dict[str, list[tuple[str, tuple[float, ...], float]]] = {
        **dict.fromkeys(("copy", "relu", "leaky_relu"), copies),
        "mul": [
            ("operands", (least, 4.0), 4 * least), ("products", (low, 0.5), low / 2)
        ],
        "add": [
            ("operands", (least, 0.0), least), ("sums", (1.5 * low, -low), low / 2)
        ],
    }  # fmt: skip
    asked = known.get(elements.name)
    if asked is None:
        raise Inapplicable(f"no subnormal result of {elements.name} is known exactly")
    for what, values, wanted in asked:
        case, [got, *_] = subject.elementwise(*[[v] * 16 for v in values])
        yield what, case, got, wanted


def contraction(subject: Subject) -> Reading:
    """Return whether products are rounded before they are added.

    Of a = 1 + 2^-12 the square less 1 + 2^-11 is 2^-24, or 0 if it was rounded.
    """
    if subject.dtype != "float32":
        raise Inapplicable("it concerns float32 data")
    if not subject.adder.products:
        raise Inapplicable("it multiplies nothing")
    n = subject.size()
    a, b = 1 + 2.0**-12, -(1 + 2.0**-11)
    [alone] = subject.values(n, [Row(0.0, {0: a})])
    if alone != a:
        raise Unobserved("operands or sums are too narrow to tell")
    got = []
    for first, second in ((0, 1), (1, 0)):
        left, right = Row(0.0, {first: a, second: b}), Row(1.0, {first: a, second: 1.0})
        got += subject.values(n, [left], [right])
    # In one of the two orders the product comes first and is rounded to begin with.
    told = {0.0: "products are rounded", 2.0**-24: _UNROUNDED}
    raw = (f"a a - (1 + 2^-11) = {shown(got)}, a = 1 + 2^-12",)
    if max(got) not in told or min(got) not in (0.0, max(got)):
        raise Unobserved("neither way of adding gives this", observed=raw, terms=n)
    return subject.undeclared(CONTRACTION, told[max(got)], observed=raw, terms=n)


# How results are rounded when they are stored.

STORE: Final = "store"

# Results beside 1, in units roundoff u: ties at 1 and 3; the last is negative.
_BESIDE: Final = (1.0, 3.0, 1.5, 0.5, -1.5)
_TOLD: Final[dict[tuple[float, ...], tuple[str, str]]] = {
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
    u = FORMATS[subject.dtype].unit
    asked = [(math.copysign(1.0, b), b * u) for b in _BESIDE]
    got, cases = _sums(subject, asked)
    beside = tuple(
        (value - one) / u for value, (one, _) in zip(got, asked, strict=True)
    )
    raw = [f"1 + {{1, 3, 1.5, 0.5}} u and -1 - 1.5 u give {shown(got)}"]
    name, found = _TOLD.get(beside, ("", ""))
    # A quarter of the way to the next number chance goes up once in four times.
    draws = min(_DRAWS, subject.budget.rows)
    equal, more = _sums(subject, [(1.0, 0.5 * u)] * draws)
    up = sum(v > 1 for v in equal)
    if 0 < up < draws:
        odd = abs(up - 0.25 * draws) / math.sqrt(draws * 0.1875) > _SIGNIFICANT
        name, found = "stochastic", f"up in {up / draws:.0%} of equal sums"
        found += ", not in a quarter" * odd
        cases = more
        raw.append(f"{up} of {draws} results of 1 + u / 2 are 1 + 2 u")
    mode = subject.claims.store
    if not found:
        outcome = Outcome.UNDECIDED
    elif name == mode:
        outcome = Outcome.AS_DECLARED
    else:
        outcome = Outcome.BETTER if mode == "stochastic" else Outcome.DIFFERS
    return subject.reading(
        STORE, found, mode, outcome, observed=tuple(raw),
        reason="" if found else "no rounding of the exact sums gives this",
        witnesses=tuple(cases),
        claims={"store": name} if name else {},
    )  # fmt: skip


def _require_rounded(subject: Subject) -> None:
    """Raise Inapplicable unless exact sums are rounded on the way to the result."""
    if isinstance(subject.elements, str):
        if subject.adder.output != subject.dtype:
            raise Inapplicable("results have another format than the data")
    elif subject.elements.name != "add":
        raise Inapplicable(f"no exact results of {subject.elements.name} are known")
    if FORMATS[subject.dtype].precision >= FORMATS["float32"].precision:
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


# How many bits sums are kept in, and how matrix units align and round them.

ACCUMULATOR: Final = "accumulator"
ALIGNMENT: Final = "alignment"
FUSED: Final = "fused"

# Distances between terms of 1: a tile in which several meet first hides what is
# narrow between tiles alone.
_TILES: Final = (1, 16, 32, 64, 128, 256)
# The great term is 2^b. While b is two less than the bits of a format, sums of it and
# of fewer than 2^b units are exact in every order.
_LEAST: Final = 5
_SPARE: Final = 2
# Two factors make the great term in the narrower formats.
_RIGHT: Final = {"float16": 11, "float8_e4m3fn": 7, "float8_e5m2": 11}
# Exponents of the least power of two that these hold, and of the greatest.
_REACH: Final = {
    "float16": (-24, 15), "float8_e4m3fn": (-9, 8), "float8_e5m2": (-16, 15),
}  # fmt: skip
_NAMES: Final = {8: "bfloat16", 11: "float16", 24: "float32"}
_BITS: Final = {"float64": 53, "float16": 11, "bfloat16": 8, "float32": 24}


# A sum of 2^bits, units of 1 or -1 so far apart, and -2^bits at a place: 2^b + 1 has a
# bit more than 2^b - 1, whichever meets.
_Asked = tuple[int, int, int, float]


def _units(n: int, tile: int) -> list[int]:
    """Return where units stand; the great term stands at 0."""
    return [k for k in range(1, n - 1, tile) if k != n // 2]


def accumulator(subject: Subject) -> Reading:
    """Return how many bits a sum keeps.

    Of 2^b, units, and -2^b the sum is that of the units in every order, unless
    2^b + 1 has more bits than are kept.
    """
    n = _size(subject)
    right = _RIGHT.get(subject.dtype, 0) if subject.adder.products else 0
    top = max(24, declared_bits(subject.accumulator, subject)) - _SPARE
    top = min(top, _REACH.get(subject.dtype, (0, top))[1] + right)
    lost: list[tuple[_Asked, str, float, Case]] = []
    for last in (n - 1, n // 2):
        factors = Row(1.0, {0: 2.0**right, last: 2.0**right})
        asked: list[_Asked] = [
            (bits, tile, last, one)
            for bits in range(_LEAST, top + 1)
            for tile in (t for t in (*_TILES, n) if t <= n)
            for one in (1.0, -1.0)
            # More units than 2^b would need another bit by themselves.
            if len(_units(n, tile)) < 2**bits
        ]
        rows = []
        for bits, tile, _, one in asked:
            great = 2.0 ** (bits - right)
            units = dict.fromkeys(_units(n, tile), one)
            rows.append(Row(0.0, {**units, 0: great, last: -great}))
        got = subject.values(n, rows, [factors])
        for each, row, value in zip(asked, rows, got, strict=True):
            bits, tile, _, one = each
            wanted = one * len(_units(n, tile))
            if value != wanted:
                told = (
                    f"2^{bits}, {one:+.0f} in each {tile} terms, -2^{bits} at {last}: "
                    f"{number(value)}, {wanted:.0f} is right"
                )
                case = subject.case(n, [row], [factors])
                lost.append((each, told, value, case))
    return _kept(subject, sorted(lost, key=lambda each: each[0][0]), top, n)


def _size(subject: Subject) -> int:
    """Return the number of terms: the number of ones must be exact in the output."""
    most = min(subject.most_terms, 2 ** FORMATS[subject.adder.output].precision)
    return subject.size([n for n in SIZES[::-1] if n <= most])


def _kept(
    subject: Subject, lost: list[tuple[_Asked, str, float, Case]], top: int, n: int
) -> Reading:
    """Return what follows from the sums in which units were lost."""
    declared = declared_bits(subject.accumulator, subject)
    kept = lost[0][0][0] if lost else top + 1
    first = [each for each in lost if each[0][0] == kept]
    observed = tuple(told for _, told, _, _ in first[:3])
    found = f"at least {kept} bits"
    if first and (kept == _LEAST or not all(math.isfinite(v) for _, _, v, _ in first)):
        found = "what comes is no sum of the terms in any format"
    elif first:
        found = f"{kept} bits" + (f", as {_NAMES[kept]}" if kept in _NAMES else "")
        tile = min(tile for (_, tile, _, _), *_ in first)
        found += f" between tiles of {tile} terms" if tile > 1 else ""
    if not declared:
        outcome = Outcome.UNDECIDED
    elif first and kept < declared:
        outcome = Outcome.DIFFERS
    else:
        outcome = Outcome.BETTER if kept > declared else Outcome.AS_DECLARED
    return subject.reading(
        ACCUMULATOR, found, f"{declared} bits" if declared else "", outcome,
        reason="" if declared else "its width depends on the unit",
        terms=n, observed=observed,
        witnesses=tuple(case for *_, case in first[:1]),
        claims={"accumulator": _NAMES[kept]} if first and kept in _NAMES else {},
    )  # fmt: skip


def declared_bits(claim: Accumulator, subject: Subject) -> int:
    """Return the bits that a declared accumulator keeps; 0 where units differ in it."""
    if claim.model == "any_tensor_core" and subject.dtype.startswith("float8"):
        return 0
    if claim.model in ("splitk", "atomic"):
        return min(24, _BITS.get(claim.dtype, 24))
    return _BITS.get(claim.model, 24)


def alignment(subject: Subject) -> Reading:
    """Return down to which bit terms are aligned that are added at once.

    2^10, 2^(10-k) and -2^10 in one block leave 2^(10-k) for k up to that bit.
    """
    n = _size(subject)
    if (how := meeting(subject, n)) != "at once":
        raise Inapplicable(f"terms are added {how}, two at a time")
    right = max(-14, _REACH.get(subject.dtype, (0, 0))[0])
    right = right if subject.adder.products else 0
    # The greatest term, as two factors, and the least that the left one can be.
    top = 8 if subject.dtype.startswith("float8") else 10
    least, most = _REACH.get(subject.dtype, (-40, 40))
    bits = [k for k in range(4, 40) if least <= top - k - right <= most]
    if not bits:
        raise Inapplicable(f"{subject.dtype} holds no terms far enough apart")
    rows = [
        Row(0.0, {0: 2.0**top, 1: 2.0 ** (top - k - right), 2: -(2.0**top)})
        for k in bits
    ]
    got = subject.values(n, rows, [Row(1.0, {1: 2.0**right})])
    kept = [k for k, value in zip(bits, got, strict=True) if value]
    raw = (f"k = {bits[0]} to {bits[-1]}: {shown(got)}",)
    if not kept or kept != bits[: len(kept)]:
        why = "what is kept does not end at one bit"
        raise Unobserved(why, observed=raw, terms=n)
    ends = f"{kept[-1]} bits" if kept != bits else f"at least {kept[-1]} bits"
    found = f"{ends} below the greatest of three terms"
    return subject.undeclared(ALIGNMENT, found, observed=raw, terms=n)


def fused(subject: Subject) -> Reading:
    """Return whether several additions are rounded as one, and how.

    Of 2^23, 2^23 and three terms of 1 each, every addition by itself leaves 2^24; at
    once they make 2^24 + 3, which rounds to 2^24 + 2 or, to nearest, + 4. What is
    subtracted far behind shows it in narrow results too.
    """
    n = _size(subject)
    if (how := meeting(subject, n)) == "in a tree":
        return subject.undeclared(FUSED, "two terms at a time")
    # The great term as two factors, and what is subtracted.
    wide = (2.0**23, 1.0, -(2.0**24))
    known = dict.fromkeys(("float32", "float64", "bfloat16"), wide)
    if subject.adder.products:
        known["float16"] = (2.0**12, 2.0**11, -(2.0**13))
    if subject.dtype not in known:
        raise Inapplicable(f"{subject.dtype} holds no such terms")
    left, right, end = known[subject.dtype]
    far = n - 1
    at = {0: left, 1: left, 2: 1.0, 3: 1.0, 4: 1.0, far: end}
    factors = Row(1.0, {0: right, 1: right, far: right})
    [value] = subject.values(n, [Row(0.0, at)], [factors])
    told = {
        0.0: "each addition is rounded by itself",
        2.0: "several at once, then truncated",
        4.0: "several at once, then rounded to nearest",
        3.0: "kept beyond 24 bits",
    }
    raw = (f"2^23 + 2^23 + 1 + 1 + 1 - 2^24 = {number(value)}",)
    if value not in told or (how == "in turn" and value == 4.0):
        why = "no rounding of float32 sums gives this"
        raise Unobserved(why, observed=raw, terms=n)
    why = "what is declared allows either" if subject.dtype in SHORT else NOTHING
    return subject.undeclared(FUSED, told[value], why, observed=raw, terms=n)
