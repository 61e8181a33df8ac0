"""`kfuzz.assert_conforms`: what passes, what fails, and what the message says."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import kfuzz
from kfuzz.contracts import operators as ops
from kfuzz.core.errors import BindingError, UsageError

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def numbers(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def told(check: Callable[[], None]) -> str:
    with pytest.raises(AssertionError) as raised:
        check()
    return str(raised.value)


@pytest.mark.parametrize("dtype", DTYPES)
def test_right_results_pass(dtype: torch.dtype) -> None:
    x, w = numbers(8, 33, dtype=dtype), numbers(33, dtype=dtype, seed=1)
    kfuzz.assert_conforms(torch.softmax(x, -1), "softmax", x, dim=-1)
    kfuzz.assert_conforms(torch.softmax(x, -1).T.contiguous().T, ops.softmax, x, -1)
    y = torch.nn.functional.layer_norm(x.float(), (33,), w.float()).to(dtype)
    kfuzz.assert_conforms(y, "layer_norm", x, w, torch.zeros_like(w), eps=1e-5)


def test_another_order_of_additions_passes() -> None:
    a, b = numbers(16, 300), numbers(300, 8, seed=1)
    made = sum(a[:, i : i + 50] @ b[i : i + 50] for i in reversed(range(0, 300, 50)))
    kfuzz.assert_conforms(made, "matmul", a, b)


def test_gradients() -> None:
    x, dy = numbers(4, 9).requires_grad_(), numbers(4, 9, seed=1)
    torch.softmax(x, -1).backward(dy)
    given = {"x": x.detach(), "grad_y": dy, "dim": -1}
    kfuzz.assert_conforms(x.grad, "softmax.backward", **given)
    assert "dx" in told(
        lambda: kfuzz.assert_conforms(x.grad * 1.01, "softmax.backward", **given)
    )


def test_several_results() -> None:
    x = numbers(4, 9)
    kfuzz.assert_conforms(tuple(x.topk(3)), "topk", x, k=3, dim=-1, largest=True)


def test_a_function_of_ones_own_and_a_bound_kernel() -> None:
    x, y = numbers(8, 33), numbers(8, 33, seed=1)

    def gated(x: Tensor, gate: Tensor, scale: float = 1.0) -> Tensor:
        return torch.sigmoid(gate) * x * scale

    kfuzz.assert_conforms(x * torch.sigmoid(y) * 2, gated, x, y, scale=2.0)
    assert "wrong" in told(lambda: kfuzz.assert_conforms(x, gated, x, y))

    @kfuzz.kernel(ops.relu, name="kernel_of_a_test", layouts="contiguous")
    def bound(x: Tensor) -> Tensor:
        return torch.relu(x)

    kfuzz.assert_conforms(torch.relu(x), bound, x)
    with pytest.raises(UsageError, match="layouts"):
        kfuzz.assert_conforms(torch.relu(x), bound, x.T)
    kfuzz.assert_conforms(torch.relu(x.T), bound, x.T, layouts="any")


def test_the_message_names_the_worst_element_and_counts() -> None:
    x = numbers(8, 33)
    y = torch.softmax(x, -1)
    y[3, 5] *= 1.001
    text = told(lambda: kfuzz.assert_conforms(y, "softmax", x, dim=-1))
    for part in ("softmax: y[3, 5] = ", "K-VAL-01", "allowed [", "1 of 264 elements"):
        assert part in text
    y[7, 7] = float("nan")
    text = told(lambda: kfuzz.assert_conforms(y, "softmax", x, dim=-1))
    assert "y[7, 7] = nan" in text
    assert "2 of 264 elements; 1 NaN, 263 finite" in text


@pytest.mark.parametrize(
    ("made", "part"),
    [
        (lambda y: y[:5], "shape"),
        (lambda y: y.half(), "float16"),
        (lambda y: (y, y), "tuple"),
        (lambda y: None, "None"),
        (torch.zeros_like, "wrong"),
        (lambda y: torch.full_like(y, float("nan")), "nan"),
    ],
)
def test_what_is_no_result_fails(made: Callable[[Tensor], Any], part: str) -> None:
    x = numbers(8, 33)
    y = made(torch.softmax(x, -1))
    assert part in told(lambda: kfuzz.assert_conforms(y, "softmax", x, dim=-1))


def test_the_declaration_that_would_admit_a_miss_is_named() -> None:
    a, b = numbers(8, 64, dtype=torch.float16), numbers(64, 8, dtype=torch.float16)
    narrow = torch.zeros(8, 8, dtype=torch.float16)
    for k in range(64):
        narrow = (narrow + a[:, k : k + 1] * b[k : k + 1]).half()
    text = told(lambda: kfuzz.assert_conforms(narrow, "matmul", a, b))
    assert "accepted  with accumulator='float16'" in text
    kfuzz.assert_conforms(narrow, "matmul", a, b, accumulator="float16")
    # Nothing admits what is no matter of rounding.
    wrong = narrow.neg()
    assert "admitted" not in told(lambda: kfuzz.assert_conforms(wrong, "matmul", a, b))


def test_a_result_made_without_versions_is_judged() -> None:
    def half(x: Tensor) -> Tensor:
        return x / 2

    with torch.inference_mode():
        x = numbers(3, 8) * 1
        kfuzz.assert_conforms(x * 0.5, half, x)
        assert told(lambda: kfuzz.assert_conforms(x, half, x))


def test_a_policy_for_nan_is_offered_where_only_nan_misses() -> None:
    x = numbers(4, 32)
    x[0, 0] = float("nan")
    y = torch.nan_to_num(x.softmax(-1), 0.0)
    assert "nonfinite='undefined'" in told(
        lambda: kfuzz.assert_conforms(y, "softmax", x, dim=-1)
    )


def test_integers_that_no_float_holds_are_exact() -> None:
    def summed(x: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return x * 2, a + b

    x = numbers(3)
    a = torch.tensor([2**25, 3], dtype=torch.int32)
    b = torch.tensor([1, 4], dtype=torch.int32)
    kfuzz.assert_conforms((x * 2, a + b), summed, x, a, b)
    wrong = a + b - torch.tensor([1, 0], dtype=torch.int32)
    message = told(lambda: kfuzz.assert_conforms((x * 2, wrong), summed, x, a, b))
    assert "expected 33554433" in message


def test_indices_are_exact() -> None:
    x = numbers(8, 33)
    kfuzz.assert_conforms(x.argmax(-1), lambda x: x.argmax(-1), x)
    wrong = (x.argmax(-1) + 1) % 33
    assert told(lambda: kfuzz.assert_conforms(wrong, lambda x: x.argmax(-1), x))


@pytest.mark.parametrize(
    ("check", "error", "part"),
    [
        (lambda x: kfuzz.assert_conforms(x, "softmx", x), UsageError, "softmax"),
        (lambda x: kfuzz.assert_conforms(x, 3, x), UsageError, "neither"),
        (lambda x: kfuzz.assert_conforms(x, "relu", x, x), UsageError, "takes 1"),
        (lambda x: kfuzz.assert_conforms(x, "relu"), UsageError, "no tensor for x"),
        (lambda x: kfuzz.assert_conforms(x, "relu", x.int()), UsageError, "int32"),
        (lambda x: kfuzz.assert_conforms(x, "relu", x, foo=1), BindingError, "foo"),
        (
            lambda x: kfuzz.assert_conforms(x, "relu", x / 0, nonfinite="undefined"),
            UsageError,
            "undefined",
        ),
        (
            lambda x: kfuzz.assert_conforms(
                (x.relu(), x), lambda x: (x.relu(), torch.special.bessel_j0(x)), x
            ),
            UsageError,
            "no element",
        ),
    ],
)
def test_what_checks_nothing_is_an_error(
    check: Callable[[Tensor], None], error: type[Exception], part: str
) -> None:
    with pytest.raises(error, match=part):
        check(numbers(4, 4))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_results_on_a_gpu(dtype: torch.dtype) -> None:
    x = numbers(8, 33, dtype=dtype).cuda()
    kfuzz.assert_conforms(torch.softmax(x, -1), "softmax", x, dim=-1)
    assert "K-VAL-01" in told(
        lambda: kfuzz.assert_conforms(torch.zeros_like(x), "softmax", x, dim=-1)
    )


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32])
def test_what_wraps_in_narrow_integers_alone_is_left_open(dtype: torch.dtype) -> None:
    """A kernel may add in wider integers than the reference does."""

    def mean(x: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return (a + b) >> 1, x * 2

    def wider(x: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return ((a.long() + b.long()) >> 1).to(dtype), x * 2

    most = torch.iinfo(dtype).max
    given = torch.ones(2), *torch.tensor([[most, 3], [1, 5]], dtype=dtype)
    for right in (mean, wider):
        kfuzz.assert_conforms(right(*given), mean, *given)
    wrong = wider(*given)
    wrong[0][1] += 1
    with pytest.raises(AssertionError, match=r"y0\[1\] = 5"):
        kfuzz.assert_conforms(wrong, mean, *given)
