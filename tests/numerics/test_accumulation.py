import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from kfuzz.contracts import atomic, blocked, splitk
from kfuzz.contracts import operators as ops
from kfuzz.contracts.oracle import accept
from kfuzz.core.codec import decode, encode
from kfuzz.core.declaration import NAMED, Accumulator, Declaration
from kfuzz.core.errors import BindingError
from kfuzz.numerics.acceptance import Problem
from kfuzz.numerics.accumulation import Accumulation
from kfuzz.numerics.compare import compare
from kfuzz.numerics.formats import FORMATS
from tests.helpers import correct_algorithms as correct
from tests.helpers.subjects.basic import pose, setup

FAMILIES = (
    "randn", "uniform01", "all_equal", "exact_int", "exact_walk", "absorb", "cancel",
    "expspread", "offset", "nearmax", "subnormal", "minnormal", "powers", "tail_big",
)  # fmt: skip
SINGLE = FORMATS["float32"]
HALF = FORMATS["float16"]
U = SINGLE.unit


def declared(claim: object) -> Declaration:
    return Declaration().declare("kernel k", accumulator=claim)


def model(claim: object) -> Accumulation:
    return Accumulation.declared(declared(claim))


# --- the claim ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claim", "text"),
    [
        *((name, name) for name in NAMED),
        (blocked(12), "blocked(12)"),
        (splitk(4, "bfloat16"), "splitk(4, bfloat16)"),
        (splitk(4, torch.float16), "splitk(4, float16)"),
        (atomic("float16"), "atomic(float16)"),
        (" splitk( 4,float16 ) ", "splitk(4, float16)"),
    ],
)
def test_a_model_is_held_as_its_canonical_text(claim: object, text: str) -> None:
    made = declared(claim)
    assert made.accumulator == text
    assert str(Accumulator.parse(text)) == text
    assert decode(Declaration, encode(made)) == made
    assert hash(made) == hash(declared(text))


@pytest.mark.parametrize(
    ("claim", "remedy"),
    [
        ("floa32", "did you mean 'float32'?"),
        ("blockd(3)", "did you mean 'blocked'?"),
        ("blocked", "blocked(h)"),
        ("blocked(x)", "write blocked(h)"),
        ("blocked(0)", "from 1 to"),
        ("splitk(4)", "write splitk(n, dtype)"),
        ("splitk(4, int8)", "valid: bfloat16"),
        ("atomic(flaot16)", "did you mean 'float16'?"),
        ("float32(3)", "valid:"),
        (12, "valid:"),
        (None, "valid:"),
    ],
)
def test_a_wrong_claim_is_refused_with_a_remedy(claim: object, remedy: str) -> None:
    with pytest.raises(BindingError) as raised:
        declared(claim)
    assert remedy in str(raised.value)
    assert str(raised.value).startswith("kernel k: ")


# --- the coefficients -----------------------------------------------------------


def test_each_model_has_its_coefficient() -> None:
    n, step = 1000, 2.0**-22
    assert model("float32").summation(n) == pytest.approx(999 * U, rel=1e-3)
    assert model(blocked(12)).summation(n) == pytest.approx(12 * U, rel=1e-3)
    assert model(blocked(12)).summation(5) == pytest.approx(4 * U, rel=1e-3)
    assert model("compensated").summation(n) == pytest.approx(2 * U, rel=0.04)
    split = model(splitk(4, "bfloat16")).summation(n)
    assert split == pytest.approx(999 * U + 4 * 2.0**-8 / (1 - 2.0**-6), rel=1e-2)
    assert model(atomic("float16")).summation(n) == pytest.approx(
        1000 * 2.0**-11 / (1 - 1000 * 2.0**-11), rel=1e-3
    )
    assert model("float16").summation(1) == 0
    for claim in NAMED:
        acc = model(claim)
        # The general coefficient is never sharper than the structured one.
        assert acc.coefficient(n - 1) >= acc.summation(n)
        assert acc.coefficient(n + 1) >= acc.summation(n, extra=2)
    assert model("tf32").operand_error(SINGLE) > model("tf32x3").operand_error(SINGLE)
    assert model("tf32x3").operand_error(SINGLE) == pytest.approx(3 * step * 4)
    assert model("tf32").operand_error(HALF) == 0


def test_matrix_units_truncate_sums_of_16_bit_products() -> None:
    for data in ("float16", "bfloat16"):
        assert model("float32").products(64, FORMATS[data]) == 2.5 * 68 * U
    assert model("float32").products(64, SINGLE) < 66 * U * (1 + 1e-4)
    # Through 14 bits, as 8-bit products are on some units.
    coarse = model("any_tensor_core").products(64, FORMATS["float8_e4m3fn"])
    assert coarse == 4 * 18 * 2.0**-13
    assert model("any_tensor_core").exact_products(FORMATS["float8_e4m3fn"]) == 13


