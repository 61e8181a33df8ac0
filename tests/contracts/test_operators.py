import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from kfuzz.core.declaration import Declaration
from kfuzz.core.recipe import Plant
from kfuzz.numerics.acceptance import FINITE, Acceptance, classes_of
from kfuzz.numerics.comparator.compare import Outcome, compare
from kfuzz.numerics.formats import round_to
from tests.helpers import correct_algorithms as correct
from tests.helpers.operator_cases import (
    CORRECT,
    DTYPES,
    OPERATORS,
    TORCH,
    Algorithm,
    case_of,
    compared,
    describe,
    pose_case,
    posed,
)
from tests.helpers.tiers import usual

NAMES = list(OPERATORS)
# Each push takes one data type of each, the next operator another one.
EVERY = [
    usual(n, d, is_usual=i % len(DTYPES) == k)
    for i, n in enumerate(NAMES)
    for k, d in enumerate(DTYPES)
]


@pytest.mark.parametrize(("name", "dtype"), EVERY)
def test_correct_algorithms_are_admitted_on_every_family(name: str, dtype: str) -> None:
    algorithms = dict(CORRECT[name])
    if name == "matmul" and dtype != "float32":
        algorithms |= correct.TENSOR_CORES
    decided = 0
    for case, values, problem, acceptance in posed(name, dtype):
        for label, algorithm in algorithms.items():
            made = compared(algorithm, case, values, problem, acceptance)
            where = made.missed.nonzero()[:3].tolist()
            assert not made.missed.any(), f"{label} at {where}: {describe(case)}"
            decided += int((made.outcomes == Outcome.OK).sum())
    assert decided > 500


@pytest.mark.parametrize(("name", "dtype"), EVERY)
def test_torch_is_admitted_on_every_family(name: str, dtype: str) -> None:
    # Along other than the last dimension torch's CPU softmax of 16-bit data
    # rounds the exponentials to the data's format.
    claims = (("intermediates", "output"),) if name == "softmax" else ()
    for case, values, problem, acceptance in posed(name, dtype, claims):
        made = compared(TORCH[name], case, values, problem, acceptance)
        assert not made.missed.any(), describe(case)


@pytest.mark.parametrize(("name", "dtype"), EVERY)
def test_most_elements_are_decided(name: str, dtype: str) -> None:
    undecided = total = 0
    for case, values, problem, acceptance in posed(name, dtype):
        made = compared(TORCH[name], case, values, problem, acceptance)
        undecided += int((made.outcomes == Outcome.UNDECIDED).sum())
        total += made.outcomes.numel()
    assert undecided < 0.12 * total


def elementwise_product(a: Tensor, b: Tensor) -> Tensor:
    """A matrix product without BLAS, which may skip 0 * Inf."""
    return (a.unsqueeze(-1) * b).sum(-2)


@pytest.mark.parametrize(("name", "dtype"), EVERY)
def test_the_reference_is_the_plain_oracle_in_float64(name: str, dtype: str) -> None:
    operator = OPERATORS[name]
    oracle = elementwise_product if name == "matmul" else operator.oracle
    for case, values, problem, acceptance in posed(name, dtype):
        plain = oracle(*(v.double() for v in values.values()), **problem.scalars)
        wanted, got = plain.unsqueeze(0), acceptance.reference
        kinds = classes_of(wanted)
        agrees = (kinds & acceptance.classes) != 0
        assert bool((agrees | acceptance.undecidable).all()), describe(case)
        both = torch.isfinite(wanted) & torch.isfinite(got)
        # Cancelling sums agree to float64's own rounding of their terms.
        scale = torch.maximum(acceptance.high - acceptance.low, wanted.abs())
        near = (wanted - got).abs() <= 1e-10 * scale
        assert bool(near[both].all()), describe(case)


def rounded(acceptance: Acceptance) -> Tensor:
    """A result that is admitted everywhere: the reference, stored."""
    return round_to(acceptance.reference, acceptance.output)


