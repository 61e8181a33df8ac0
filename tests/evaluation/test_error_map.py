"""The map of errors that a finding stores: what it shows, and where it comes from."""

import math

import pytest
import torch

from kfuzz.core.budget import Depth
from kfuzz.core.codec import decode, encode
from kfuzz.core.errors import DecodeError
from kfuzz.core.verdict import ratio_of
from kfuzz.evaluation.evaluator import Evaluator, setting_of
from kfuzz.numerics.compare import Comparison, Outcome, error_map
from tests.helpers.acceptances import within_one
from tests.helpers.budgets import SIZE_BUDGETS


def comparison(ratio: torch.Tensor, outcomes: torch.Tensor) -> Comparison:
    """Return one whose errors are the ratios: everything within 1 of 0 is admitted."""
    return Comparison(
        outcomes.to(torch.uint8).unsqueeze(0), ratio.unsqueeze(0), within_one(ratio)
    )


def test_what_is_admitted_never_looks_like_a_miss_nor_the_other_way_round() -> None:
    ratio = torch.tensor([0.999, 1.0 + 1e-9], dtype=torch.float64)
    outcomes = torch.tensor([Outcome.OK, Outcome.VALUE])
    made = error_map("y", comparison(ratio, outcomes))
    assert made is not None
    inside, outside = map(ratio_of, made.codes)
    assert inside <= 1 < outside


def test_a_case_that_misses_is_judged_with_a_map_and_one_asked_in_short_without() -> (
    None
):
    from kfuzz.contracts import operators as ops
    from kfuzz.contracts.binding import kernel
    from kfuzz.core.recipe import Case, Fill, TensorSpec

    @kernel(ops.softmax, name="drops_the_last")
    def drops_the_last(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
        out = torch.softmax(x, dim)
        out[..., -1] = 0.5
        return out

    spec = TensorSpec((2, 5), ("M", "N"), "float32", fill=Fill("randn", 3))
    case = Case({"x": spec}, {"dim": -1})
    setting = setting_of("cpu", SIZE_BUDGETS["cpu"], ["K-VAL-01"])
    evaluator = Evaluator(drops_the_last, setting)
    failure = evaluator.judge(case, Depth.SEARCH).failure
    assert failure is not None
    assert failure.errors is not None
    codes = failure.errors.codes
    assert [i for i, c in enumerate(codes) if c > 128] == [4, 9]
    assert all(math.isfinite(ratio_of(c)) for c in codes)
    short = evaluator.judge(case, Depth.BASE).failure
    assert short is not None
    assert short.errors is None


def test_values_around_the_worst_element_are_kept_with_nan_and_at_the_edges() -> None:
    ratio = torch.zeros(3, 40, 50, dtype=torch.float64)
    outcomes = torch.full(ratio.shape, int(Outcome.OK))
    ratio[0, 0, 0], ratio[2, 39, 48] = 9.0, math.nan
    outcomes[0, 0, 0], outcomes[2, 39, 48] = Outcome.VALUE, Outcome.NAN_UNEXPECTED
    made = error_map("y", comparison(ratio, outcomes), (0, 0, 0))
    assert made is not None
    assert (made.worst, made.around) == ((0, 0), (range(16), range(16)))
    assert (made.actual[0], made.expected[0], made.near_codes[0]) == (9.0, 0.0, 141)
    # What does not miss, or is not there, is not the worst element.
    for index in (None, (1, 1, 1), (0, 40, 0), (0,)):
        made = error_map("y", comparison(ratio, outcomes), index)
        assert made is not None
        assert (made.worst, made.around) == (
            (119, 48),
            (range(104, 120), range(34, 50)),
        )
        assert math.isnan(made.actual[-2])
        assert made.near_codes[-2] == 255
        assert decode(type(made), encode(made)).near == made.near


def test_a_map_without_values_is_read_and_one_that_lies_is_not() -> None:
    made = error_map("y", comparison(*[torch.ones(2, 3)] * 2))
    assert made is not None
    whole = encode(made)
    old = {k: whole[k] for k in ("output", "shape", "rows", "columns", "cells")}
    assert decode(type(made), old).around == (range(0), range(0))
    for field, value in (
        ("worst", [2, 0]), ("worst", [0]), ("worst", [-1, 0]), ("actual", [0.0]),
        ("expected", []), ("near", "AAAA"), ("near", "?"),
    ):  # fmt: skip
        with pytest.raises(DecodeError):
            decode(type(made), whole | {field: value})
