import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from kfuzz.contracts import operators as ops
from kfuzz.core.recipe import Plant
from kfuzz.numerics.comparator.compare import compare
from tests.helpers import correct_algorithms as correct
from tests.helpers import correct_products as products
from tests.helpers.impostors import (
    DTYPES,
    Algorithm,
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

F = torch.nn.functional


def half_bmm(a: Tensor, b: Tensor) -> Tensor:
    total = torch.zeros(*a.shape[:2], b.shape[-1], dtype=a.dtype)
    for k in range(a.shape[-1]):
        total = total + a[..., k, None] * b[:, None, k]
    return total


def half_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return half_bmm(x[None], weight.T[None])[0] + bias


@products.grouped
def half_conv(x: Tensor, weight: Tensor, bias: Tensor, **scalars: int) -> Tensor:
    columns = F.unfold(x, tuple(weight.shape[2:]), **scalars)
    made = half_bmm(weight.flatten(1)[None].expand(len(x), -1, -1), columns)
    side = math.isqrt(made.shape[-1])
    return made.reshape(*made.shape[:2], side, side) + bias[:, None, None]


def half_attention(q: Tensor, k: Tensor, v: Tensor, **scalars: object) -> Tensor:
    s = half_bmm(q.flatten(0, 1), k.flatten(0, 1).mT)
    weight = torch.exp(s - s.amax(-1, keepdim=True))
    total = half_bmm(weight, torch.ones_like(weight[:, :1].mT))
    return half_bmm(weight / total, v.flatten(0, 1)).reshape(q.shape)


def sdpa(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *,
    causal: bool = False, scale: float | None = None,
) -> Tensor:  # fmt: skip
    """Torch's own on finite input, else (it takes NaN for masked) the plain one."""
    everything = [q, k, v] + ([] if mask is None else [mask])
    if not all(bool(torch.isfinite(x).all()) for x in everything):
        return products.ATTENTIONS["in_double"](
            q, k, v, mask, causal=causal, scale=scale
        )
    return F.scaled_dot_product_attention(
        q, k, v, mask, is_causal=causal, scale=scale, enable_gqa=True
    )


CONV = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1}
ATTEND = {"causal": False, "scale": None}
SUBJECTS = {
    "bmm": Subject(
        ops.bmm,
        torch.bmm,
        (
            Setup(((2, 3, 33), (2, 33, 2))),
            Setup(((1, 1, 66), (1, 66, 3))),
            Setup(((2, 2, 0), (2, 0, 2))),
            Setup(((0, 2, 3), (0, 3, 2))),
        ),
        Setup(((2, 4, 64), (2, 64, 4))),
        {n: products.batched(f) for n, f in products.PRODUCTS.items()},
        half=half_bmm,
        half_setup=Setup(((1, 4, 512), (1, 512, 4))),
        half_families=("randn", "uniform01", "all_equal"),
    ),
    "linear": Subject(
        ops.linear,
        products.linear(products.LINEARS["bias_first"]),
        (
            Setup(((3, 33), (2, 33), (2,))),
            Setup(((2, 2, 17), (3, 17), (3,))),
            Setup(((5,), (2, 5), (2,))),
            Setup(((2, 0), (2, 0), (2,))),
        ),
        Setup(((4, 64), (4, 64), (4,))),
        {n: products.linear(f) for n, f in products.LINEARS.items()},
        half=half_linear,
        half_setup=Setup(((4, 512), (4, 512), (4,))),
        half_families=("randn", "uniform01", "all_equal"),
    ),
    "linear_relu": Subject(
        ops.linear_relu,
        lambda *xs: torch.relu(products.linear(products.LINEARS["serial_k"])(*xs)),
        (Setup(((3, 33), (2, 33), (2,))), Setup(((2, 2, 17), (3, 17), (3,)))),
        Setup(((4, 64), (4, 64), (4,))),
        {
            n: products.linear(f, products.rectified)
            for n, f in products.LINEARS.items()
        },
        half=lambda *xs: torch.relu(half_linear(*xs)),
        half_setup=Setup(((4, 512), (4, 512), (4,))),
        half_families=("randn", "uniform01", "all_equal"),
    ),
    "linear_gelu": Subject(
        ops.linear_gelu,
        products.linear(products.LINEARS["wide_product"], products.gelu_double),
        (Setup(((3, 33), (2, 33), (2,))), Setup(((2, 2, 17), (3, 17), (3,)))),
        Setup(((4, 64), (4, 64), (4,))),
        {
            n: products.linear(f, products.gelu_single)
            for n, f in products.LINEARS.items()
        },
        half=lambda *xs: F.gelu(half_linear(*xs)),
        half_setup=Setup(((4, 512), (4, 512), (4,))),
        half_families=("randn", "uniform01", "all_equal"),
    ),
    "conv2d": Subject(
        ops.conv2d,
        products.direct,
        (
            Setup(((2, 3, 5, 4), (2, 3, 3, 2), (2,)), CONV),
            Setup(((1, 2, 3, 3), (2, 2, 3, 3), (2,)), {**CONV, "padding": 1}),
            Setup(
                ((1, 5, 5, 5), (1, 5, 2, 3), (1,)),
                {"stride": 2, "padding": 2, "dilation": 2, "groups": 1},
            ),
            Setup(((1, 6, 3, 4), (4, 3, 2, 3), (4,)), {**CONV, "groups": 2}),
            Setup(((2, 3, 3, 4), (3, 1, 3, 3), (3,)), {**CONV, "groups": 3}),
            Setup(((0, 2, 3, 3), (2, 2, 1, 1), (2,)), CONV),
        ),
        Setup(((2, 8, 5, 5), (4, 8, 3, 3), (4,)), CONV),
        {n: products.as_columns(f) for n, f in products.PRODUCTS.items()
         if n != "flushing_product"},
        half=half_conv,
        half_setup=Setup(((1, 64, 4, 4), (4, 64, 3, 3), (4,)), CONV),
        half_families=("randn", "uniform01", "all_equal"),
    ),
    "attention": Subject(
        ops.attention,
        products.ATTENTIONS["in_double"],
        (
            Setup(((1, 1, 3, 4), (1, 1, 33, 4), (1, 1, 33, 4)), ATTEND),
            Setup(
                ((1, 4, 2, 2), (1, 2, 17, 2), (1, 2, 17, 2)),
                {"causal": True, "scale": 1.0},
            ),
            Setup(
                ((2, 1, 2, 3), (2, 1, 1, 3), (2, 1, 1, 3), (2, 1)),
                {"causal": False, "scale": 0.125},
            ),
            Setup(((1, 1, 2, 3), (1, 1, 0, 3), (1, 1, 0, 3)), ATTEND),
        ),
        Setup(((1, 2, 4, 16), (1, 2, 40, 16), (1, 2, 40, 16)), ATTEND),
        dict(products.ATTENTIONS),
        half=half_attention,
        half_setup=Setup(
            ((1, 1, 8, 64), (1, 1, 256, 64), (1, 1, 256, 64)),
            {"causal": False, "scale": 1.0},
        ),
        half_families=("randn", "uniform01", "exact_int"),
        families=("randn", "uniform01", "exact_int"),
        # Scores that are infinite make NaN of their row.
        infinities=False,
        decided=0.6,
    ),
}  # fmt: skip
EVERY = [(name, dtype) for name in SUBJECTS for dtype in DTYPES]
each = pytest.mark.parametrize(("name", "dtype"), EVERY)


