"""The running-error shadow: its rules by hand, its soundness and its power."""

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from kfuzz.contracts.oracle import accept
from kfuzz.numerics.acceptance import tightened
from kfuzz.numerics.accumulation import gamma
from kfuzz.numerics.compare import Outcome, compare
from tests.helpers.shadow_runs import ETA, U, accepted, operator_of, problem_of, shaded

INF, NAN = math.inf, math.nan


def f32(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float32)


A, B = f32(3.0, -5.0, 0.75), f32(7.0, 11.0, -13.0)
# A product and its error: the operand in error of the rules below.
P = [21.0, -55.0, -9.75]
E = [U * abs(p) + ETA / 2 for p in P]


def local(value: float, error: float, halves: float = 1) -> float:
    k = halves * U
    return error + k / (1 - k) * (abs(value) + error) + max(halves, 1) * ETA / 2


def ends(f: Callable[[float], float], p: float, e: float) -> float:
    return max(abs(f(p + e) - f(p)), abs(f(p - e) - f(p)))


RULES: dict[str, tuple[Callable[..., Tensor], Callable[[float, float], float]]] = {
    "add": (lambda a, b: a * b + a, lambda p, e: 0.0),  # below, by operand
    "neg": (lambda a, b: -(a * b), lambda p, e: e),
    "abs": (lambda a, b: (a * b).abs(), lambda p, e: e),
    "relu": (lambda a, b: torch.relu(a * b), lambda p, e: e if p > 0 else 0.0),
    "clamp": (lambda a, b: (a * b).clamp(max=5.0), lambda p, e: e if p < 5 else 0.0),
    "maximum": (
        lambda a, b: torch.maximum(a * b, torch.zeros_like(a)),
        lambda p, e: e if p > 0 else 0.0,
    ),
    "scalar": (lambda a, b: a * b + 2.0, lambda p, e: local(p + 2, e)),
    "constant": (
        lambda a, b: a * b + 0.1,
        lambda p, e: local(p + 0.1, e + abs(0.1 - float(torch.tensor(0.1)))),
    ),
    "twice": (lambda a, b: a * b * 2, lambda p, e: 2 * e + ETA / 2),
    "thrice": (lambda a, b: a * b * 3, lambda p, e: local(3 * p, 3 * e)),
    "square": (
        lambda a, b: (a * b) ** 2,
        lambda p, e: local(p * p, 2 * abs(p) * e + e * e),
    ),
    "reciprocal": (
        lambda a, b: torch.reciprocal(a * b),
        lambda p, e: local(1 / p, abs(1 / p) * e / (abs(p) - e), 5),
    ),
    "exp": (
        lambda a, b: torch.exp(a * b),
        lambda p, e: local(math.exp(p), ends(math.exp, p, e), 5),
    ),
    "tanh": (
        lambda a, b: torch.tanh(a * b),
        # Half of the error of exp, and three roundings near 1: by 2 sigmoid(2x) - 1.
        lambda p, e: local(math.tanh(p), ends(math.tanh, p, e), 5) + (5 / 2 + 3) * U,
    ),
    "erf": (
        lambda a, b: torch.erf(a * b),
        lambda p, e: local(math.erf(p), ends(math.erf, p, e), 9),
    ),
    "log": (
        lambda a, b: torch.log((a * b).abs()),
        lambda p, e: local(math.log(abs(p)), ends(math.log, abs(p), e), 5),
    ),
    "sqrt": (
        lambda a, b: torch.sqrt((a * b).abs()),
        lambda p, e: local(math.sqrt(abs(p)), ends(math.sqrt, abs(p), e), 3),
    ),
    "sin": (lambda a, b: torch.sin(a * b), lambda p, e: local(math.sin(p), e, 5)),
    "where": (
        lambda a, b: torch.where(a > 0, a * b, a),
        lambda p, e: e if p in (21.0, -9.75) else 0.0,
    ),
}


