import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kfuzz.contracts.operators import OPERATORS
from kfuzz.contracts.oracle import accept
from kfuzz.numerics.acceptance import Problem
from kfuzz.numerics.accumulation import (
    Accumulation,
    can_overflow,
    exactly_summable,
    fits_exactly,
    gamma,
    growth,
    overflow_in_some_order,
    products_exactly,
    sum_error,
)
from kfuzz.numerics.formats import FORMATS, lowest_bit_exponent

SINGLE = Accumulation(FORMATS["float32"])
HALF = Accumulation(FORMATS["float16"])
DOUBLE = Accumulation(FORMATS["float64"])
U = 2.0**-24
TOP = FORMATS["float32"].max_finite


def wide(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def orders(values: list[float], dtype: type[np.floating]) -> set[float]:
    """Every result that adding in some order and tree can have, in dtype."""
    found: dict[frozenset[int], set[float]] = {}
    everything = frozenset(range(len(values)))
    for size in range(1, len(values) + 1):
        for chosen in map(frozenset, itertools.combinations(everything, size)):
            if size == 1:
                (i,) = chosen
                found[chosen] = {float(dtype(values[i]))}
                continue
            results: set[float] = set()
            rest = sorted(chosen)[1:]
            for k in range(len(rest)):
                for others in itertools.combinations(rest, k):
                    left = frozenset({min(chosen), *others})
                    for x in found[left]:
                        for y in found[chosen - left]:
                            results.add(float(dtype(x) + dtype(y)))
            found[chosen] = results
    return found[everything]


def test_gamma_is_vacuous_where_half_the_digits_are_gone() -> None:
    assert math.isfinite(gamma(2**23 - 1, U))
    assert gamma(2**23, U) == math.inf
    assert growth(2**23, U) == 0.5
    assert growth(1000, U) == gamma(1000, U)


def test_attribution_keeps_a_vacuous_bound_finite() -> None:
    assert HALF.coefficient(4096) == math.inf
    lenient = Accumulation(FORMATS["float16"], attribution=True)
    assert lenient.coefficient(4096) == 4096 * 2.0**-11


@pytest.mark.parametrize(
    ("acc", "dtype", "elements"),
    [
        (SINGLE, np.float32, st.floats(-(2.0**120), 2.0**120, width=32)),
        (HALF, np.float16, st.floats(-100, 100, width=16)),
    ],
)
@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_no_order_of_a_sum_leaves_the_bound(
    acc: Accumulation, dtype: Any, elements: Any, data: st.DataObject
) -> None:
    values = data.draw(st.lists(elements, min_size=1, max_size=5))
    bound = float(sum_error(wide(*values), -1, acc, flush=False))
    for result in orders(values, dtype):
        assert abs(result - math.fsum(values)) <= bound


@given(
    st.lists(st.integers(-600, 600), min_size=1, max_size=5),
    st.integers(-24, 4),
)
@settings(max_examples=80, deadline=None)
def test_where_the_exactness_test_holds_every_order_is_exact(
    integers: list[int], exponent: int
) -> None:
    values = [math.ldexp(i, exponent) for i in integers]
    if any(float(np.float16(v)) != v for v in values):
        return
    if bool(exactly_summable(wide(*values), -1, HALF, flush=False)):
        assert orders(values, np.float16) == {math.fsum(values)}
        assert float(sum_error(wide(*values), -1, HALF, flush=False)) == 0


@pytest.mark.slow
@given(
    st.lists(st.lists(st.integers(-600, 600), min_size=3, max_size=3), min_size=1),
    st.integers(-1075, 960),
    st.sampled_from([HALF, SINGLE, DOUBLE]),
    st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_sums_fit_where_their_lowest_bits_leave_room(
    rows: list[list[int]], exponent: int, acc: Accumulation, flush: bool
) -> None:
    numbers = [[math.ldexp(i, exponent) for i in row] for row in rows]
    terms = torch.tensor(numbers, dtype=torch.float64)
    lowest = lowest_bit_exponent(terms).amin(-1)
    wanted = fits_exactly(terms.abs().sum(-1), lowest, acc, flush=flush)
    assert torch.equal(exactly_summable(terms, -1, acc, flush=flush), wanted)


@pytest.mark.parametrize("most", [1, 40, 1 << 11, 1 << 20])
@pytest.mark.parametrize("scale", [1.0, 2.0**-60, 0.1])
def test_a_few_terms_decide_nothing_that_all_would_not(most: int, scale: float) -> None:
    shape = torch.Generator().manual_seed(most)
    a, b = (
        torch.randint(-most, most + 1, (5, 80), generator=shape).double() * scale
        for _ in range(2)
    )
    b, none = b.T.contiguous(), wide(0.0)[0]
    a[0], a[1, :70], b[:, 2] = 0.0, 0.0, 0.0
    magnitude = a.abs() @ b.abs()
    low_a, low_b = (lowest_bit_exponent(x) for x in (a, b))
    lowest = (low_a.amin(-1)[:, None] + low_b.amin(0)).clamp(max=1 << 20)
    wanted = fits_exactly(magnitude, lowest, SINGLE, flush=False)
    for rows in (slice(0, 5), slice(2, 5)):
        found = products_exactly(
            magnitude[rows], a[rows], b, none, SINGLE, flush=False, bits=24
        )
        assert torch.equal(found, wanted[rows])


def test_the_exactness_test_knows_its_edge() -> None:
    exact = wide(2.0**24 - 1, 1.0)
    assert bool(exactly_summable(exact, -1, SINGLE, flush=False))
    # 2^24 + 1 needs 25 bits.
    assert not bool(exactly_summable(wide(2.0**24, 1.0), -1, SINGLE, flush=False))
    assert float(sum_error(wide(2.0**24, 1.0), -1, SINGLE, flush=False)) > 0


def test_the_exactness_test_minds_overflow_and_flushed_subnormals() -> None:
    assert not bool(exactly_summable(wide(TOP, TOP), -1, SINGLE, flush=False))
    small = wide(2.0**-127, 2.0**-127)
    assert bool(exactly_summable(small, -1, SINGLE, flush=False))
    assert not bool(exactly_summable(small, -1, SINGLE, flush=True))
    assert float(sum_error(small, -1, SINGLE, flush=True)) >= 2.0**-126


@given(st.lists(st.sampled_from([TOP, TOP / 2, -TOP, -TOP / 2, 1.0]), min_size=1,
                max_size=5))  # fmt: skip
@settings(max_examples=80, deadline=None)
def test_what_no_order_can_overflow_never_does(values: list[float]) -> None:
    if not bool(overflow_in_some_order(wide(*values), -1, SINGLE)):
        with np.errstate(over="ignore", invalid="ignore"):
            assert all(math.isfinite(r) for r in orders(values, np.float32))


def test_overflow_in_some_order_sees_what_cancels() -> None:
    assert bool(overflow_in_some_order(wide(TOP, TOP, -TOP), -1, SINGLE))
    assert not bool(overflow_in_some_order(wide(TOP / 4, -TOP / 4), -1, SINGLE))
    assert bool(overflow_in_some_order(wide(60000.0, 60000.0, -60000.0), -1, HALF))


def test_overflow_allows_for_rounding_on_the_way() -> None:
    just_below = wide(TOP * (1 - 2.0**-24))
    assert bool(can_overflow(just_below, wide(0.0), 1000, SINGLE))
    assert not bool(can_overflow(wide(TOP / 2), wide(TOP / 2), 1000, SINGLE))


def test_a_flushed_partial_sum_of_normal_terms_is_allowed_for() -> None:
    terms = wide(1.5 * 2.0**-126, -(2.0**-126))
    assert float(sum_error(terms, -1, SINGLE, flush=True)) >= 2.0**-127
    assert float(sum_error(terms, -1, SINGLE, flush=False)) == 0


def rows_of(acc: Accumulation) -> Tensor:
    """Sums of every kind that a look at all of them at once may pass over."""
    chance = torch.Generator().manual_seed(1)
    x = torch.randn(10, 80, generator=chance, dtype=torch.float64).to(torch.float32)
    rows = x.to(torch.float64)
    rows[1] = 0.0
    rows[2] = rows[2].round()  # exact in every order
    rows[3, 16:] = 0.0
    rows[4, :16], rows[4, 16:] = 1.0, 0.1
    rows[5] *= acc.limit / 2
    rows[6] = rows[6].abs() * acc.limit / 100  # overflows together, none by itself
    rows[7, 3] = acc.format.min_normal / 2
    rows[8] *= acc.format.min_normal
    rows[9] = acc.limit / 80
    return rows


@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize("acc", [SINGLE, HALF])
def test_what_other_sums_hold_decides_nothing_of_one(
    acc: Accumulation, flush: bool
) -> None:
    rows = rows_of(acc)
    asked = {
        "error": lambda x: sum_error(x, -1, acc, flush=flush),
        "exact": lambda x: exactly_summable(x, -1, acc, flush=flush),
        "overflow": lambda x: overflow_in_some_order(x, -1, acc),
    }
    for name, of in asked.items():
        together = of(rows)
        apart = torch.cat([of(row[None]) for row in rows])
        assert torch.equal(together, apart), name
        turned = torch.cat([of(row[None].flip(-1)) for row in rows])
        assert torch.equal(turned == 0, apart == 0), name
    exact = fits_exactly(
        rows.abs().sum(-1), lowest_bit_exponent(rows).amin(-1), acc, flush=flush
    )
    assert torch.equal(asked["exact"](rows), exact)
    above, below = rows.clamp(min=0).sum(-1), (-rows).clamp(min=0).sum(-1)
    overflows = can_overflow(above, below, 80, acc)
    assert torch.equal(asked["overflow"](rows), overflows)
    assert 0 < int(overflows.sum()) < 10
    small = torch.where(rows.abs() < acc.format.min_normal, rows.abs(), 0.0).sum(-1)
    kept = sum_error(rows, -1, acc, flush=False)
    lost = kept + (small + 80 * acc.format.min_normal if flush else 0.0)
    wanted = torch.where(exact, kept if not flush else 0.0, lost)
    torch.testing.assert_close(asked["error"](rows), wanted, rtol=1e-12, atol=0)


def test_sums_of_numbers_are_admitted_what_they_are_beside_others() -> None:
    rows = wide(1.0, -2.0, 0.5).repeat(4, 1)
    rows[1, 0], rows[2, 1], rows[3, 2] = math.nan, math.inf, -math.inf
    operator, single = OPERATORS["sum"], FORMATS["float32"]
    posed = Problem({}, {"dim": -1}, single, single, operator.defaults)
    together, *apart = (
        accept(operator, replace(posed, tensors={"x": x[None]}))["y"]
        for x in (rows, *rows.split(1))
    )
    for i, alone in enumerate(apart):
        for part in ("classes", "reference", "undecided", "ambiguous", "low", "high"):
            of_all, of_one = getattr(together, part)[0, i], getattr(alone, part)[0, 0]
            assert torch.equal(of_all, of_one) or bool(of_all.isnan() & of_one.isnan())