@pytest.mark.parametrize(("name", "dtype"), EVERY)
def test_one_value_beyond_either_end_is_a_miss(name: str, dtype: str) -> None:
    tried = 0
    for case, _, _, acceptance in posed(name, dtype):
        fmt = acceptance.output
        y = rounded(acceptance)
        made = compare(y, acceptance)
        assert not made.missed.any(), describe(case)
        judged = (acceptance.classes == FINITE) & ~acceptance.ambiguous
        judged &= ~acceptance.undecidable
        for end, mode, towards in (
            (made.high, "ru", float("inf")), (made.low, "rd", float("-inf")),
        ):  # fmt: skip
            bound = torch.full_like(end, towards)
            beyond = round_to(torch.nextafter(end, bound), fmt, mode)
            # Zero is admitted for what may be flushed; NaN and Inf come below.
            usable = judged & torch.isfinite(beyond) & torch.isfinite(end)
            usable &= (beyond != 0) | (not acceptance.flush)
            if not bool(usable.any()):
                continue
            at = tuple(usable.nonzero()[0].tolist())
            for value, outcome in (
                (beyond[at], Outcome.VALUE),
                (float("nan"), Outcome.NAN_UNEXPECTED),
            ):
                wrong = y.clone()
                wrong[at] = value
                found = compare(wrong, acceptance)
                assert found.missed.nonzero().tolist() == [list(at)], describe(case)
                assert int(found.outcomes[at]) == outcome
            inside = y.clone()
            inside[at] = end[at]
            assert not compare(inside, acceptance).missed.any()
            tried += 1
    assert tried > 25


@pytest.mark.parametrize(("name", "dtype"), EVERY)
def test_a_missing_nan_or_a_wrong_infinity_is_a_miss(name: str, dtype: str) -> None:
    nans = infinities = 0
    for case, _, _, acceptance in posed(name, dtype):
        y = rounded(acceptance)
        judged = ~acceptance.ambiguous & ~acceptance.undecidable
        for i in (judged & torch.isnan(y)).nonzero()[:1].tolist():
            for value in (0.0, float("inf"), float("-inf"), 1.0):
                wrong = y.clone()
                wrong[tuple(i)] = value
                made = compare(wrong, acceptance)
                assert made.missed.nonzero().tolist() == [i], describe(case)
            nans += 1
        special = judged & torch.isinf(acceptance.reference)
        for i in special.nonzero()[:1].tolist():
            at = tuple(i)
            for value in (-float(y[at]), 0.0, acceptance.output.max_finite):
                wrong = y.clone()
                wrong[at] = value
                made = compare(wrong, acceptance)
                assert made.missed.nonzero().tolist() == [i], describe(case)
            infinities += 1
    assert nans > 0
    assert infinities > 0 or name in ("softmax", "layer_norm")


def fails_on(
    name: str,
    dtype: str,
    impostor: Algorithm,
    family: str,
    shape: tuple[int, ...],
    *,
    other: str = "randn",
    seed: int = 1,
    claims: Declaration | None = None,
) -> bool:
    scalars = {"dim": -1} if name in ("sum", "softmax", "amax") else {}
    if name == "layer_norm":
        scalars = {"eps": 1e-5}
    case = case_of(name, dtype, family, shape, scalars, other=other, seed=seed)
    values, problem, acceptance = pose_case(OPERATORS[name], case, claims)
    made = compared(impostor, case, values, problem, acceptance)
    return bool(made.missed.any())


SHAPE = {name: (4, 64, 4) if name == "matmul" else (4, 64) for name in NAMES}


@pytest.mark.parametrize(("name", "dtype"), EVERY)
@pytest.mark.parametrize("family", ["randn", "uniform01", "exact_int", "offset"])
def test_constant_impostors_are_refused(name: str, dtype: str, family: str) -> None:
    shape, honest = SHAPE[name], TORCH[name]

    def nothing(*xs: Tensor, **scalars: object) -> Tensor:
        return torch.zeros_like(honest(*xs, **scalars))

    def undefined(*xs: Tensor, **scalars: object) -> Tensor:
        return torch.full_like(honest(*xs, **scalars), float("nan"))

    def uniform(*xs: Tensor, **scalars: object) -> Tensor:
        y = honest(*xs, **scalars)
        return torch.full_like(y, 1 / xs[0].shape[-1])

    def copied(*xs: Tensor, **scalars: object) -> Tensor:
        y = honest(*xs, **scalars)
        return xs[0].flatten()[: y.numel()].reshape(y.shape).clone()

    def one_nan(*xs: Tensor, **scalars: object) -> Tensor:
        y = honest(*xs, **scalars).clone()
        y.view(-1)[-1] = float("nan")
        return y

    def shuffled(*xs: Tensor, **scalars: object) -> Tensor:
        return honest(*xs, **scalars).flip(0)

    impostors = [nothing, undefined, uniform, one_nan]
    # Relu of positive data is a copy; maxima of small integers are all equal.
    if name not in ("relu", "amax") or family == "randn":
        impostors += [copied, shuffled]
    for impostor in impostors:
        assert fails_on(name, dtype, impostor, family, shape), impostor.__name__


