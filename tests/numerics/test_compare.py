import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kfuzz.core.declaration import Declaration
from kfuzz.numerics.acceptance import (
    ANY,
    FINITE,
    NAN,
    NEGATIVE_INF,
    POSITIVE_INF,
    Acceptance,
    Problem,
    around,
    between,
)
from kfuzz.numerics.compare import Outcome, compare
from kfuzz.numerics.formats import FORMATS, Format, round_to

INF, NOT = math.inf, math.nan
WITH_INF = ("float32", "float16", "bfloat16", "float8_e5m2")
NARROW = (*WITH_INF, "float8_e4m3fn")


def wide(*values: float) -> Tensor:
    return torch.tensor([values], dtype=torch.float64)


def acceptance(
    low: float,
    high: float,
    *,
    classes: int = FINITE,
    undecided: bool = False,
    ambiguous: bool = False,
    output: str = "float32",
    overflow: str = "inf",
    store: str = "rne",
    flush: bool = False,
    reference: float | None = None,
) -> Acceptance:
    middle = (low + high) / 2 if reference is None else reference
    return Acceptance(
        reference=wide(middle),
        low=wide(low),
        high=wide(high),
        classes=torch.tensor([[classes]], dtype=torch.uint8),
        undecided=torch.tensor([[undecided]]),
        ambiguous=torch.tensor([[ambiguous]]),
        output=FORMATS[output],
        overflow=overflow,
        store=store,
        flush=flush,
    )


def outcome(y: float, a: Acceptance) -> Outcome:
    # float64 holds every value of the output's format.
    return Outcome(int(compare(wide(y), a).outcomes[0, 0]))


def one(x: float, fmt: Format, mode: str = "rne") -> float:
    return float(round_to(wide(x), fmt, mode)[0, 0])


def neighbour(x: float, fmt: Format, up: bool) -> float:
    """The next value of the format."""
    tiny = math.nextafter(x, INF if up else -INF)
    return one(tiny, fmt, "ru" if up else "rd")


def problem(output: str = "float32", **claims: str) -> Problem:
    declared = Declaration(**claims)  # type: ignore[arg-type]
    return Problem({}, {}, FORMATS[output], FORMATS[output], declared)


finite = st.floats(-1e4, 1e4)
width = st.floats(0, 100)


@pytest.mark.slow
@given(finite, width, st.sampled_from(NARROW))
@settings(max_examples=200, deadline=None)
def test_the_rounded_ends_pass_and_the_next_values_fail(
    middle: float, half: float, name: str
) -> None:
    fmt = FORMATS[name]
    middle = math.remainder(middle, fmt.max_finite / 4)
    half = min(half, fmt.max_finite / 8)
    a = acceptance(middle - half, middle + half, output=name)
    low, high = one(middle - half, fmt), one(middle + half, fmt)
    assert outcome(low, a) is Outcome.OK
    assert outcome(high, a) is Outcome.OK
    assert outcome(neighbour(high, fmt, up=True), a) is Outcome.VALUE
    assert outcome(neighbour(low, fmt, up=False), a) is Outcome.VALUE


@pytest.mark.slow
@given(finite, width, st.sampled_from(NARROW))
@settings(max_examples=200, deadline=None)
def test_whatever_lies_in_the_interval_passes_once_stored(
    middle: float, half: float, name: str
) -> None:
    a = acceptance(middle - half, middle + half, output=name)
    for share in (-1.0, -0.3, 0.0, 0.7, 1.0):
        before_store = max(middle - half, min(middle + half, middle + share * half))
        stored = one(before_store, FORMATS[name])
        if math.isfinite(stored):
            assert outcome(stored, a) is Outcome.OK


def test_an_exact_result_is_one_value_and_zeros_are_equal() -> None:
    a = acceptance(1.0, 1.0)
    assert outcome(1.0, a) is Outcome.OK
    assert outcome(1 + 2.0**-23, a) is Outcome.VALUE
    assert outcome(1 - 2.0**-24, a) is Outcome.VALUE
    assert outcome(-0.0, acceptance(0.0, 0.0)) is Outcome.OK
    assert outcome(0.0, acceptance(-0.0, -0.0)) is Outcome.OK


EVERY_CLASS = list(range(1, ANY + 1))
POLICIES = ("inf", "nan", "saturate")


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("classes", EVERY_CLASS)
@pytest.mark.parametrize("name", NARROW)
def test_nan_never_passes_unless_it_is_admitted(
    name: str, classes: int, policy: str
) -> None:
    top = FORMATS[name].max_finite
    ends = [(1.0, 2.0), (top / 2, 4 * top), (-4 * top, 0.0)]
    stores = (("rne", False), ("rz", True))
    for (low, high), (store, flush) in itertools.product(ends, stores):
        a = acceptance(
            low, high, classes=classes, output=name, overflow=policy, store=store,
            flush=flush,
        )  # fmt: skip
        overflows = classes & FINITE and (
            one(high, FORMATS[name], "rne" if store == "rne" else "ru") == INF
            or one(low, FORMATS[name], "rne" if store == "rne" else "rd") == -INF
        )
        infinite = classes & (POSITIVE_INF | NEGATIVE_INF)
        as_nan = policy == "nan" or (name == "float8_e4m3fn" and policy == "inf")
        admitted = classes & NAN or (as_nan and (overflows or infinite))
        found = outcome(NOT, a)
        assert found is (Outcome.OK if admitted else found)
        assert admitted or found >= Outcome.VALUE