@pytest.mark.parametrize("name", [n for n in RULES if n != "add"])
def test_a_rule_gives_what_is_computed_by_hand(name: str) -> None:
    f, by_hand = RULES[name]
    _, shade, _ = shaded(f, A, B)
    wanted = [by_hand(p, e) for p, e in zip(P, E, strict=True)]
    assert shade.error.tolist() == pytest.approx(wanted, rel=1e-4, abs=1e-44)


def test_sums_and_products_of_matrices_by_hand() -> None:
    _, shade, _ = shaded(lambda a, b: a + b, A, B)
    size = (A + B).abs()
    assert shade.error.tolist() == pytest.approx([local(float(s), 0) for s in size])
    _, shade, _ = shaded(lambda a, b: (a * b).sum(), A, B)
    total, carried = sum(abs(p) for p in P), sum(E)
    wanted = carried + gamma(2, U) * (total + carried)
    assert float(shade.error) == pytest.approx(wanted, rel=1e-6)
    _, shade, _ = shaded(lambda a, b: (a * b).mean(), A, B)
    wanted = (carried + gamma(4, U) * (total + carried)) / 3
    assert float(shade.error) == pytest.approx(local(sum(P) / 3, wanted, 2), rel=1e-6)
    _, shade, _ = shaded(lambda a, b: a[None] @ b[:, None], A, B)
    assert float(shade.error) == pytest.approx(gamma(4, U) * total, rel=1e-6)
    # Of an operand in error, too.
    _, shade, _ = shaded(lambda a, b: (a * b)[None] @ b[:, None], A, B)
    s = sum((abs(p) + e) * abs(float(v)) for p, e, v in zip(P, E, B, strict=True))
    c = sum(e * abs(float(v)) for e, v in zip(E, B, strict=True))
    assert float(shade.error) == pytest.approx(c + gamma(4, U) * s, rel=1e-6)
    _, shade, _ = shaded(lambda a, b: torch.cumsum(a * b, 0)[0], A, B)
    assert float(shade.error) == pytest.approx(E[0], rel=1e-3)
    _, shade, _ = shaded(lambda a, b: (a * b).prod(), A, B)
    product = abs(math.prod(P))
    assert float(shade.error) == pytest.approx(
        (3 * U + gamma(2, U)) * product, rel=1e-6
    )


def test_moving_elements_moves_their_errors() -> None:
    x = torch.arange(1.0, 13.0).reshape(3, 4)
    _, shade, _ = shaded(lambda x: x * 3, x)

    def check(f: Callable[[Tensor], Tensor]) -> None:
        _, moved, shadow = shaded(lambda x: f(x * 3), x)
        assert torch.equal(moved.error, f(shade.error)), f
        assert not shadow.unknown

    check(lambda x: x.t().reshape(-1)[2:7])
    check(lambda x: torch.cat([x, x.flip(0)], 1).roll(1, 0))
    check(lambda x: x[torch.tensor([2, 0])])
    check(lambda x: x.gather(1, torch.tensor([[3, 1], [0, 0], [2, 2]])))
    check(lambda x: x.unfold(1, 2, 1).expand(2, 3, 3, 2)[1])
    check(lambda x: F.pad(x, (1, 2)))
    check(lambda x: torch.stack([x, x]).permute(2, 0, 1).select(0, 1))
    check(lambda x: x.index_select(1, torch.tensor([1, 1])).repeat(2, 1))
    zeros = torch.zeros(3, 4, dtype=torch.float64)
    check(lambda x: zeros.scatter(1, torch.tensor([[3], [1], [0]]), x))
    check(lambda x: x.tril())


