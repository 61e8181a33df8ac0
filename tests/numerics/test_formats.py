import math
import struct
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kfuzz.numerics.formats import (
    FORMATS,
    INTEGERS,
    Format,
    format_of,
    lowest_bit_exponent,
    round_to,
)

NARROW = [f for f in FORMATS.values() if f.name != "float64"]
MODES = ("rne", "rd", "ru", "rz")
INF = math.inf


def one(x: float, fmt: Format, mode: str = "rne") -> float:
    return float(round_to(torch.tensor([x], dtype=torch.float64), fmt, mode)[0])


def floor_log2(x: Fraction) -> int:
    e = x.numerator.bit_length() - x.denominator.bit_length()
    return e if Fraction(2) ** e <= x else e - 1


def by_fractions(x: float, fmt: Format, mode: str) -> float:
    """Round by exact rational arithmetic; shares no step with `round_to`."""
    if x == 0 or not math.isfinite(x):
        return x
    exact = Fraction(x)
    quantum = Fraction(2) ** (max(floor_log2(abs(exact)), fmt.emin) - fmt.precision + 1)
    steps = exact / quantum
    below = math.floor(steps)
    rest = steps - below
    if mode == "rd":
        chosen = below
    elif mode == "ru":
        chosen = math.ceil(steps)
    elif mode == "rz":
        chosen = math.trunc(steps)
    else:
        half = Fraction(1, 2)
        up = rest > half or (rest == half and below % 2 == 1)
        chosen = below + up
    result = chosen * quantum
    top = Fraction(fmt.max_finite)
    if result > top:
        return INF if mode in ("rne", "ru") else fmt.max_finite
    if result < -top:
        return -INF if mode in ("rne", "rd") else -fmt.max_finite
    return math.copysign(float(result), x)


def same(a: float, b: float) -> bool:
    return struct.pack("<d", a) == struct.pack("<d", b)


def values_near(fmt: Format) -> list[float]:
    """Ties, neighbours of ties, subnormals, ends of the range, signed zeros."""
    eta, top = fmt.min_subnormal, fmt.max_finite
    ulp_top = 2.0 ** (math.frexp(top)[1] - fmt.precision)
    points = [0.0, eta / 2, eta, 1.5 * eta, 2.5 * eta, fmt.min_normal]
    points += [fmt.min_normal - eta / 2, fmt.min_normal + eta / 2, 1.0]
    points += [1 + fmt.unit, 1 + 3 * fmt.unit, 1 - fmt.unit / 2, 2.0**-1074]
    points += [top, top + ulp_top / 2, top + ulp_top, top - ulp_top / 2, 1e308]
    near = [math.nextafter(p, to) for p in points for to in (0.0, INF)]
    everything = [v for v in points + near if math.isfinite(v)]
    return everything + [-v for v in everything]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fmt", NARROW, ids=lambda f: f.name)
def test_rounding_agrees_with_exact_arithmetic_at_the_hard_values(
    fmt: Format, mode: str
) -> None:
    for x in values_near(fmt):
        assert same(one(x, fmt, mode), by_fractions(x, fmt, mode)), (x, mode)


@given(
    significand=st.integers(1, 2**53 - 1),
    exponent=st.integers(-200, 150),
    name=st.sampled_from([f.name for f in NARROW]),
)
@settings(max_examples=300, deadline=None)
def test_rounding_agrees_with_exact_arithmetic_in_every_binade(
    significand: int, exponent: int, name: str
) -> None:
    x = math.ldexp(significand, exponent - 53)
    for mode in MODES:
        got = one(x, FORMATS[name], mode)
        assert same(got, by_fractions(x, FORMATS[name], mode))


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float8_e5m2"])
def test_every_pattern_of_a_narrow_format_is_a_fixed_point(name: str) -> None:
    fmt = FORMATS[name]
    size = 1 if name.startswith("float8") else 2
    bits = torch.arange(1 << (8 * size), dtype=torch.int64)
    raw = bits.to(torch.uint8 if size == 1 else torch.int16)
    x = raw.view(fmt.dtype).to(torch.float64)
    for mode in MODES:
        torch.testing.assert_close(
            round_to(x, fmt, mode), x, rtol=0, atol=0, equal_nan=True
        )


def test_every_finite_pattern_of_e4m3fn_is_a_fixed_point() -> None:
    fmt = FORMATS["float8_e4m3fn"]
    x = torch.arange(256).to(torch.uint8).view(fmt.dtype).to(torch.float64)
    x = x[~torch.isnan(x)]
    assert len(x) == 254
    assert torch.equal(round_to(x, fmt), x)
    assert float(x.max()) == fmt.max_finite


def test_zeros_keep_their_sign_and_specials_stay() -> None:
    for fmt in NARROW:
        assert same(one(-0.0, fmt), -0.0)
        assert same(one(-fmt.min_subnormal / 4, fmt), -0.0)
        assert same(one(fmt.min_subnormal / 4, fmt), 0.0)
        assert one(INF, fmt, "rz") == INF
        assert one(-INF, fmt, "ru") == -INF
        assert math.isnan(one(math.nan, fmt))


def test_formats_hold_what_torch_says_of_them() -> None:
    for fmt in FORMATS.values():
        if fmt.name == "tf32":
            continue
        info = torch.finfo(fmt.dtype)
        assert format_of(fmt.dtype) is fmt
        assert fmt.max_finite == info.max
        assert fmt.min_normal == info.smallest_normal
        assert fmt.unit == info.eps / 2
        assert fmt.min_subnormal == fmt.min_normal * info.eps


@given(odd=st.integers(0, 2**52 - 1), exponent=st.integers(-1074, 900))
@settings(max_examples=200, deadline=None)
def test_the_lowest_bit_is_found(odd: int, exponent: int) -> None:
    x = math.ldexp(2 * odd + 1, exponent)
    if Fraction(x) != (2 * odd + 1) * Fraction(2) ** exponent:
        return  # more bits than float64 has down there
    found = lowest_bit_exponent(torch.tensor([x, -x], dtype=torch.float64))
    assert found.tolist() == [exponent, exponent]


@pytest.mark.parametrize("mode", MODES)
def test_integers_round_to_integers(mode: str) -> None:
    fmt = INTEGERS["int64"]
    assert fmt.integral
    assert not any(f.integral for f in FORMATS.values())
    assert fmt.min_subnormal == 1
    for x in (0.0, -0.5, 0.5, 1.5, 2.5, -7.75, 3.0, 4095.5, 2.0**40 + 0.25, 2.0**53):
        assert one(x, fmt, mode) == by_fractions(x, fmt, mode)
    assert one(2.0**53 + 2, fmt, "rne") == INF