@given(
    st.lists(st.tuples(finite, width), min_size=1, max_size=6),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_a_nan_output_is_a_miss_or_undecided_where_the_reference_is_finite(
    intervals: list[tuple[float, float]], ambiguous: bool, undecided: bool
) -> None:
    for middle, half in intervals:
        a = acceptance(
            middle - half, middle + half, ambiguous=ambiguous, undecided=undecided
        )
        expected = (
            Outcome.UNDECIDED if ambiguous or undecided else Outcome.NAN_UNEXPECTED
        )
        assert outcome(NOT, a) is expected


@pytest.mark.parametrize(
    ("y", "classes", "expected"),
    [
        (1.0, FINITE, Outcome.OK),
        (9.0, FINITE, Outcome.VALUE),
        (INF, FINITE, Outcome.INF_UNEXPECTED),
        (-INF, FINITE, Outcome.INF_UNEXPECTED),
        (NOT, FINITE, Outcome.NAN_UNEXPECTED),
        (NOT, NAN, Outcome.OK),
        (1.0, NAN, Outcome.NAN_MISSING),
        (INF, NAN, Outcome.NAN_MISSING),
        (INF, POSITIVE_INF, Outcome.OK),
        (-INF, POSITIVE_INF, Outcome.INF_SIGN),
        (1.0, POSITIVE_INF, Outcome.INF_MISSING),
        (NOT, POSITIVE_INF, Outcome.NAN_UNEXPECTED),
        (-INF, NEGATIVE_INF, Outcome.OK),
        (INF, NEGATIVE_INF, Outcome.INF_SIGN),
        (1.0, NEGATIVE_INF, Outcome.INF_MISSING),
        (NOT, POSITIVE_INF | NAN, Outcome.OK),
        (INF, POSITIVE_INF | NAN, Outcome.OK),
        (-INF, POSITIVE_INF | NAN, Outcome.INF_SIGN),
        (1.0, POSITIVE_INF | NAN, Outcome.INF_MISSING),
        (NOT, ANY, Outcome.OK),
        (-INF, ANY, Outcome.OK),
    ],
)
def test_classes_are_decided_before_numbers(
    y: float, classes: int, expected: Outcome
) -> None:
    assert outcome(y, acceptance(0.5, 1.5, classes=classes)) is expected


def test_a_vacuous_bound_is_never_judged() -> None:
    for y in (0.0, 1e30, INF, NOT):
        a = acceptance(0.0, 1.0, undecided=True)
        assert outcome(y, a) is Outcome.UNDECIDED


def test_range_limited_elements_are_judged_only_where_they_pass() -> None:
    a = acceptance(0.5, 1.5, ambiguous=True)
    assert outcome(1.0, a) is Outcome.OK
    for y in (0.0, 2.0, INF, NOT):
        assert outcome(y, a) is Outcome.UNDECIDED


@pytest.mark.parametrize("name", WITH_INF)
def test_overflow_to_infinity(name: str) -> None:
    top = FORMATS[name].max_finite
    over = acceptance(4 * top, 4 * top, output=name)
    assert outcome(INF, over) is Outcome.OK
    assert outcome(-INF, over) is Outcome.INF_UNEXPECTED
    assert outcome(top, over) is Outcome.VALUE
    assert outcome(NOT, over) is Outcome.NAN_UNEXPECTED
    under = acceptance(-4 * top, -4 * top, output=name)
    assert outcome(-INF, under) is Outcome.OK
    assert outcome(INF, under) is Outcome.INF_UNEXPECTED
    straddling = acceptance(top, 4 * top, output=name)
    assert outcome(top, straddling) is Outcome.OK
    assert outcome(INF, straddling) is Outcome.OK
    assert outcome(neighbour(top, FORMATS[name], up=False), straddling) is (
        Outcome.VALUE
    )


@pytest.mark.parametrize("name", WITH_INF)
def test_overflow_to_nan(name: str) -> None:
    top = FORMATS[name].max_finite
    over = acceptance(4 * top, 4 * top, output=name, overflow="nan")
    assert outcome(NOT, over) is Outcome.OK
    assert outcome(INF, over) is Outcome.INF_UNEXPECTED
    assert outcome(top, over) is Outcome.VALUE
    inside = acceptance(1.0, 2.0, output=name, overflow="nan")
    assert outcome(NOT, inside) is Outcome.NAN_UNEXPECTED
    infinite = acceptance(0.0, 0.0, output=name, overflow="nan", classes=POSITIVE_INF)
    assert outcome(NOT, infinite) is Outcome.OK
    assert outcome(INF, infinite) >= Outcome.VALUE


@pytest.mark.parametrize("name", WITH_INF)
def test_overflow_saturating(name: str) -> None:
    top = FORMATS[name].max_finite
    over = acceptance(4 * top, 4 * top, output=name, overflow="saturate")
    assert outcome(top, over) is Outcome.OK
    assert outcome(-top, over) is Outcome.VALUE
    assert outcome(INF, over) is Outcome.INF_UNEXPECTED
    assert outcome(NOT, over) is Outcome.NAN_UNEXPECTED
    inside = acceptance(1.0, 2.0, output=name, overflow="saturate")
    assert outcome(top, inside) is Outcome.VALUE
    infinite = acceptance(
        0.0, 0.0, output=name, overflow="saturate", classes=NEGATIVE_INF
    )
    assert outcome(-top, infinite) is Outcome.OK
    assert outcome(top, infinite) >= Outcome.VALUE
    # What was infinite before is no overflow.
    assert outcome(-INF, infinite) is Outcome.OK
    assert outcome(INF, infinite) is Outcome.INF_SIGN


def test_a_format_without_infinities_admits_nan_and_saturation() -> None:
    over = acceptance(1000.0, 1000.0, output="float8_e4m3fn")
    assert outcome(448.0, over) is Outcome.OK
    assert outcome(NOT, over) is Outcome.OK
    assert outcome(-448.0, over) is Outcome.VALUE
    assert outcome(416.0, over) is Outcome.VALUE
    inside = acceptance(100.0, 100.0, output="float8_e4m3fn")
    assert outcome(NOT, inside) is Outcome.NAN_UNEXPECTED
    assert outcome(448.0, inside) is Outcome.VALUE
    only = acceptance(1000.0, 1000.0, output="float8_e4m3fn", overflow="saturate")
    assert outcome(NOT, only) is Outcome.NAN_UNEXPECTED


@pytest.mark.parametrize("name", WITH_INF)
def test_subnormal_results_may_be_flushed_only_where_declared(name: str) -> None:
    fmt = FORMATS[name]
    small = fmt.min_normal / 2
    assert outcome(0.0, acceptance(small, small, output=name)) is Outcome.VALUE
    flushed = acceptance(small, small, output=name, flush=True)
    assert outcome(0.0, flushed) is Outcome.OK
    assert outcome(-0.0, flushed) is Outcome.OK
    assert outcome(small, flushed) is Outcome.OK
    assert outcome(-small, flushed) is Outcome.VALUE
    normal = acceptance(fmt.min_normal, fmt.min_normal, output=name, flush=True)
    assert outcome(0.0, normal) is Outcome.VALUE


def test_a_truncating_store_widens_the_interval_outwards_only_where_declared() -> None:
    exact = 1 + 0.75 * 2.0**-7
    nearest = acceptance(exact, exact, output="bfloat16")
    assert outcome(1.0, nearest) is Outcome.VALUE
    truncating = acceptance(exact, exact, output="bfloat16", store="rz")
    assert outcome(1.0, truncating) is Outcome.OK
    assert outcome(1 + 2.0**-7, truncating) is Outcome.OK
    assert outcome(1 + 2.0**-6, truncating) is Outcome.VALUE
    top = FORMATS["bfloat16"].max_finite
    over = acceptance(2 * top, 2 * top, output="bfloat16", store="rz")
    assert outcome(top, over) is Outcome.OK
    assert outcome(INF, over) is Outcome.OK


def test_the_ratio_is_error_over_tolerance() -> None:
    a = acceptance(0.0, 2.0, reference=1.0)
    made = compare(wide(1.5).float(), a)
    assert float(made.ratio) == pytest.approx(0.5, rel=1e-6)
    assert float(made.error) == 0.5
    assert float(made.low) == 0.0
    assert float(made.high) == 2.0
    assert float(compare(wide(5.0), a).ratio) == pytest.approx(4.0, rel=1e-6)


def test_strided_outputs_are_read_in_logical_order() -> None:
    reference = torch.arange(12, dtype=torch.float64).reshape(1, 3, 4)
    y = reference.float().transpose(1, 2).contiguous().transpose(1, 2)
    assert not y.is_contiguous()
    assert not compare(y, around(problem(), reference, 0.0)).missed.any()


@pytest.mark.parametrize("bad", [INF, NOT])
def test_an_infinite_or_undefined_bound_is_vacuous(bad: float) -> None:
    a = around(problem(), wide(1.0), wide(bad))
    for y in (1.0, 7.0, NOT):
        assert outcome(y, a) is Outcome.UNDECIDED
    # Where the class alone decides there is nothing vacuous.
    infinite = around(problem(), wide(INF), wide(bad))
    assert outcome(1.0, infinite) is Outcome.INF_MISSING
    assert outcome(NOT, around(problem(), wide(NOT), wide(bad))) is Outcome.OK


def test_an_acceptance_takes_its_policies_from_the_declaration() -> None:
    claims = {"overflow": "saturate", "store": "rz", "subnormals": "preserve"}
    a = between(problem("float16", **claims), wide(1.0), wide(0.0), wide(2.0))
    assert (a.overflow, a.store, a.flush) == ("saturate", "rz", False)
    assert a.output.name == "float16"
    assert around(problem(), wide(1.0), 0.0).flush
    assert a.shape == (1,)