def test_exactness_ends_where_operands_or_parts_are_narrow() -> None:
    assert model("float32").exact_products(SINGLE) == 24
    for claim in ("tf32", "tf32x3", "any_tensor_core"):
        assert model(claim).exact_products(SINGLE) == 0
        assert model(claim).exact_products(HALF) == 24
    assert model(splitk(2, "bfloat16")).exact_bits == 8
    assert model(splitk(2, "float16")).limit == 65504
    assert model(atomic("float16")).exact_bits == 11
    assert model(atomic("float64")).exact_bits == 24


# --- kernels of each model --------------------------------------------------------


def truncated(x: np.ndarray) -> np.ndarray:
    """A TF32 operand: the low 13 bits gone."""
    return (x.view(np.int32) & ~np.int32(0x1FFF)).view(np.float32)


def once_truncated(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return correct.serial_k(truncated(a), truncated(b))


def three_products(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """High and low parts, the product of low parts left out."""
    high_a, high_b = truncated(a), truncated(b)
    low_a, low_b = truncated(a - high_a), truncated(b - high_b)
    low = correct.serial_k(high_a, low_b) + correct.serial_k(low_a, high_b)
    return correct.serial_k(high_a, high_b) + low


def in_blocks(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Eight terms serially, the blocks pairwise: K = 512 has height 7 + 6."""
    parts = [
        correct.serial_k(a[:, s : s + 8], b[s : s + 8]) for s in range(0, len(b), 8)
    ]
    return correct.pairwise(np.stack(parts, -1))


def kahan(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Products added with a running correction."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    carried = np.zeros_like(total)
    for k in range(a.shape[1]):
        term = a[:, k, None] * b[k] - carried
        new = total + term
        carried = (new - total) - term
        total = new
    return total


def with_parts(dtype: str) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Four parts of K stored in a dtype, added there."""

    def multiply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        step = -(-len(b) // 4)
        total = torch.zeros(a.shape[0], b.shape[1], dtype=getattr(torch, dtype))
        for s in range(0, len(b), step):
            part = correct.serial_k(a[:, s : s + step], b[s : s + step])
            total = total + correct.store(part, total.dtype)
        return total.float().numpy()

    return multiply


def added_in(dtype: str) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Every product stored in a dtype, added there."""

    def multiply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        total = torch.zeros(a.shape[0], b.shape[1], dtype=getattr(torch, dtype))
        for k in range(len(b)):
            total = total + correct.store(a[:, k, None] * b[k], total.dtype)
        return total.float().numpy()

    return multiply


MODELS = [
    ("blocked(13)", "float32", in_blocks),
    ("blocked(13)", "bfloat16", in_blocks),
    ("compensated", "float32", kahan),
    ("tf32", "float32", once_truncated),
    ("any_tensor_core", "float32", once_truncated),
    ("any_tensor_core", "float16", correct.tensor_core(23, 4)),
    ("tf32x3", "float32", three_products),
    ("splitk(4, bfloat16)", "bfloat16", with_parts("bfloat16")),
    ("splitk(4, float16)", "float32", with_parts("float16")),
    ("splitk(4, float32)", "float32", correct.split_k),
    ("atomic(float16)", "float16", added_in("float16")),
    ("atomic(bfloat16)", "float32", added_in("bfloat16")),
    ("float16", "float16", added_in("float16")),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("claim", "dtype", "multiply"), MODELS)
def test_a_kernel_of_a_model_is_admitted_on_every_family(
    claim: str, dtype: str, multiply: Callable[..., np.ndarray]
) -> None:
    algorithm = correct.product(multiply)
    decided = 0
    for i, family in enumerate(FAMILIES):
        for j, other in enumerate(("randn", "exact_int", "minnormal")):
            size = (2, (33, 1, 512)[(i + j) % 3], 2)
            case = pose(
                "matmul", dtype, family, setup("matmul", *size), seed=i, other=other,
                accumulator=claim,
            )  # fmt: skip
            made = case.judge(algorithm)
            assert not made.missed.any(), str(case)
            decided += int((made.outcomes == 0).sum())
    assert decided > 80


@pytest.mark.slow
@pytest.mark.parametrize(
    ("claim", "dtype", "multiply", "families"),
    [
        ("blocked(13)", "float32", correct.serial_k, ("all_equal", "uniform01")),
        ("compensated", "float32", correct.serial_k, ("all_equal", "uniform01")),
        ("tf32x3", "float32", once_truncated, ("randn", "uniform01")),
        ("float32", "bfloat16", with_parts("bfloat16"), ("uniform01",)),
        ("splitk(4, bfloat16)", "bfloat16", added_in("bfloat16"), ("all_equal",)),
        ("float32", "float16", added_in("float16"), ("randn", "uniform01")),
    ],
)
def test_a_kernel_of_a_coarser_model_is_refused(
    claim: str,
    dtype: str,
    multiply: Callable[..., np.ndarray],
    families: tuple[str, ...],
) -> None:
    algorithm = correct.product(multiply)
    found = False
    for family in families:
        for seed in range(4):
            case = pose(
                "matmul", dtype, family, setup("matmul", 4, 512, 4), seed=seed,
                other=family, accumulator=claim,
            )  # fmt: skip
            found = found or bool(case.judge(algorithm).missed.any())
    assert found


def test_three_products_of_short_operands_are_not_float32() -> None:
    """On two terms the rounding of sums does not hide what the operands lose."""
    algorithm, refused = correct.product(three_products), 0
    for seed in range(4):
        for claim in ("float32", "tf32x3"):
            sizes = setup("matmul", 8, 2, 8)
            case = pose(
                "matmul", "float32", "randn", sizes, seed=seed, accumulator=claim
            )
            made = case.judge(algorithm)
            assert claim == "float32" or not made.missed.any()
            refused += int(made.missed.sum())
    assert refused > 10


def added(dtype: torch.dtype) -> Callable[..., Tensor]:
    def total(x: Tensor, *, dim: int) -> Tensor:
        made = torch.zeros(x.shape[:-1], dtype=dtype)
        for part in x.to(dtype).unbind(dim):
            made = made + part
        return made.to(x.dtype)

    return total


@pytest.mark.parametrize("claim", ["float16", "atomic(float16)"])
def test_terms_that_an_accumulator_cannot_hold_are_rounded_to_it(claim: str) -> None:
    for i, family in enumerate(FAMILIES):
        sizes = setup("sum", 3, 1 + 32 * (i % 2), dim=-1)
        case = pose("sum", "float32", family, sizes, accumulator=claim)
        assert not case.judge(added(torch.float16)).missed.any(), str(case)


def test_parts_that_may_overflow_their_format_are_range_limited() -> None:
    for kind in ("float16", "float32"):
        case = pose(
            "matmul", "float32", "ones", setup("matmul", 1, 70000, 1), other="ones",
            accumulator=f"splitk(2, {kind})",
        )  # fmt: skip
        assert bool(case.accepted["y"].ambiguous) is (kind == "float16")
        assert case.refuses({"y": torch.full((1, 1), math.inf)}) is (kind == "float32")


@pytest.mark.parametrize("claim", ["tf32", "tf32x3", "any_tensor_core", "float32"])
def test_an_operand_that_tf32_rounds_to_an_infinity_is_range_limited(
    claim: str,
) -> None:
    """As cuDNN makes of float32's greatest number, times 0 even NaN."""
    single = FORMATS["float32"]
    for other, got in ((2.0**-100, math.inf), (0.0, math.nan)):
        for factors in ((single.max_finite, other), (other, single.max_finite)):
            a, b = (torch.full((1, 1, 1), x, dtype=torch.float64) for x in factors)
            problem = Problem({"a": a, "b": b}, {}, single, single, declared(claim))
            made = compare(torch.full((1, 1, 1), got), accept(ops.matmul, problem)["y"])
            assert bool(made.missed.all()) is (claim == "float32")


@pytest.mark.parametrize("claim", ["tf32x3", "tf32", "float32"])
def test_an_infinity_split_into_parts_may_be_nan(claim: str) -> None:
    """Inf - Inf is what the low one of its parts is."""
    single = FORMATS["float32"]
    a = torch.tensor([[[math.inf, 1.0], [2.0, 1.0]]], dtype=torch.float64)
    b = torch.ones(1, 2, 1, dtype=torch.float64)
    problem = Problem({"a": a, "b": b}, {}, single, single, declared(claim))
    made = accept(ops.matmul, problem)["y"]
    right = torch.tensor([[[math.inf], [3.0]]])
    assert not compare(right, made).missed.any()
    split = torch.tensor([[[math.nan], [3.0]]])
    assert bool(compare(split, made).missed.any()) is (claim != "tf32x3")
    every = torch.full((1, 2, 1), math.nan)
    assert compare(every, made).missed[0, 1, 0]
