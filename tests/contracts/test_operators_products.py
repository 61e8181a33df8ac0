from dataclasses import replace

import pytest
import torch
from torch import Tensor

from kfuzz.core.recipe import Plant
from kfuzz.numerics.compare import compare
from tests.helpers import correct_algorithms as correct
from tests.helpers import correct_products as products
from tests.helpers.impostors import (
    DTYPES,
    Setup,
    Subject,
    case_of,
    check_correct,
    check_missing_specials,
    pose_case,
)
from tests.helpers.subjects.products import (
    CONV,
    SUBJECTS,
    F,
)
from tests.helpers.tiers import usual


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_products_stored_before_the_bias_are_admitted_where_declared(
    dtype: str,
) -> None:
    def stored(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        nothing = torch.zeros_like(bias)
        return (
            products.linear(products.LINEARS["bias_first"])(x, weight, nothing) + bias
        )

    subject, refused = SUBJECTS["linear"], 0
    for seed, family in enumerate(("randn", "offset", "minnormal", "nearmax")):
        made = case_of(subject, dtype, family, subject.ordinary, seed=seed)
        case = pose_case(subject, made, intermediates="output")
        results = case.run(stored)
        assert not case.refuses(results), str(case)
        refused += pose_case(subject, made).refuses(results)
    assert refused


def test_padding_beside_an_infinite_weight_is_multiplied_or_skipped() -> None:
    subject = SUBJECTS["conv2d"]
    setup = Setup(((1, 1, 2, 2), (1, 1, 3, 3), (1,)), {**CONV, "padding": 1})
    made = case_of(subject, "float32", "ones", setup)
    # The corner of the filter meets the image in one output, padding in the others.
    weight = replace(made.tensors["weight"], plants=(Plant((0, 0, 0, 0), 0x7F800000),))
    case = pose_case(subject, made.with_tensor("weight", weight))
    skipped = case.run(products.direct)["y"]
    multiplied = case.run(products.as_columns(correct.serial_k))["y"]
    assert skipped.flatten().isinf().tolist() == [False, False, False, True]
    assert multiplied.flatten().isnan().tolist() == [True, True, True, False]
    for y in (skipped, multiplied):
        assert not compare(y[None], case.accepted["y"]).missed.any()
    swallowed = skipped.nan_to_num(posinf=1.0)
    missed = compare(swallowed[None], case.accepted["y"]).missed
    assert missed.flatten().tolist() == [False, False, False, True]


def test_an_image_is_not_read_beyond_its_edge_or_at_another_stride() -> None:
    subject = SUBJECTS["conv2d"]
    setup = Setup(
        ((1, 2, 7, 7), (2, 2, 3, 3), (2,)), {"stride": 2, "padding": 1, "dilation": 1}
    )
    case = pose_case(subject, case_of(subject, "float32", "exact_int", setup))
    x, weight, bias = case.values.values()
    right = F.conv2d(x, weight, bias, 2, 1)
    assert not case.refuses({"y": right})
    wrapped = F.conv2d(F.pad(x, (1, 1, 1, 1), mode="circular"), weight, bias, 2)
    flipped = F.conv2d(x, weight.flip(-1, -2), bias, 2, 1)
    shifted = F.conv2d(F.pad(x, (0, 2, 0, 2)), weight, bias, 2)
    for wrong in (wrapped, flipped, shifted, right - bias[:, None, None]):
        assert case.refuses({"y": wrong})


def by_tiles(**claims: str) -> Subject:
    """Return a convolution by 3 x 3 filters that is declared to go by tiles."""
    algorithms = (("algorithm", "winograd"), *claims.items())
    return replace(
        SUBJECTS["conv2d"],
        setups=(
            Setup(((2, 3, 5, 4), (2, 3, 3, 3), (2,)), CONV),
            Setup(((1, 33, 6, 3), (1, 33, 3, 3), (1,)), {**CONV, "padding": 1}),
            Setup(((1, 4, 7, 8), (2, 2, 3, 3), (2,)), {**CONV, "groups": 2}),
            Setup(((1, 2, 5, 5), (2, 2, 3, 3), (2,)), {**CONV, "stride": 2}),
        ),
        claims=algorithms,
        decided=0.8,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "m"),
    [usual(d, m, is_usual=(d, m) == ("float16", 2)) for d in DTYPES for m in (2, 4)],
)
def test_winograds_tiles_are_admitted_where_declared(dtype: str, m: int) -> None:
    correct = {f"winograd_{m}": products.winograd(m)}
    check_correct(replace(by_tiles(), correct=correct), dtype)
    check_missing_specials(by_tiles(), dtype)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_transforms_stored_as_data_are_admitted_where_declared(dtype: str) -> None:
    correct = {f"winograd_{m}": products.winograd(m, stored=True) for m in (2, 4)}
    subject = replace(by_tiles(intermediates="output"), correct=correct)
    check_correct(replace(subject, decided=0.7), dtype)


def test_winograds_tiles_are_refused_where_they_are_not_declared() -> None:
    setup = Setup(((1, 8, 8, 8), (4, 8, 3, 3), (4,)), CONV)
    subject = by_tiles()
    # No order of direct sums of small integers rounds.
    made = case_of(subject, "float32", "exact_int", setup, other="exact_int")
    case = pose_case(subject, made)
    results = case.run(products.winograd(4))
    assert not case.refuses(results)
    assert pose_case(SUBJECTS["conv2d"], made).refuses(results)
    x, weight, bias = case.values.values()
    assert case.refuses({"y": F.conv2d(x[:, :-1], weight[:, :-1], bias)})
    assert case.refuses({"y": results["y"].roll(1, -1)})
