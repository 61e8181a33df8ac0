import math
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import pytest
import torch
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.oracle import accept
from kfuzz.core.errors import BindingError
from kfuzz.numerics.acceptance import Acceptance, Problem
from kfuzz.numerics.compare import Comparison, Outcome, compare
from kfuzz.numerics.formats import format_of
from tests.helpers import elementwise_algorithms as forms
from tests.helpers.elementwise_algorithms import stored
from tests.helpers.subjects.elementwise import OVER_EXPONENTIALS, SUBJECTS

HALVES: Final = ("float16", "bfloat16")
UNARY: Final = (
    "leaky_relu", "elu", "clamp", "sigmoid", "tanh", "exp", "log", "softplus", "gelu",
    "gelu_tanh", "silu", "copy",
)  # fmt: skip


@pytest.fixture(autouse=True)
def single_threaded() -> Iterator[None]:
    """Threads of torch that spin on few cores cost more than they save."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def every(dtype: str) -> Tensor:
    """All 65,536 numbers of a 16-bit format."""
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    return bits.view(getattr(torch, dtype))


def grid(low: float, high: float, dtype: str = "float32", n: int = 20001) -> Tensor:
    return torch.linspace(low, high, n, dtype=torch.float64).to(getattr(torch, dtype))


def accepted(operator: Operator, *xs: Tensor, **claims: Any) -> Acceptance:
    """Return what is admitted with the default scalars."""
    fmt = format_of(xs[0].dtype)
    problem = Problem(
        tensors={
            name: x.double().unsqueeze(0)
            for name, x in zip(operator.tensors, xs, strict=True)
        },
        scalars={name: p.default for name, p in operator.scalars.items()},
        format=fmt,
        output=fmt,
        declaration=operator.defaults.declare("", **claims),
    )
    return accept(operator, problem)["y"]


def compared(operator: Operator, y: Tensor, *xs: Tensor, **claims: Any) -> Comparison:
    """Judge results with the default scalars."""
    return compare(y.unsqueeze(0), accepted(operator, *xs, **claims))


@cache
def over_every(name: str, dtype: str) -> Acceptance:
    """Return what an operator admits for all numbers of a 16-bit format."""
    return accepted(SUBJECTS[name].operator, every(dtype))


def scalars_of(operator: Operator) -> dict[str, Any]:
    return {name: p.default for name, p in operator.scalars.items()}


def misses(operator: Operator, y: Tensor, *xs: Tensor, **claims: Any) -> int:
    return int(compared(operator, y, *xs, **claims).missed.sum())


# --- all 65,536 inputs ----------------------------------------------------------


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", UNARY)
def test_correct_algorithms_are_admitted_on_every_16_bit_number(
    name: str, dtype: str
) -> None:
    subject, x = SUBJECTS[name], every(dtype)
    scalars = scalars_of(subject.operator)
    algorithms = {"honest": subject.honest, **subject.correct}
    algorithms |= OVER_EXPONENTIALS.get(name, {})
    for label, algorithm in algorithms.items():
        y = algorithm(x, **scalars).unsqueeze(0)
        made = compare(y, over_every(name, dtype))
        at = made.missed[0].nonzero().flatten()[:3]
        assert at.numel() == 0, f"{label} at {x[at].tolist()}"


# The forms without an absolute error near 0.
ACCURATE: Final = {"elu": "expm1", "softplus": "log1p"}


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", UNARY)
def test_nearly_every_16_bit_result_is_decided_to_the_last_bit(
    name: str, dtype: str
) -> None:
    """Float32 arithmetic leaves one value, but beside midpoints and in tails."""
    subject, x = SUBJECTS[name], every(dtype)
    wanted = accepted(subject.operator, x, algorithm=ACCURATE.get(name, ""))
    y = subject.honest(x, **scalars_of(subject.operator))
    made = compare(y.unsqueeze(0), wanted)
    finite = torch.isfinite(y)
    alone = (made.low == made.high)[0] & finite
    assert int(alone.sum()) > 0.95 * int(finite.sum())
    beyond = torch.nextafter(y, torch.full_like(y, math.inf))
    moved = compare(torch.where(alone, beyond, y).unsqueeze(0), wanted)
    refused = moved.missed[0] | (beyond == 0) | ~torch.isfinite(beyond)
    unsure = moved.outcomes[0] == Outcome.UNDECIDED
    assert bool((refused | unsure)[alone].all())


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", [n for n in UNARY if n not in ("clamp", "copy")])
def test_16_bit_intermediates_are_admitted_where_declared(
    name: str, dtype: str
) -> None:
    subject, x = SUBJECTS[name], every(dtype)
    assert subject.half is not None
    claims: dict[str, Any] = {"intermediates": "output"}
    if name == "tanh":
        claims["algorithm"] = "exp_form"
    y = subject.half(x, **scalars_of(subject.operator))
    made = compared(subject.operator, y, x, **claims)
    at = made.missed[0].nonzero().flatten()[:3]
    assert at.numel() == 0, f"{x[at].tolist()}"


# --- algorithms, approximations, subnormals ---------------------------------------


def abramowitz_stegun(x: Tensor) -> Tensor:
    """erf by formula 7.1.26, in float32."""
    a = x.abs()
    t = 1 / (1 + 0.3275911 * a)
    poly = 1.061405429
    for c in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        poly = poly * t + c
    return torch.copysign(1 - poly * t * torch.exp(-a * a), x)


def gelu_rational(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + abramowitz_stegun(x * 0.7071067811865476))


def silu_by_tanh(x: Tensor) -> Tensor:
    return x * (0.5 + 0.5 * torch.tanh(0.5 * x))


def gelu_tanh_form(x: Tensor) -> Tensor:
    return forms.gelu_tanh_plain(x)


X: Final = grid(-12, 12)
ALGORITHMS: Final = {
    "sigmoid tanh_form": (ops.sigmoid, lambda x: 0.5 + 0.5 * torch.tanh(0.5 * x)),
    "silu tanh_form": (ops.silu, silu_by_tanh),
    "gelu tanh_form": (ops.gelu, gelu_tanh_form),
    "tanh exp_form": (ops.tanh, lambda x: forms.tanh_of_sigmoid(torch.exp, x)),
    "swiglu tanh_form": (ops.swiglu, lambda x, up: silu_by_tanh(x) * up),
    "geglu tanh_form": (ops.geglu, lambda x, up: gelu_tanh_form(x) * up),
}


@pytest.mark.parametrize("label", ALGORITHMS)
def test_a_form_outside_the_default_is_admitted_where_declared(label: str) -> None:
    operator, form = ALGORITHMS[label]
    xs = [X, X.flip(0)][: len(operator.tensors)]
    y = form(*xs)
    assert misses(operator, y, *xs) > 100
    assert misses(operator, y, *xs, algorithm=label.split()[1]) == 0


@pytest.mark.parametrize(
    ("operator", "algorithm", "accurate", "cancelling"),
    [
        (ops.elu, "expm1", stored(forms.elu_expm1), forms.elu_exp),
        (ops.softplus, "log1p", None, forms.softplus_log),
    ],
)
def test_an_accurate_form_declared_is_held_to(
    operator: Operator, algorithm: str, accurate: Any, cancelling: Any
) -> None:
    scalars = scalars_of(operator)
    if accurate is None:
        accurate = OVER_EXPONENTIALS["softplus"]["stable coarse"]
    assert misses(operator, accurate(X, **scalars), X, algorithm=algorithm) == 0
    below = X.abs().neg() / 8 if operator is ops.elu else grid(-16, 0)
    y = cancelling(torch.exp, below, **scalars)
    assert misses(operator, y, below) == 0
    assert misses(operator, y, below, algorithm=algorithm) > 100


def test_gelu_computed_by_erf_is_no_tanh_form() -> None:
    assert misses(ops.gelu, forms.gelu_factor(X), X, algorithm="tanh_form") > 100
    assert misses(ops.gelu_tanh, forms.gelu_factor(X), X) > 100


@pytest.mark.parametrize(
    ("operator", "fast", "x"),
    [
        (ops.tanh, lambda x: torch.tanh(x) * (1 + 2.0**-12), X),
        (ops.log, lambda x: torch.log(x) + 2.0**-22, grid(0.5, 2)),
        (ops.log, lambda x: torch.log(x) * (1 + 6 * 2.0**-24), grid(2, 900)),
        (ops.gelu, gelu_rational, X),
        (ops.gelu_tanh, lambda x: 0.5 * x * (1 + 0.99975 * torch.tanh(
            0.7978845608 * (x + 0.044715 * x * x * x))), X),
        (ops.exp, lambda x: torch.exp(x) * (1 + 10 * 2.0**-24), grid(-1, 1)),
    ],
)  # fmt: skip
def test_fast_functions_are_admitted_where_declared(
    operator: Operator, fast: Any, x: Tensor
) -> None:
    y = fast(x)
    assert misses(operator, y, x) > 0
    assert misses(operator, y, x, approx=True) == 0


def test_an_unknown_algorithm_is_a_binding_error_that_lists_the_names() -> None:
    with pytest.raises(BindingError, match="no algorithm 'tanhform'") as error:
        kernel(ops.silu, name="k", algorithm="tanhform")(torch.sigmoid)
    assert "tanh_form" in str(error.value)
    with pytest.raises(BindingError, match="approx='yes'"):
        kernel(ops.silu, name="k", approx="yes")(torch.sigmoid)


def test_a_lost_sign_of_zero_is_a_miss_where_bits_are_moved() -> None:
    x = torch.tensor([[0.0, -0.0, 1.0], [-0.0, 2.0, 0.0]])
    lost = x + 0.0
    assert misses(ops.copy, x.clone(), x) == 0
    assert misses(ops.copy, lost, x) == 2
    assert misses(ops.copy, -x, x) == 6
    assert misses(ops.transpose, x.T, x) == 0
    assert misses(ops.transpose, lost.T, x) == 2
    assert misses(ops.clamp, lost.clamp(-1, 1), x) == 0


def test_flushing_is_refused_where_subnormals_are_preserved() -> None:
    x = torch.tensor([2.0**-127, 2.0**-100, 3.0])
    two, small = torch.tensor([2.0, 2.0, 2.0]), torch.tensor([1.0, 2.0**-40, 1.0])
    flushed = torch.tensor([0.0, 2.0**-99, 6.0])
    assert misses(ops.mul, flushed, x, two) == 0
    assert misses(ops.mul, flushed, x, two, subnormals="preserve") == 1
    flushed = torch.tensor([0.0, 0.0, 3.0])
    assert misses(ops.mul, flushed, x, small) == 0
    assert misses(ops.mul, flushed, x, small, subnormals="preserve") == 2
    assert misses(ops.add, torch.tensor([2.0, 2.0, 5.0]), x, two) == 0
    # Adding 0 shows it: the subnormal operand is the result.
    zero = torch.zeros(3)
    assert misses(ops.add, torch.tensor([0.0, 2.0**-100, 3.0]), x, zero) == 0
    assert (
        misses(
            ops.add, torch.tensor([0.0, 2.0**-100, 3.0]), x, zero,
            subnormals="preserve",
        )
        == 1
    )  # fmt: skip
    tiny = torch.tensor([-95.0])
    assert misses(ops.exp, torch.zeros(1), tiny) == 0
    assert misses(ops.exp, torch.zeros(1), tiny, subnormals="preserve") == 1


def test_a_flushed_subnormal_against_an_infinity_may_be_nan_or_lowest() -> None:
    x = torch.tensor([2.0**-130] * 3)
    infinity = torch.full((3,), math.inf)
    y = torch.tensor([math.inf, math.nan, -math.inf])
    assert compared(ops.mul, y, x, infinity).missed[0].tolist() == [False, False, True]
    strict = compared(ops.mul, y, x, infinity, subnormals="preserve")
    assert strict.missed[0].tolist() == [False, True, True]
    # log of a subnormal is finite; of 0, -Inf.
    y = torch.tensor([130 * -math.log(2), -math.inf, math.nan])
    assert compared(ops.log, y, x).missed[0].tolist() == [False, False, True]
    strict = compared(ops.log, y, x, subnormals="preserve")
    assert strict.missed[0].tolist() == [False, True, True]


def test_16_bit_products_below_float32s_normal_range_are_rounded_once() -> None:
    significands = torch.arange(128, 256)
    for exponent in range(-154, -141):
        b = (significands * 2.0 ** (exponent + 70)).to(torch.bfloat16)
        for significand in (129, 171, 255):
            a = torch.full_like(b, significand * 2.0**-70)
            exact = torch.round(a.double() * b.double() / 2.0**-133) * 2.0**-133
            y = exact.to(torch.bfloat16)
            assert torch.equal(y, (a.float() * b.float()).to(torch.bfloat16))
            assert misses(ops.mul, y, a, b, subnormals="preserve") == 0
            off = (exact + 2.0**-133).to(torch.bfloat16)
            assert misses(ops.mul, off, a, b) == b.numel()


def test_the_limit_at_minus_infinity_may_be_nan_or_zero() -> None:
    x = torch.full((4,), -math.inf)
    y = torch.tensor([math.nan, 0.0, -0.0, -1e-30])
    for operator in (ops.silu, ops.gelu, ops.gelu_tanh):
        assert compared(operator, y, x).missed[0].tolist() == [False] * 3 + [True]
    y = torch.tensor([math.nan, 0.0, math.inf, -math.inf])
    for operator in (ops.swiglu, ops.geglu):
        made = compared(operator, y, x, torch.ones(4))
        assert made.missed[0].tolist() == [False, False, True, True]


def test_saturated_activations_are_exact() -> None:
    """No absolute error grows with |x| where erf and tanh are 1."""
    x = torch.tensor([-1e30, -1e10, -200.0])
    for operator in (ops.gelu, ops.gelu_tanh, ops.silu):
        assert misses(operator, torch.zeros(3), x) == 0
        assert misses(operator, x * 2.0**-24, x) == 3


def test_products_in_another_order_that_overflow_are_undecided() -> None:
    gate, up = torch.tensor([-1e30, 2.0]), torch.tensor([1e30, 1e38])
    y = torch.tensor([math.nan, math.nan])
    made = compared(ops.swiglu, y, gate, up)
    assert made.outcomes[0].tolist() == [Outcome.UNDECIDED, Outcome.NAN_UNEXPECTED]
    x = torch.tensor([3e38, 1e38])
    made = compared(ops.gelu, torch.full((2,), math.inf), x)
    assert made.outcomes[0].tolist() == [Outcome.UNDECIDED, Outcome.INF_UNEXPECTED]