def test_writing_in_place_is_seen_through_views_and_out() -> None:
    x = f32(1.0, 3.0, 5.0, 7.0)
    _, product, _ = shaded(lambda x: x * 3, x)

    def through_a_view(x: Tensor) -> Tensor:
        y = x * 1.0
        tail = y[2:]
        tail.mul_(3.0)
        return y

    _, shade, _ = shaded(through_a_view, x)
    assert torch.equal(shade.error[2:] > U, torch.tensor([True, True]))
    assert bool((shade.error[:2] <= ETA).all())
    _, shade, _ = shaded(lambda x: torch.mul(x, 3.0, out=torch.empty_like(x)), x)
    assert torch.equal(shade.error, product.error)
    _, shade, _ = shaded(lambda x: torch.zeros(4).copy_(x * 3), x)
    assert torch.equal(shade.error, product.error)

    def assigned(x: Tensor) -> Tensor:
        y = torch.zeros(2, 4)
        y[1] = x * 3
        return y[1]

    _, shade, _ = shaded(assigned, x)
    assert torch.equal(shade.error, product.error)
    _, shade, shadow = shaded(lambda x: (x * 3)[None].squeeze_(0), x)
    assert torch.equal(shade.error, product.error)
    assert not shadow.unknown


def test_a_doubt_about_a_choice_is_an_error_of_the_distance() -> None:
    third = torch.full((1,), 1 / 3)
    x = torch.cat([third, third + 1])
    # 3 x lies within its error of 1 for the first element only.
    _, shade, _ = shaded(lambda x: torch.where(x * 3 > 1, x + 100, x), x)
    assert 100 < float(shade.error[0]) < 101
    assert float(shade.error[1]) < 1e-4
    _, shade, _ = shaded(lambda x: torch.floor(x * 3), x)
    assert float(shade.error[0]) == 1.0
    assert float(shade.error[1]) in (0.0, 1.0)
    _, shade, _ = shaded(lambda x: (x * 3 > 1).to(torch.float32), x)
    assert shade.error.tolist() == [1.0, 0.0]
    # Without errors a comparison is certain, ties included.
    _, shade, _ = shaded(lambda x: torch.where(x >= x, x, -x), x)
    assert shade.error.tolist() == [0.0, 0.0]
    _, shade, _ = shaded(lambda x: (x * 3).argmax(-1), torch.stack([x, x.flip(0)]))
    assert shade.error.tolist() == [0.0, 0.0]
    near = f32(1.0, 1.0 + 2.0**-23)
    _, shade, _ = shaded(lambda x: (x / 3).argmax(), near)
    assert float(shade.error) == INF
    _, shade, _ = shaded(lambda x: x.argmax(), f32(2.0, 2.0, 1.0))
    assert float(shade.error) == 0.0
    made = accepted(lambda x: (x / 3).argmax(-1), torch.stack([near, f32(0.0, 1.0)]))
    assert made.output.name == "int64"
    assert made.undecided[0].tolist() == [True, False]


def test_a_rank_is_certain_where_no_other_number_comes_near() -> None:
    x = f32(1.0, 4.0, 4.0 + 2.0**-21, 9.0, 7.0)
    for largest in (True, False):
        for f in (
            lambda x, top=largest: (x / 3).topk(5, largest=top).indices,
            lambda x, top=largest: (x / 3).sort(descending=top).indices,
        ):
            _, shade, _ = shaded(f, x)
            doubt = [False, False, True, True, False]
            assert torch.isinf(shade.error).tolist() == doubt[:: 1 if largest else -1]
    _, shade, _ = shaded(lambda x: (x / 3).topk(2).indices, x)
    assert shade.error.tolist() == [0.0, 0.0], "what comes after is no neighbour"
    # NaN and infinities keep their places only where nothing is in error.
    _, shade, _ = shaded(lambda x: (x / 3).sort().indices, f32(INF, 1.0, INF, NAN))
    assert not bool(torch.isinf(shade.error)[0])
    assert torch.isinf(shade.error)[1:].all()
    _, shade, _ = shaded(lambda x: x.sort().indices, f32(2.0, 2.0, 1.0))
    assert shade.error.tolist() == [0.0, 0.0, 0.0]
    for kind in ("values", "indices"):
        made = accepted(lambda x, k=kind: getattr((x[:0] / 3).sort(), k), x)
        assert made.shape[-1] == 0


