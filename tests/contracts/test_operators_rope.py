"""Rotary embeddings: both pairings, tables of both widths, fused or not."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from kfuzz.contracts import operators as ops
from kfuzz.core.recipe import Plant
from tests.helpers.impostors import (
    DTYPES,
    Algorithm,
    Posed,
    Setup,
    Subject,
    case_of,
    check_constant_impostors,
    check_correct,
    check_half_precision,
    check_missing_specials,
    check_one_value_beyond,
    check_reference,
    pose_case,
)

Turn = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
INF = 0x7F800000


def by_pairs(turn: Turn, dtype: torch.dtype | None = torch.float32) -> Algorithm:
    """Make rope out of a function of a pair of columns, a and b, and its tables.

    Args:
        turn: takes a, b and lists of cos and sin of either; returns the new pair.
        dtype: in which it computes; None for the data's own.
    """

    def call(
        x: Tensor, cos: Tensor, sin: Tensor, *, interleaved: bool, repeats: int
    ) -> Tensor:
        half = x.shape[-1] // 2
        first = list(range(0, 2 * half, 2) if interleaved else range(half))
        second = [i + 1 if interleaved else i + half for i in first]
        y = torch.empty_like(x)
        for n, (i, j) in enumerate(zip(first, second, strict=True)):
            at = (n, n) if repeats == 2 else (i, j)
            c, s = (
                torch.stack([t[:, k] for k in at])[:, :, None].to(dtype or t.dtype)
                for t in (cos, sin)
            )
            a, b = (x[..., k].to(dtype or x.dtype) for k in (i, j))
            made = turn(a, b, c, s)
            y[..., i], y[..., j] = (z.to(x.dtype) for z in made)
        return y

    return call


def plain(a: Tensor, b: Tensor, c: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    return a * c[0] - b * s[0], b * c[1] + a * s[1]


def fused(a: Tensor, b: Tensor, c: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """One product exact: float64 holds it, and its sum with a rounded float32 one."""
    one = a.double() * c[0].double() - (b * s[0]).double()
    return one.float(), (b.double() * c[1].double() + (a * s[1]).double()).float()


def fused_the_other_way(
    a: Tensor, b: Tensor, c: Tensor, s: Tensor
) -> tuple[Tensor, Tensor]:
    one = (a * c[0]).double() - b.double() * s[0].double()
    return one.float(), ((b * c[1]).double() + a.double() * s[1].double()).float()


def flushing(a: Tensor, b: Tensor, c: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    def flush(x: Tensor) -> Tensor:
        return torch.where(x.abs() < 2.0**-126, torch.zeros_like(x), x)

    a, b, c, s = map(flush, (a, b, c, s))
    one = flush(flush(a * c[0]) - flush(b * s[0]))
    return one, flush(flush(b * c[1]) + flush(a * s[1]))


FORMS: dict[str, Algorithm] = {
    f.__name__: by_pairs(f) for f in (fused, fused_the_other_way, flushing)
}
HALVES: dict[str, Any] = {"interleaved": False, "repeats": 1}
PAIRS: dict[str, Any] = {"interleaved": True, "repeats": 1}
SUBJECT = Subject(
    ops.rope,
    by_pairs(plain),
    (
        Setup(((2, 3, 2, 6), (3, 6), (3, 6)), HALVES),
        Setup(((1, 17, 1, 4), (17, 4), (17, 4)), PAIRS),
        Setup(((1, 2, 3, 34), (2, 17), (2, 17)), {**HALVES, "repeats": 2}),
        Setup(((1, 5, 1, 8), (5, 4), (5, 4)), {**PAIRS, "repeats": 2}),
        Setup(((1, 2, 1, 0), (2, 0), (2, 0)), HALVES),
    ),
    Setup(((2, 4, 2, 16), (4, 16), (4, 16)), HALVES),
    {**FORMS, "in_double": by_pairs(plain, torch.float64)},
    half=by_pairs(plain, None),
    half_families=("randn", "uniform01", "offset"),
)
each = pytest.mark.parametrize("dtype", DTYPES)


@each
def test_correct_algorithms_are_admitted(dtype: str) -> None:
    check_correct(SUBJECT, dtype)


@each
def test_the_reference_is_the_oracle_in_float64(dtype: str) -> None:
    check_reference(SUBJECT, dtype)


@each
def test_constant_impostors_are_refused(dtype: str) -> None:
    check_constant_impostors(SUBJECT, dtype)


@each
def test_one_value_beyond_either_end_is_refused(dtype: str) -> None:
    check_one_value_beyond(SUBJECT, dtype)


@each
def test_a_missing_nan_or_a_wrong_infinity_is_refused(dtype: str) -> None:
    check_missing_specials(SUBJECT, dtype)


@each
def test_half_precision_is_refused(dtype: str) -> None:
    if dtype == "float32":
        check_half_precision(SUBJECT, dtype)
        return
    # Products rounded to the data's format are admitted where they are declared.
    refused = 0
    for seed, family in enumerate(("randn", "offset", "nearmax", "minnormal")):
        made = case_of(SUBJECT, dtype, family, SUBJECT.ordinary, seed=seed)
        case = pose_case(SUBJECT, made, intermediates="output")
        results = case.run(by_pairs(plain, None))
        assert not case.refuses(results), str(case)
        refused += pose_case(SUBJECT, made).refuses(results)
    assert refused


def posed(interleaved: bool, repeats: int) -> Posed:
    width = 16 // repeats
    setup = Setup(
        ((2, 4, 3, 16), (4, width), (4, width)),
        {"interleaved": interleaved, "repeats": repeats},
    )
    return pose_case(SUBJECT, case_of(SUBJECT, "float32", "randn", setup))


@pytest.mark.parametrize("repeats", [1, 2])
@pytest.mark.parametrize("interleaved", [False, True])
def test_wrong_rotations_are_refused(interleaved: bool, repeats: int) -> None:
    case = posed(interleaved, repeats)
    x, cos, sin = case.values.values()
    options: dict[str, Any] = {"interleaved": interleaved, "repeats": repeats}
    right = by_pairs(plain)
    assert not case.refuses({"y": right(x, cos, sin, **options)})
    other = {**options, "interleaved": not interleaved}
    wrong = [
        right(x, cos, sin, **other),
        right(x, cos, -sin, **options),
        right(x, sin, cos, **options),
        right(x, cos.roll(1, 0), sin.roll(1, 0), **options),
        right(x, cos[:1].expand_as(cos), sin[:1].expand_as(sin), **options),
    ]
    if repeats == 1:  # tables whose halves differ, read as if they did not
        half = 8
        wrong.append(
            right(x, *(t[:, :half] for t in (cos, sin)), **{**options, "repeats": 2})
        )
    for y in wrong:
        assert case.refuses({"y": y})


def test_an_infinity_reaches_its_pair_alone() -> None:
    made = case_of(SUBJECT, "float32", "randn", SUBJECT.ordinary)
    x = replace(made.tensors["x"], plants=(Plant((0, 1, 0, 2), INF),))
    case = pose_case(SUBJECT, made.with_tensor("x", x))
    y = case.run(SUBJECT.honest)["y"]
    assert y.isinf().nonzero().tolist() == [[0, 1, 0, 2], [0, 1, 0, 10]]
    assert not case.refuses({"y": y})
    for at in ((0, 1, 0, 2), (0, 1, 0, 10)):
        for value in (-y[at], torch.tensor(float("nan")), torch.tensor(1.0)):
            wrong = y.clone()
            wrong[at] = value
            assert case.refuses({"y": wrong})


def test_products_that_overflow_and_cancel_are_undecided() -> None:
    setup = Setup(((1, 1, 1, 2), (1, 2), (1, 2)), HALVES)
    made = case_of(SUBJECT, "float32", "nearmax", setup)
    case = pose_case(SUBJECT, made)
    ones = {n: torch.full_like(v, 3e38) for n, v in case.values.items()}
    problem = replace(
        case.problem, tensors={n: v.double()[None] for n, v in ones.items()}
    )
    accepted = ops.rope.error_model(problem)["y"]  # type: ignore[operator, misc]
    assert accepted.reference[0, 0, 0, 0, 0] == 0
    assert accepted.ambiguous.all()
