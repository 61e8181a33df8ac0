from dataclasses import replace
from typing import Any

import pytest
import torch

from kfuzz.contracts import operators as ops
from kfuzz.contracts.oracle import accept
from kfuzz.core.recipe import Plant
from tests.helpers.impostors import (
    Posed,
    Setup,
    case_of,
    pose_case,
)
from tests.helpers.subjects.rope import (
    HALVES,
    INF,
    SUBJECT,
    by_pairs,
    plain,
)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_products_stored_as_data_are_admitted_where_declared(dtype: str) -> None:
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
    accepted = accept(ops.rope, problem)["y"]
    assert accepted.reference[0, 0, 0, 0, 0] == 0
    assert accepted.ambiguous.all()
