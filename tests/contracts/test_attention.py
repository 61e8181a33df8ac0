"""Masks, groups and special values of attention, beyond what every operator keeps."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from kfuzz.contracts import operators as ops
from kfuzz.contracts.oracle import accept, pose
from kfuzz.core.declaration import Declaration
from kfuzz.core.recipe import Case, Fill, Plant, TensorSpec
from kfuzz.execution.values.fills import logical_values
from kfuzz.numerics.acceptance import FINITE, NAN, Acceptance
from kfuzz.numerics.compare import Comparison, Outcome, compare
from tests.helpers.correct_products import ATTENTIONS, STORED_QUERY

CPU = torch.device("cpu")
DTYPES = ("float32", "float16", "bfloat16")
MASKS = ("ninf_mask", "ninf_all", "zeros", "neg_logits", "randn", "negative")
Kernel = Callable[..., Tensor]
DOUBLE = ATTENTIONS["in_double"]


def case_of(
    sizes: tuple[int, int, int, int, int, int],
    *,
    dtype: str = "float32",
    family: str = "randn",
    others: str = "",
    mask: str = "",
    causal: bool = False,
    scale: float | None = None,
    seed: int = 1,
) -> Case:
    """Return a case of sizes B, H, G, S, T, D; data of one family."""
    size = dict(zip("BHGSTD", sizes, strict=True))

    def spec(axes: str, fill: str, salt: int) -> TensorSpec:
        shape = tuple(size[a] for a in axes)
        made = Fill(fill, 7 * seed + salt, -2 if axes == "BGTD" else -1)
        return TensorSpec(shape, tuple(axes), dtype, fill=made)

    tensors = {
        "q": spec("BHSD", family, 0),
        "k": spec("BGTD", others or family, 1),
        "v": spec("BGTD", others or family, 2),
    }
    if mask:
        tensors["mask"] = spec("ST", mask, 3)
    return Case(tensors, {"causal": causal, "scale": scale})


def planted(case: Case, name: str, at: tuple[int, ...], bits: int) -> Case:
    """Return the case with one element overwritten."""
    spec = replace(case.tensors[name], plants=(Plant(at, bits),))
    return case.with_tensor(name, spec)


def acceptance_of(case: Case, **claims: Any) -> tuple[dict[str, Tensor], Acceptance]:
    values = {name: logical_values(case, name, CPU) for name in case.tensors}
    declaration = replace(ops.attention.defaults, **claims)
    problem = pose(ops.attention, case, values, declaration)
    return values, accept(ops.attention, problem)["y"]


def judged(
    kernel: Kernel, case: Case, *, bottom: bool = False, **claims: Any
) -> Comparison:
    values, acceptance = acceptance_of(case, **claims)
    y = kernel(*values.values(), **case.scalars, **({"bottom": True} if bottom else {}))
    return compare(y.unsqueeze(0), acceptance)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", list(ATTENTIONS))
def test_masks_are_admitted_in_every_form(name: str, dtype: str) -> None:
    decided = total = 0
    for i, mask in enumerate(MASKS):
        for family in ("randn", "exact_int", "big_logits"):
            case = case_of(
                (1, 2, 1, 3, (33, 1, 18)[i % 3], 4), dtype=dtype, family=family,
                mask=mask, causal=i % 2 == 0,
            )  # fmt: skip
            made = judged(ATTENTIONS[name], case)
            assert not made.missed.any(), (mask, family)
            decided += int((made.outcomes == Outcome.OK).sum())
            total += made.outcomes.numel()
    assert decided > 0.7 * total


@pytest.mark.parametrize("sizes", [(1, 2, 2, 5, 3, 4), (1, 2, 2, 3, 20, 4)])
def test_the_causal_mask_is_aligned_as_declared(sizes: tuple[int, ...]) -> None:
    case = case_of(sizes, causal=True)  # type: ignore[arg-type]
    bottom = {"causal_alignment": "bottom_right"}
    assert not judged(DOUBLE, case).missed.any()
    assert not judged(DOUBLE, case, bottom=True, **bottom).missed.any()
    assert judged(DOUBLE, case, bottom=True).missed.any()
    assert judged(DOUBLE, case, **bottom).missed.any()


def test_a_row_without_keys_is_what_is_declared() -> None:
    # Aligned at the bottom, the first two of five queries see none of three keys.
    case = case_of((1, 1, 1, 5, 3, 2), causal=True)
    values, _ = acceptance_of(case)
    y = DOUBLE(*values.values(), causal=True, bottom=True)
    mean = values["v"][0, 0].mean(0)
    for row, admitting in (
        (torch.zeros(2), {"zero", "either"}),
        (torch.full((2,), math.nan), {"nan", "either"}),
        (mean, set()),
    ):
        y[0, 0, 0] = row
        for policy in ("zero", "nan", "either"):
            _, acceptance = acceptance_of(
                case, causal_alignment="bottom_right", masked_row=policy
            )
            made = compare(y.unsqueeze(0), acceptance)
            assert bool(made.missed[0, 0, 0, 0].any()) == (policy not in admitting)
    _, acceptance = acceptance_of(case, causal_alignment="bottom_right")
    assert (acceptance.classes[0, 0, 0, :2] == FINITE | NAN).all()
    assert (acceptance.classes[0, 0, 0, 2:] == FINITE).all()


def test_no_keys_at_all_is_a_row_without_keys() -> None:
    case, shape = case_of((1, 1, 1, 2, 0, 3)), (1, 1, 1, 2, 3)
    for policy in ("zero", "nan", "either"):
        _, acceptance = acceptance_of(case, masked_row=policy)
        # Nothing is masked: a sum of nothing is 0 whatever masked rows are.
        assert not compare(torch.zeros(shape), acceptance).missed.any()
        assert compare(torch.ones(shape), acceptance).missed.all()
        undefined = compare(torch.full(shape, math.nan), acceptance)
        assert bool(undefined.missed.all()) == (policy == "zero")


def test_what_is_hidden_and_not_finite_is_not_compared() -> None:
    nan = 0x7FC00000
    plain = case_of((1, 1, 1, 3, 3, 2), causal=True)
    # Row 0 sees key 0 only, row 2 sees all.
    for name, undecided in (("k", [0, 1]), ("v", [0, 1])):
        case = planted(plain, name, (0, 0, 2, 1), nan)
        _, acceptance = acceptance_of(case)
        for row in undecided:
            assert acceptance.undecided[0, 0, 0, row, 1]
        assert not acceptance.undecided[0, 0, 0, 2].any()
        assert acceptance.classes[0, 0, 0, 2, 1] == NAN
    # A value spoils its own column only, a key the whole row.
    assert acceptance_of(planted(plain, "k", (0, 0, 2, 1), nan))[1].undecided[
        0, 0, 0, 0, 0
    ]
    value = acceptance_of(planted(plain, "v", (0, 0, 2, 1), nan))[1]
    assert not value.undecided[0, 0, 0, :, 0].any()
    assert value.classes[0, 0, 0, 2, 0] == FINITE


def test_an_infinite_value_is_one_where_its_weight_cannot_vanish() -> None:
    inf = 0x7F800000
    case = planted(case_of((1, 1, 1, 1, 3, 2)), "v", (0, 0, 1, 0), inf)
    for value, outcome in (
        (math.inf, Outcome.OK),
        (-math.inf, Outcome.INF_SIGN),
        (math.nan, Outcome.NAN_UNEXPECTED),
        (1.0, Outcome.INF_MISSING),
    ):
        values, acceptance = acceptance_of(case)
        y = DOUBLE(*values.values(), **case.scalars)
        assert y[0, 0, 0, 0] == math.inf
        y[0, 0, 0, 0] = value
        made = compare(y.unsqueeze(0), acceptance)
        assert made.outcomes[0, 0, 0, 0, 0] == outcome
    # With logits 200 apart it may be Inf, or 0 * Inf.
    far = case_of((1, 1, 1, 1, 3, 2), family="big_logits", scale=1.0)
    for at in range(3):
        _, acceptance = acceptance_of(planted(far, "v", (0, 0, at, 0), inf))
        decided = ~acceptance.undecided[0, 0, 0, 0, 0]
        assert bool(decided) == bool(acceptance.classes[0, 0, 0, 0, 0] != FINITE)


def test_a_score_whose_error_exceeds_its_depth_is_undecided() -> None:
    """1e10 - 1e10 - 1000 is rounded to a number that may be the greatest."""
    plain = case_of((1, 1, 1, 1, 2, 1), family="ones", mask="zeros", scale=1.0)
    big = torch.tensor([1e10]).view(torch.int32).item()
    masked = torch.tensor([-1e10 - 1024]).view(torch.int32).item() & 0xFFFFFFFF
    case = planted(plain, "k", (0, 0, 1, 0), big)
    case = planted(case, "mask", (0, 1), masked)
    _, acceptance = acceptance_of(case)
    assert acceptance.undecided.all()
    # Without the cancellation the key is simply far below.
    far = planted(plain, "mask", (0, 1), masked)
    assert not acceptance_of(far)[1].undecided.any()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_queries_stored_after_scaling_are_a_declared_algorithm(dtype: str) -> None:
    refused = 0
    for seed in range(4):
        case = case_of(
            (1, 2, 2, 4, 33, 16), dtype=dtype, family="offset", others="randn",
            seed=seed,
        )  # fmt: skip
        made = judged(STORED_QUERY, case, algorithm="stored_query")
        assert not made.missed.any()
        refused += int(judged(STORED_QUERY, case).missed.sum())
    assert refused


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_weights_in_the_data_format_are_refused_where_float32_is_declared(
    dtype: str,
) -> None:
    refused = 0
    for seed in range(4):
        case = case_of((1, 1, 1, 8, 64, 16), dtype=dtype, family="uniform01", seed=seed)
        assert not judged(DOUBLE, case, intermediates="float32").missed.any()
        made = judged(ATTENTIONS["root_scaled"], case, intermediates="float32")
        refused += int(made.missed.sum())
    assert refused


def wrong_group(q: Tensor, k: Tensor, v: Tensor, **scalars: Any) -> Tensor:
    """Head h takes group h % G."""
    repeats = q.shape[1] // k.shape[1]
    return DOUBLE(q, k.repeat(1, repeats, 1, 1), v.repeat(1, repeats, 1, 1), **scalars)


def see_one_more(q: Tensor, k: Tensor, v: Tensor, **scalars: Any) -> Tensor:
    mask = torch.ones(q.shape[2], k.shape[2]).tril(1).log()
    return DOUBLE(q, k, v, mask, scale=scalars["scale"])


def no_maximum(q: Tensor, k: Tensor, v: Tensor, **scalars: Any) -> Tensor:
    weight = torch.exp(q.float() @ k.float().mT)
    return (weight @ v.float() / weight.sum(-1, True)).to(q.dtype)


def no_rescaling(q: Tensor, k: Tensor, v: Tensor, **scalars: Any) -> Tensor:
    """Tiles of 16 keys, each with its own maximum."""
    total, out = torch.zeros(()), torch.zeros(())
    for part in range(0, k.shape[2], 16):
        s = q.float() @ k[:, :, part : part + 16].float().mT
        weight = torch.exp(s - s.amax(-1, keepdim=True))
        total = total + weight.sum(-1, keepdim=True)
        out = out + weight @ v[:, :, part : part + 16].float()
    return (out / total).to(q.dtype)


def drop_tail(q: Tensor, k: Tensor, v: Tensor, **scalars: Any) -> Tensor:
    whole = k.shape[2] // 16 * 16
    return DOUBLE(q, k[:, :, :whole], v[:, :, :whole], **scalars)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("impostor", "sizes", "family", "causal"),
    [
        (wrong_group, (1, 4, 2, 2, 3, 4), "randn", False),
        (see_one_more, (1, 1, 1, 4, 4, 4), "randn", True),
        (no_maximum, (1, 1, 1, 4, 16, 4), "big_logits", False),
        (no_rescaling, (1, 1, 1, 4, 33, 4), "randn", False),
        (drop_tail, (1, 1, 1, 4, 33, 4), "uniform01", False),
    ],
)
def test_wrong_attentions_are_refused(
    impostor: Kernel, sizes: Any, family: str, causal: bool, dtype: str
) -> None:
    case = case_of(sizes, dtype=dtype, family=family, causal=causal, scale=1.0)
    assert not judged(DOUBLE, case).missed.any()
    assert judged(impostor, case).missed.any()


@pytest.mark.parametrize("accumulator", ["tf32x3", "float32"])
def test_an_infinity_split_into_parts_may_be_nan(accumulator: str) -> None:
    """So a row of scores of -Inf, and a value of Inf, where products are three."""
    claims = Declaration(masked_row="zero", accumulator=accumulator)
    case = case_of((1, 1, 1, 1, 2, 8), family="ones", scale=1.0)
    values = {n: logical_values(case, n, CPU) for n in case.tensors}
    queries = {**values, "q": torch.full_like(values["q"], -math.inf)}
    shown = {**values, "v": values["v"].clone()}
    shown["v"][..., 0, 0] = math.inf
    for given in (queries, shown):
        problem = pose(ops.attention, case, given, claims)
        made = accept(ops.attention, problem)["y"]
        missed = compare(torch.full((1, 1, 1, 1, 8), math.nan), made).missed
        assert bool(missed[..., 0].any()) is (accumulator == "float32")