@pytest.mark.parametrize(("name", "dtype"), EVERY)
def test_the_output_of_another_case_is_refused(name: str, dtype: str) -> None:
    honest = TORCH[name]

    def stale(*xs: Tensor, **scalars: object) -> Tensor:
        other = torch.Generator().manual_seed(3)
        before = [torch.randn(x.shape, generator=other).to(x.dtype) for x in xs]
        return honest(*before, **scalars)

    assert fails_on(name, dtype, stale, "randn", SHAPE[name])


def dropped(name: str, keep: int) -> Algorithm:
    """Leave out the last elements of the reduced axis."""

    def call(*xs: Tensor, **scalars: object) -> Tensor:
        if name == "matmul":
            return torch.matmul(xs[0][:, :keep], xs[1][:keep])
        x = xs[0].float()
        if name == "softmax":
            top = x.amax(-1, keepdim=True)
            weight = torch.exp(x - top)
            total = weight[..., :keep].sum(-1, keepdim=True)
            return (weight / total).to(xs[0].dtype)
        if name == "layer_norm":
            part = x[..., :keep]
            mean = part.mean(-1, keepdim=True)
            v = ((part - mean) ** 2).mean(-1, keepdim=True)
            y = (x - mean) * torch.rsqrt(v + 1e-5) * xs[1].float() + xs[2].float()
            return y.to(xs[0].dtype)
        return TORCH[name](xs[0][..., :keep], **scalars)

    return call


REDUCING = ["sum", "softmax", "layer_norm", "matmul", "amax"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", REDUCING)
def test_a_dropped_tail_is_refused(name: str, dtype: str) -> None:
    shape = (4, 65, 4) if name == "matmul" else (4, 65)
    for family in ("tail_big", "onehot_tail", "ramp"):
        other = "ones" if name == "matmul" else "randn"
        found = (
            fails_on(name, dtype, dropped(name, 64), family, shape, other=other, seed=s)
            for s in range(1, 7)
        )
        assert any(found), family


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["sum", "matmul"])
def test_an_element_counted_twice_is_refused(name: str, dtype: str) -> None:
    def twice(*xs: Tensor, **scalars: object) -> Tensor:
        if name == "matmul":
            a = torch.cat([xs[0], xs[0][:, -1:]], 1)
            return torch.matmul(a, torch.cat([xs[1], xs[1][-1:]], 0))
        return torch.sum(torch.cat([xs[0], xs[0][..., -1:]], -1), **scalars)

    for family in ("exact_int", "tail_big", "onehot_tail", "ones"):
        other = "ones" if name == "matmul" else "randn"
        found = (
            fails_on(name, dtype, twice, family, SHAPE[name], other=other, seed=seed)
            for seed in range(1, 5)
        )
        assert any(found), family


def sum_in_half(x: Tensor, *, dim: int) -> Tensor:
    """Keep the sum in float16, or bfloat16 for bfloat16 data."""
    narrow = torch.bfloat16 if x.dtype is torch.bfloat16 else torch.float16
    total = torch.zeros(x.shape[:-1], dtype=narrow)
    for part in x.to(narrow).unbind(dim):
        total = total + part
    return total.to(x.dtype)


def softmax_in_half(x: Tensor, *, dim: int) -> Tensor:
    narrow = torch.bfloat16 if x.dtype is torch.bfloat16 else torch.float16
    weight = torch.exp(x.to(narrow) - x.to(narrow).amax(dim, keepdim=True))
    return (weight / weight.sum(dim, keepdim=True)).to(x.dtype)


def layer_norm_in_half(
    x: Tensor, weight: Tensor, bias: Tensor, *, eps: float
) -> Tensor:
    narrow = torch.bfloat16 if x.dtype is torch.bfloat16 else torch.float16
    h = x.to(narrow)
    d = h - h.mean(-1, keepdim=True)
    r = torch.rsqrt((d * d).mean(-1, keepdim=True) + eps)
    return (d * r * weight.to(narrow) + bias.to(narrow)).to(x.dtype)


def matmul_in_half(a: Tensor, b: Tensor) -> Tensor:
    narrow = torch.bfloat16 if a.dtype is torch.bfloat16 else torch.float16
    total = torch.zeros(a.shape[0], b.shape[1], dtype=narrow)
    for k in range(a.shape[1]):
        total = total + a[:, k, None].to(narrow) * b[k].to(narrow)
    return total.to(a.dtype)