@pytest.mark.parametrize(
    ("f", "row"),
    [
        (lambda x: x.exp().argmax(-1), (256.0, 348.0)),
        (lambda x: (-x.square()).argmin(-1), (2.0**70, 2.0**71)),
        (lambda x: x.exp().max(-1).indices, (256.0, 348.0)),
        (lambda x: x.exp().sort(-1).indices, (348.0, 256.0)),
        (lambda x: x.gather(-1, x.exp().argmax(-1, keepdim=True)), (256.0, 348.0)),
    ],
)
def test_numbers_beyond_the_range_are_all_infinity(
    f: Callable[[Tensor], Tensor], row: tuple[float, ...]
) -> None:
    """The kernel's first infinity need not be the reference's greatest number."""
    rows = torch.stack([f32(*row), f32(1.0, 2.0)])
    made = accepted(f, rows)
    right = f(rows.to(torch.float64))
    assert not compare(f(rows)[None].to(right.dtype), made).missed.any()
    wrong = (f(rows) + 1)[None].to(right.dtype)
    assert compare(wrong, made).missed[0, 1].all()


def test_an_index_in_doubt_leaves_the_other_rows_decided() -> None:
    def masked(x: Tensor) -> Tensor:
        y = x.clone()
        y[x.exp() > 1] = 0.0
        return y

    def placed(x: Tensor) -> Tensor:
        place = x.exp().argmax(-1, keepdim=True)
        return torch.zeros_like(x).scatter(1, place, 1.0)

    x = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))
    x[1, 2], x[1, 3] = 200.0, 300.0
    for f in (masked, placed):
        made = accepted(f, x)
        assert not compare(f(x)[None], made).missed.any()
        wrong = f(x)
        wrong[4] += 5
        assert compare(wrong[None], made).missed[0, 4].all()


def test_what_an_integer_cannot_hold_becomes_any() -> None:
    """Torch leaves it undefined; a GPU takes the nearest integer, a CPU the least."""
    x = f32(3e9, -3e9, INF, NAN, 7.6, -7.6)
    made = accepted(lambda x: x.to(torch.int32), x)
    assert made.undecided[0].tolist() == [True] * 4 + [False] * 2
    made = accepted(lambda x: x.to(torch.uint8), f32(255.4, 256.0, -0.5, -1.0))
    assert made.undecided[0].tolist() == [False, True, False, True]
    made = accepted(lambda x: x.to(torch.bool), f32(INF, NAN, 0.0))
    assert not made.undecided.any()


def test_a_composite_is_no_stricter_than_torch_about_nan() -> None:
    x = torch.stack([f32(INF, 0.0), f32(1.0, 3.0)])
    made = accepted(lambda x: torch.var_mean(x, -1)[1], x)
    own = torch.var_mean(x, -1)[1]
    assert own[0].isnan()
    assert not compare(own[None], made).missed.any()
    assert compare(own[None] + 1, made).missed[0, 1]
    window = f32(NAN, NAN, 1.0, 2.0)[None]

    def place(x: Tensor) -> Tensor:
        return F.max_pool1d(x, 2, return_indices=True)[1]

    made = accepted(place, window)
    assert not compare(place(window)[None], made).missed.any()
    assert compare(torch.zeros_like(place(window))[None], made).missed[0, 0, 1]


def test_a_number_in_error_that_becomes_a_branch_decides_nothing() -> None:
    def branching(x: Tensor) -> Tensor:
        return x + 1 if float((x * 3).sum()) > 1 else x

    made = accepted(branching, A)
    assert bool(made.undecided.all())
    assert made.unknown == ("aten._local_scalar_dense",)
    # Numbers free of error may branch.
    assert not accepted(lambda x: x if float(x.max()) > 1 else -x, A).undecided.any()
    picked = accepted(lambda x: (x * 3)[x * 3 > 9.0].sum(), A)
    assert bool(picked.undecided.all())
    assert not accepted(lambda x: x[x > 0].sum(), A).undecided.any()


