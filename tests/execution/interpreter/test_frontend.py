"""What the frontend of Triton makes of an operation is found out once."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor

from kfuzz.execution.interpreter import language
from kfuzz.execution.interpreter.memory import untrue
from kfuzz.execution.interpreter.programs import Programs
from kfuzz.execution.interpreter.watch import watch


@triton.jit
def several(x, y, out, n, BLOCK: tl.constexpr, ZERO: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a, b = tl.load(x + i, mask=i < n, other=0.0), tl.load(y + i, mask=i < n, other=0.0)
    square, product = a * a, a * b
    sign = tl.where(a > b, ZERO, 1.0)
    halves = (square[None, :] + product[:, None]).to(tl.float16)
    tl.store(out + i, tl.sum(halves, 0).to(tl.float32) + product + sign, mask=i < n)


def expected(x: Tensor, y: Tensor, zero: float) -> Tensor:
    square, product = x * x, x * y
    sign = torch.where(x > y, torch.full_like(x, zero), torch.ones_like(x))
    halves = (square[None, :] + product[:, None]).to(torch.float16)
    return halves.float().sum(0).half().float() + product + sign


@pytest.mark.parametrize("programs", [1, 3])
def test_an_operation_is_carried_out_anew_for_other_values(programs: int) -> None:
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        x, y = (torch.randint(-3, 4, (8,), generator=generator).float() for _ in "xy")
        for first, second in ((x, y), (x, x), (y, x)):
            out = torch.zeros(8)
            with watch():
                several[(programs,)](first, second, out, 8, BLOCK=8, ZERO=2.0)
            assert torch.equal(out, expected(first, second, 2.0))


@triton.jit
def signed(out, VALUE: tl.constexpr):
    i = tl.arange(0, 4)
    tl.store(out + i, tl.full((4,), 1.0, tl.float32) * VALUE)


def test_numbers_that_python_takes_for_equal_are_told_apart() -> None:
    made: list[tuple[Any, ...]] = []
    for value in (0.0, -0.0, 1, True, 1.0):
        out = torch.empty(4)
        with watch():
            signed[(1,)](out, VALUE=value)
        made.append((bool(out.signbit().all()), float(out[0])))
    assert made == [(False, 0.0), (True, -0.0), *[(False, 1.0)] * 3]


def test_the_frontend_is_asked_once_and_plans_hold_no_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []
    plans: list[language._Plan] = []
    plan = language._Frontend._plan

    def noted(frontend: Any, key: tuple[Any, ...], *operands: Any) -> Any:
        asked.append(key)
        made = plan(frontend, key, *operands)
        if (found := frontend._plans[key]) is not None:
            plans.append(found)
        return made

    monkeypatch.setattr(language._Frontend, "_plan", noted)
    x, y, out = torch.ones(64), torch.ones(64), torch.zeros(64)
    for _ in range(2):
        with watch():
            several[(1,)](x, y, out, 64, BLOCK=64, ZERO=0.25)
    assert asked
    assert len(asked) == len(set(asked))
    held = [x for p in plans for _, given, _ in p.steps for x in given]
    held += [p.kind["handle"] for p in plans if p.kind is not None]
    sizes = [x.data.size for x in held if hasattr(x, "data")]
    assert max(sizes, default=1) == 1  # numbers alone


def declaring(function: Any) -> Any:
    function.__annotations__ = {"value": tl.float16}
    return function


@triton.jit
@declaring
def declared(out, value):
    tl.static_assert(value.dtype == tl.float16)
    tl.store(out, value.to(tl.float32))


def test_types_that_a_decorator_declares_hold() -> None:
    out = torch.empty(1)
    with watch():
        declared[(1,)](out, 1 / 3)
    assert out == torch.tensor(1 / 3).half().float()


@triton.jit
def applied(x, out, FUNCTION: tl.constexpr):
    i = tl.arange(0, 4)
    tl.store(out + i, FUNCTION(tl.load(x + i)))


def test_functions_of_the_language_can_be_given_as_constants() -> None:
    from triton.language.extra import libdevice

    x, out = torch.arange(4.0), torch.empty(4)
    for function, wanted in ((libdevice.tanh, x.tanh()), (tl.exp, x.exp())):
        with watch():
            applied[(1,)](x, out, FUNCTION=function)
        torch.testing.assert_close(out, wanted)


@pytest.mark.parametrize(
    ("name", "values", "numbers", "wrong"),
    [
        ("multiple_of", [[0, 1, 2, 3, 8, 9]], [8], []),
        ("multiple_of", [[0, 1, 2, 3, 6, 7]], [4], [6]),
        ("multiple_of", [[20]], [8], [20]),
        ("multiple_of", [[16], [24]], [16], [24]),  # of two programs
        ("max_contiguous", [[4, 5, 8, 9]], [2], []),
        ("max_contiguous", [[4, 5, 8, 9]], [4], [8]),
        ("max_constancy", [[3, 3, 4, 4]], [2], []),
        ("max_constancy", [[3, 3, 4, 4]], [4], [4]),
        ("multiple_of", [[[0, 1], [16, 17]]], [16, 16], []),
        ("multiple_of", [[[0, 1], [20, 21]]], [16, 16], [20]),
    ],
)
def test_a_hint_is_true_of_each_run_or_it_is_untrue(
    name: str, values: list[Any], numbers: list[int], wrong: list[int]
) -> None:
    found = untrue(name, Programs(np.array(values, np.int32)), numbers, 1)
    assert found.tolist() == wrong
    if len(values) == 1:
        alone = untrue(name, np.array(values[0], np.int32), numbers, 1)
        assert alone.tolist() == wrong


def test_a_row_of_nan_gives_no_warning() -> None:
    @triton.jit
    def maximum(x, y, N: tl.constexpr):  # type: ignore[no-untyped-def]
        tl.store(y, tl.max(tl.load(x + tl.arange(0, N)), 0))

    x, y = torch.full((4,), torch.nan), torch.zeros(1)
    with watch(), warnings.catch_warnings(record=True) as given:
        maximum[(1,)](x, y, 4)
    assert y.isnan().all()
    assert not given