HALF: dict[str, tuple[Algorithm, tuple[str, ...]]] = {
    "sum": (sum_in_half, ("absorb", "uniform01", "randn")),
    "softmax": (softmax_in_half, ("randn", "exact_int", "uniform01")),
    "layer_norm": (layer_norm_in_half, ("randn", "uniform01", "offset")),
    "matmul": (matmul_in_half, ("randn", "uniform01", "all_equal")),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", list(HALF))
def test_half_precision_is_refused_where_float32_is_declared(
    name: str, dtype: str
) -> None:
    impostor, families = HALF[name]
    shape = (4, 512, 4) if name == "matmul" else (4, 512)
    for family in families:
        other = "ones" if family == "absorb" else "randn"
        found = (
            fails_on(name, dtype, impostor, family, shape, other=other, seed=seed)
            for seed in range(1, 5)
        )
        assert any(found), family


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["softmax", "layer_norm"])
def test_intermediates_in_the_output_format_are_admitted_where_declared(
    name: str, dtype: str
) -> None:
    """Sums in float32, everything else rounded to the output's format."""

    def softmax(x: Tensor, *, dim: int) -> Tensor:
        weight = torch.exp(x - x.amax(dim, keepdim=True))
        return weight / weight.sum(dim, keepdim=True)

    def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, *, eps: float) -> Tensor:
        d = x - x.mean(-1, keepdim=True)
        r = torch.rsqrt((d * d).mean(-1, keepdim=True) + eps)
        return d * r * weight + bias

    kernel: Algorithm = softmax if name == "softmax" else layer_norm
    refused = 0
    for case, values, problem, loose in posed(
        name, dtype, (("intermediates", "output"),)
    ):
        if next(iter(values.values())).numel() == 0:
            continue
        assert not compared(kernel, case, values, problem, loose).missed.any(), (
            describe(case)
        )
        strict = pose_case(OPERATORS[name], case)[2]
        refused += bool(compared(kernel, case, values, problem, strict).missed.any())
    assert refused > 10


def test_flushing_a_subnormal_against_an_infinity_may_give_nan() -> None:
    """Matrix units that flush their operands compute 0 * Inf."""
    plain = case_of("matmul", "bfloat16", "zeros", (1, 2, 1), {}, other="ones")
    # The least subnormal meets +Inf.
    small = replace(plain.tensors["a"], plants=(Plant((0, 1), 1),))
    infinite = replace(plain.tensors["b"], plants=(Plant((1, 0), 0x7F80),))
    case = plain.with_tensor("a", small).with_tensor("b", infinite)
    results = torch.tensor([math.inf, math.nan, -math.inf, 0.0]).reshape(4, 1, 1, 1)
    any_mode = pose_case(OPERATORS["matmul"], case)[2]
    missed = [bool(compare(y, any_mode).missed) for y in results]
    assert missed == [False, False, True, True]
    claims = Declaration(subnormals="preserve")
    strict = pose_case(OPERATORS["matmul"], case, claims)[2]
    missed = [bool(compare(y, strict).missed) for y in results]
    assert missed == [False, True, True, True]


def test_flushed_weights_and_biases_of_layer_norm_are_admitted() -> None:
    case = case_of(
        "layer_norm", "float32", "randn", (8, 128), {"eps": 1e-5}, other="minnormal"
    )
    values, problem, acceptance = pose_case(OPERATORS["layer_norm"], case)
    flushing = correct.LAYER_NORMS["flushing_norm"]
    made = compared(flushing, case, values, problem, acceptance)
    assert not made.missed.any()


def test_float16_intermediates_that_overflow_or_vanish_are_undecided() -> None:
    """Squares of 300 exceed float16; an eps of 1e-12 is zero in it."""
    claims = Declaration(intermediates="output")
    operator = OPERATORS["layer_norm"]
    for family, eps in (("absorb", 0.1), ("all_equal", 1e-12)):
        case = case_of("layer_norm", "float16", family, (2, 31), {"eps": eps})
        acceptance = pose_case(operator, case, claims)[2]
        made = compare(torch.full((1, 2, 31), math.nan), acceptance)
        assert (made.outcomes == Outcome.UNDECIDED).all()
        declared_wide = pose_case(operator, case)[2]
        made = compare(torch.full((1, 2, 31), math.nan), declared_wide)
        assert (made.outcomes == Outcome.NAN_UNEXPECTED).all()