def test_an_operator_without_a_rule_is_named_and_leaves_its_results_undecided() -> None:
    def f(x: Tensor) -> Tensor:
        return torch.cat([torch.special.bessel_j0(x[:1]), x[1:] * 2])

    made = accepted(f, A)
    assert made.unknown == ("aten.special_bessel_j0",)
    assert made.undecided[0].tolist() == [True, False, False]
    # Its infinities are unknown, too.
    assert accepted(
        lambda x: torch.special.bessel_y0(x) + 1, f32(0.0, 1.0)
    ).undecided.all()
    assert accepted(lambda x: x * 2, A).unknown == ()


def test_special_values_have_the_classes_of_the_exact_run() -> None:
    x = f32(INF, -INF, NAN, 0.0, 1.0)
    finite = {
        "exp": lambda x: torch.exp(x),
        "softmax of masked scores": lambda x: torch.softmax(x[1:2].repeat(2), 0),
        "sum": lambda x: x.sum(),
        "product": lambda x: x[3:] * x[:2],
        "masked": lambda x: torch.where(x > 0, x, -INF),
        "matmul": lambda x: x[None, :2] @ x[3:, None],
        "log": lambda x: torch.log(x[3:]),
    }
    for label, f in finite.items():
        out, shade, _ = shaded(f, x)
        special = ~torch.isfinite(out)
        assert bool((shade.error[special] == 0).all()), label
    out, shade, _ = shaded(torch.exp, x)
    assert float(out[1]) == 0.0
    assert float(shade.error[1]) == 0.0
    # An infinity whose sign or presence hangs on a rounding is undecided.
    for f in (
        lambda x: 1 / (x[4:] / 3 * 3 - 1),
        lambda x: x[:1] * (x[4:] / 3 * 3 - 1),
        lambda x: torch.log(x[4:] / 3 * 3 - 1),
    ):
        _, shade, _ = shaded(f, x)
        assert bool((shade.error == INF).all())


def test_a_matrix_product_with_infinities_is_classed_without_doing_it() -> None:
    a = torch.tensor([[0.0, 1.0], [INF, 1.0], [INF, -INF]])
    b = torch.tensor([[INF, 1.0], [1.0, 2.0]])
    out, shade, _ = shaded(torch.matmul, a, b)
    assert out.isnan().tolist() == [[True, False], [False, False], [True, True]]
    assert float(out[1, 0]) == INF
    assert not bool(shade.error[~torch.isfinite(out)].any())


def test_overflow_of_an_intermediate_result_is_range_limited() -> None:
    x = f32(1e30, 2.0)
    made = accepted(lambda x: torch.sqrt(x * x), x)
    assert made.ambiguous[0].tolist() == [True, False]
    squared = compare(f32(INF, 2.0)[None], made)
    assert squared.outcomes[0].tolist() == [Outcome.UNDECIDED, Outcome.OK]
    # Of the result itself it is decided: it rounds to infinity.
    made = accepted(lambda x: x * x, x)
    assert not made.ambiguous.any()
    outcomes = compare(f32(5.0, 4.0)[None], made).outcomes[0].tolist()
    assert outcomes == [Outcome.VALUE, Outcome.OK]
    assert compare(f32(INF, 4.0)[None], made).outcomes[0].tolist() == [Outcome.OK] * 2
    half = torch.tensor([40000.0, 2.0], dtype=torch.float16)
    wide = accepted(lambda x: (x + x) / 2, half)
    assert not wide.ambiguous.any()
    narrow = accepted(lambda x: (x + x) / 2, half, intermediates="output")
    assert narrow.ambiguous[0].tolist() == [True, False]