def subject_of(name: str, dtype: str) -> Subject:
    """Return a subject; matrix units take 16-bit operands."""
    subject = SUBJECTS[name]
    if dtype == "float32" or name not in ("bmm", "linear"):
        return subject
    units: dict[str, Algorithm] = {
        n: products.batched(f)
        if name == "bmm"
        else products.linear(products.bias_last(f))
        for n, f in products.UNITS.items()
    }
    return replace(subject, correct={**subject.correct, **units})


@each
def test_correct_algorithms_are_admitted(name: str, dtype: str) -> None:
    check_correct(subject_of(name, dtype), dtype)


@each
def test_the_reference_is_the_oracle_in_float64(name: str, dtype: str) -> None:
    subject = SUBJECTS[name]
    if name in ("bmm", "linear", "linear_relu", "linear_gelu"):
        # The oracle's own BLAS may skip 0 * Inf.
        finite = tuple(s for s in subject.setups if 0 not in s.shapes[0])
        subject = replace(subject, setups=finite)
    check_reference(subject, dtype)


@each
def test_constant_impostors_are_refused(name: str, dtype: str) -> None:
    check_constant_impostors(SUBJECTS[name], dtype)


@each
def test_one_value_beyond_either_end_is_refused(name: str, dtype: str) -> None:
    check_one_value_beyond(SUBJECTS[name], dtype)


@each
def test_a_missing_nan_or_a_wrong_infinity_is_refused(name: str, dtype: str) -> None:
    check_missing_specials(SUBJECTS[name], dtype)


@each
def test_half_precision_is_refused(name: str, dtype: str) -> None:
    check_half_precision(SUBJECTS[name], dtype)


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


@pytest.mark.parametrize(
    "dtype",
    [d if d == "float16" else pytest.param(d, marks=pytest.mark.slow) for d in DTYPES],
)
def test_winograds_tiles_are_admitted_where_declared(dtype: str) -> None:
    correct = {f"winograd_{m}": products.winograd(m) for m in (2, 4)}
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