def test_flushed_subnormals_are_allowed_for_where_they_are_declared() -> None:
    x = f32(2.0**-130, 1.0)
    kept, flushed = (
        accepted(lambda x: x * 2.0**30, x, subnormals=s) for s in ("preserve", "any")
    )
    zero = f32(0.0, 2.0**30)[None]
    assert compare(zero, kept).missed[0].tolist() == [True, False]
    assert not compare(zero, flushed).missed.any()


def test_casts_in_the_oracle_keep_float64_and_may_round() -> None:
    x = f32(1.0 + 2.0**-20)
    out, shade, _ = shaded(lambda x: (x / 3).float().double(), x)
    assert float(out) == float(x.double() / 3)
    assert float(shade.error) < 1e-6
    out, shade, _ = shaded(lambda x: (x / 3).half().float(), x)
    assert float(out) == float(x.double() / 3)
    assert 2.0**-11 / 3 < float(shade.error) < 2.0**-10


def test_each_result_is_rounded_once_where_intermediates_are_stored() -> None:
    x = torch.full((1, 8), 1.0, dtype=torch.bfloat16)
    _, shade, _ = shaded(lambda x: x.sum(-1), x, intermediates="output")
    assert float(shade.error) == pytest.approx(8 * 2.0**-8, rel=1e-3)
    _, shade, _ = shaded(lambda x: x.sum(-1), x)
    assert float(shade.error) < 1e-5


def test_what_is_added_to_a_sum_may_be_one_of_its_terms() -> None:
    """An accumulator that starts with the bias rounds it K times."""
    a, b, bias = torch.full((1, 512), 0.3), torch.ones(1, 512), f32(2.0**20)
    total = bias.clone()
    for k in range(512):
        total = total + a[:, k] * b[:, k]
    for f in (
        lambda a, b, c: (a @ b.t() + c)[0],
        lambda a, b, c: c + (a * b).sum(-1),
        lambda a, b, c: F.linear(a, b, c)[0],
    ):
        made = accepted(f, a, b, bias)
        assert not compare(total[None], made).missed.any()
    # As the reference has it, the bias comes last.
    strict = accepted(
        lambda a, b, c: (a @ b.t() + c)[0], a, b, bias, algorithm="as_reference"
    )
    assert compare(total[None], strict).missed.all()


def test_four_times_the_bound_violates_unless_the_steps_are_the_references() -> None:
    x = f32(*(0.1 * i for i in range(1, 9)))
    loose = accepted(lambda x: torch.exp(x), x)
    strict = accepted(lambda x: torch.exp(x), x, algorithm="as_reference")
    assert (loose.safety, strict.safety) == (4.0, 1.0)
    y = torch.exp(x.double())
    unit = torch.exp2(torch.floor(torch.log2(y))) * 2.0**-23
    near, far = ((y + k * unit).float()[None] for k in (6, 30))
    assert not compare(near, loose).missed.any()
    assert compare(near, tightened(loose)).missed.all()
    assert compare(near, strict).missed.all()
    assert compare(far, loose).missed.all()
    assert torch.allclose(tightened(loose).low, strict.low, rtol=1e-12, atol=0)


def test_members_are_batched_or_run_one_by_one_with_equal_bounds() -> None:
    x = torch.randn(3, 2, 8, generator=torch.Generator().manual_seed(2))

    def plain(x: Tensor) -> Tensor:
        return F.layer_norm(x, (8,)) @ torch.softmax(x, -1).t()

    def branching(x: Tensor) -> Tensor:
        return x * 2 if float(x.max()) > 100 else x * 3

    for f in (plain, branching):
        together = accept(operator_of(f), problem_of(x, members=True))["y0"]
        for i in range(3):
            alone = accepted(f, x[i])
            for part in ("reference", "low", "high"):
                one, all_of = getattr(alone, part)[0], getattr(together, part)[i]
                assert torch.allclose(one, all_of, rtol=1e-12, atol=0), (f, part)


def test_normalisations_may_fold_their_scale_and_shift() -> None:
    """x (r g) + (b - mean r g) rounds numbers of the size of x, not of x - mean."""
    generator = torch.Generator().manual_seed(3)
    x = 1000 + torch.randn(2, 3, 40, generator=generator)
    mean, variance = torch.full((3,), 1000.25), torch.full((3,), 0.7)
    g, b = f32(1.5, -0.3, INF), f32(0.1, 0.2, 0.3)

    def norm(x: Tensor, mean: Tensor, variance: Tensor, g: Tensor, b: Tensor) -> Tensor:
        return F.batch_norm(x, mean, variance, g, b, training=False)

    scale = g / torch.sqrt(variance + 1e-5)
    folded = x * scale[:, None] + (b - mean * scale)[:, None]
    made = accepted(norm, x, mean, variance, g, b)
    assert folded[:, 2].isnan().all()
    assert not compare(folded[None], made).missed.any()
    # Where the folded scale overflows it gives NaN, and else it does not.
    assert made.ambiguous[0, :, 2].all()
    assert not made.ambiguous[0, :, :2].any()
    assert not made.undecided.any()
    strict = accepted(norm, x, mean, variance, g, b, algorithm="as_reference")
    assert compare(folded[None], strict).missed[0, :, :2].any()


def test_factors_near_underflow_may_be_multiplied_in_another_order() -> None:
    d, r, g = f32(512.0, 512.0), f32(0.01, 0.01), f32(2.0**-125, 1.0)

    def chain(d: Tensor, r: Tensor, g: Tensor) -> Tensor:
        return d * r * g

    made = accepted(chain, d, r, g, subnormals="any")
    other = f32(0.0, 5.12)  # r g is subnormal and flushed
    assert compare(other[None], made).outcomes[0].tolist() == [
        Outcome.UNDECIDED, Outcome.OK,
    ]  # fmt: skip
    kept = accepted(chain, d, r, g, subnormals="preserve")
    assert compare(other[None], kept).outcomes[0].tolist() == [
        Outcome.VALUE, Outcome.OK,
    ]  # fmt: skip


def test_factors_may_be_multiplied_in_another_order_that_overflows() -> None:
    a, g = f32(2e38, 1e38), f32(4.0, 2.0)

    def scaled(a: Tensor, g: Tensor) -> Tensor:
        return a * (g / 8).unsqueeze(0).squeeze(0)

    made = accepted(scaled, a, g)
    other = a * g / 8  # a g overflows in the first element alone
    assert compare(other[None], made).outcomes[0].tolist() == [
        Outcome.UNDECIDED, Outcome.OK,
    ]  # fmt: skip
    assert compare(f32(1e38, INF)[None], made).missed[0].tolist() == [False, True]
    strict = accepted(scaled, a, g, algorithm="as_reference")
    assert compare(other[None], strict).missed[0].tolist() == [True, False]


@pytest.mark.parametrize("size", [1e-25, 3.3, 1e25])
def test_the_norm_of_one_element_is_a_root_of_its_square(size: float) -> None:
    made = accepted(lambda x: torch.linalg.vector_norm(x, dim=-1), f32(size)[:, None])
    naive = (f32(size) * f32(size)).sqrt()
    assert not compare(naive[None], made).missed.any()


def test_a_function_of_0_is_0_unless_it_is_approximated() -> None:
    zero, near = f32(0.0), f32(1e-9)
    for function in (torch.erf, torch.expm1, torch.tanh):
        made = accepted(lambda x, f=function: f(x) / 3, zero)
        assert compare(near[None], made).missed.all()
        assert not compare(zero[None], made).missed.any()
    fast = accepted(torch.erf, zero, approx=True)
    assert not compare(near[None], fast).missed.any()
