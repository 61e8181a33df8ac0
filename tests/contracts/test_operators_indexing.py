from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from kfuzz.contracts import operators as ops
from kfuzz.core.recipe import Scalar
from tests.helpers.impostors import (
    DTYPES,
    Algorithm,
    Posed,
    Setup,
    Subject,
    case_of,
    is_refused,
    pose_case,
    posed,
)
from tests.helpers.subjects.indexing import (
    INF,
    NAN,
    SUBJECTS,
    Scatter,
    along,
    chosen,
    elements,
    in_turn,
    ordering,
    rows,
    stable,
    table,
    unstable,
)

ADDING = [
    (name, dtype)
    for name, s in SUBJECTS.items()
    for dtype in s.dtypes
    if s.half and dtype != "float32"
]


def refused(
    name: str, dtype: str, wrong: Algorithm, family: str, setup: Setup, **claims: Any
) -> bool:
    """Whether an algorithm is refused on a family with some seed."""
    return is_refused(SUBJECTS[name], dtype, wrong, family, setup, **claims)


# --- scattered sums ----------------------------------------------------------


def plain(x: Tensor, index: Tensor, src: Tensor) -> Tensor:
    """Overwrites."""
    return x.scatter(-1, index, src)


def last_wins(x: Tensor, index: Tensor, src: Tensor) -> Tensor:
    """Of sources that share a place one counts, as without atomics."""
    return x + torch.zeros_like(x).scatter(-1, index, src)


def tail_lost(x: Tensor, index: Tensor, src: Tensor) -> Tensor:
    """The last source of a tile is not read."""
    return in_turn(x, index[:, :-1], src[:, :-1])


def without_base(x: Tensor, index: Tensor, src: Tensor) -> Tensor:
    """What was there is forgotten."""
    return in_turn(torch.zeros_like(x), index, src)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("wrong", [plain, last_wins, tail_lost, without_base])
def test_lost_terms_are_refused(wrong: Scatter, dtype: str) -> None:
    for family in ("randn", "exact_int", "uniform01"):
        assert refused("scatter_add", dtype, elements(wrong), family, along(4, 9, 32))
        assert refused("index_add", dtype, rows(wrong), family, table(9, 32, 4, 2.0))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_forgotten_factor_is_refused(dtype: str) -> None:
    def plainly(x: Tensor, index: Tensor, src: Tensor, *, alpha: float) -> Tensor:
        return rows(in_turn)(x, index, src, alpha=1.0)

    def everywhere(x: Tensor, index: Tensor, src: Tensor, *, alpha: float) -> Tensor:
        return rows(in_turn)(x * alpha, index, src, alpha=alpha)

    for wrong in (plainly, everywhere):
        assert refused("index_add", dtype, wrong, "randn", table(9, 32, 4, 0.5))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dtype"), ADDING)
def test_additions_in_memory_are_admitted_where_declared(name: str, dtype: str) -> None:
    """Every sum rounded to the data's format, as atomics on 16 bits do."""
    subject = SUBJECTS[name]
    assert subject.half is not None
    strict = 0
    for case in posed(subject, dtype):
        results = case.run(subject.half)
        for claims in (
            {"intermediates": "output"}, {"accumulator": f"atomic({dtype})"},
        ):  # fmt: skip
            declared = pose_case(subject, case.case, **claims)
            assert not declared.refuses(results), f"{claims} {case}"
        strict += case.refuses(results)
    assert strict > 5


def explicit(x: Tensor, index: list[int], src: Tensor) -> Posed:
    """Return a scatter_add of one row of float32 with the given values."""
    subject = SUBJECTS["scatter_add"]
    k = len(index)
    made = case_of(subject, "float32", "zeros", along(1, x.numel(), k))
    given = {"x": x, "index": torch.tensor(index), "src": src}
    for key, values in given.items():
        data = values.numpy().tobytes()
        spec = replace(made.tensors[key], fill=None, values=data)
        made = made.with_tensor(key, spec)
    return pose_case(subject, made)


def test_special_values_stay_in_their_places() -> None:
    x = torch.tensor([1.0, 2.0, 3.0, INF, 5.0])
    src = torch.tensor([NAN, 1.0, INF, -INF, -INF])
    case = explicit(x, [0, 1, 2, 2, 3], src)
    right = torch.tensor([[NAN, 3.0, NAN, NAN, 5.0]])
    assert not case.refuses({"y": right})
    for at, value in ((0, 1.0), (1, NAN), (2, INF), (3, INF), (4, NAN), (4, 5.5)):
        wrong = right.clone()
        wrong[0, at] = value
        assert case.refuses({"y": wrong}), at
    # A product with a matrix of zeros and ones spreads what is not finite.
    matrix = torch.nn.functional.one_hot(torch.tensor([0, 1, 2, 2, 3]), 5).float()
    assert case.refuses({"y": (x + src @ matrix).unsqueeze(0)})


def test_an_overflow_on_the_way_is_undecided_in_its_place_only() -> None:
    x = torch.tensor([3e38, 3e38])
    case = explicit(x, [0, 0], torch.tensor([3e38, -3e38]))
    for first in (3e38, INF):
        assert not case.refuses({"y": torch.tensor([[first, 3e38]])})
    assert case.refuses({"y": torch.tensor([[3e38, INF]])})


def test_sums_of_integers_are_exact() -> None:
    case = explicit(torch.tensor([1.0, 2.0]), [1] * 300, torch.ones(300))
    assert not case.refuses({"y": torch.tensor([[1.0, 302.0]])})
    beyond = torch.nextafter(torch.tensor(302.0), torch.tensor(303.0))
    assert case.refuses({"y": torch.stack([torch.tensor(1.0), beyond]).unsqueeze(0)})


# --- orders ------------------------------------------------------------------


def of_values(name: str, x: Tensor, scalars: dict[str, Scalar], **claims: str) -> Posed:
    """Return a case of given float32 values."""
    subject = SUBJECTS[name]
    setup = Setup((tuple(x.shape),), {"dim": -1, **scalars})
    made = case_of(subject, "float32", "zeros", setup)
    spec = replace(made.tensors["x"], fill=None, values=x.numpy().tobytes())
    return pose_case(subject, made.with_tensor("x", spec), **claims)


RISING: dict[str, Scalar] = {"descending": False}
FALLING: dict[str, Scalar] = {"descending": True}


@pytest.mark.parametrize("name", ["sort", "topk"])
def test_which_of_equals_is_named_is_free_unless_declared(name: str) -> None:
    subject, refusals = SUBJECTS[name], 0
    orders = (stable, unstable)
    first, last = orders if name == "sort" else map(chosen, orders)
    for case in posed(subject, "float32"):
        declared = pose_case(subject, case.case, ties="first")
        assert not declared.refuses(declared.run(first)), str(case)
        assert not case.refuses(case.run(last)), str(case)
        refusals += declared.refuses(declared.run(last))
    assert refusals > 20


def test_indices_name_each_element_once() -> None:
    x = torch.tensor([[2.0, 1.0, 2.0, NAN, 2.0, NAN, -0.0, 0.0]])
    values = torch.tensor([[-0.0, 0.0, 1.0, 2.0, 2.0, 2.0, NAN, NAN]])
    case = of_values("sort", x, RISING)

    def refused(*index: int, values: Tensor = values) -> bool:
        return case.refuses({"values": values, "indices": torch.tensor([index])})

    assert not refused(6, 7, 1, 0, 2, 4, 3, 5)
    assert not refused(7, 6, 1, 4, 0, 2, 5, 3)
    for wrong in (
        (6, 7, 1, 0, 2, 2, 3, 5),  # one element twice
        (6, 7, 1, 0, 2, 1, 3, 5),  # another value
        (6, 7, 1, 0, 2, 4, 3, 3),
        (6, 7, 1, 0, 2, 4, 3, 8),  # out of bounds, either way
        (6, 7, 1, 0, 2, 4, 3, -1),
        (7, 7, 1, 0, 2, 4, 3, 5),
        (6, 7, 1, 0, 2, 3, 4, 5),  # a NaN in place of a number
    ):
        assert refused(*wrong), wrong
    zeros = values.abs()
    assert not refused(6, 7, 1, 0, 2, 4, 3, 5, values=zeros)
    values[0, 5] = 1.0
    assert refused(6, 7, 1, 0, 2, 4, 3, 5)


def test_a_nan_is_the_greatest() -> None:
    x = torch.tensor([[1.0, NAN, INF, -INF]])
    for name, scalars, right, wrong in (
        ("sort", RISING, [3, 0, 2, 1], [1, 3, 0, 2]),
        ("sort", FALLING, [1, 2, 0, 3], [2, 0, 3, 1]),
        ("topk", {"k": 2, "largest": True}, [1, 2], [2, 0]),
        ("topk", {"k": 2, "largest": False}, [3, 0], [1, 3]),
        ("topk", {"k": 4, "largest": False}, [3, 0, 2, 1], [1, 3, 0, 2]),
    ):
        case = of_values(name, x, scalars)
        for index, refuses in ((right, False), (wrong, True)):
            made = {"values": x[:, index], "indices": torch.tensor([index])}
            assert case.refuses(made) is refuses


def test_where_subnormals_are_flushed_their_order_is_free() -> None:
    """They equal zeros then; what they are compared with does not."""
    x = torch.tensor([[1e-40, -1e-41, 0.0, 1.0, -1.0]])
    made = {
        "values": torch.tensor([[-1.0, 0.0, 0.0, 0.0, 1.0]]),
        "indices": torch.tensor([[4, 0, 1, 2, 3]]),
    }
    strict = of_values("sort", x, RISING)
    flushing = of_values("sort", x, RISING, subnormals="flush")
    assert strict.refuses(made)
    assert not flushing.refuses(made)
    swapped = {**made, "indices": torch.tensor([[0, 4, 1, 2, 3]])}
    assert flushing.refuses(swapped)
    twice = {**made, "indices": torch.tensor([[4, 1, 1, 2, 3]])}
    assert flushing.refuses(twice)


@pytest.mark.parametrize("dtype", DTYPES)
def test_faulty_orders_are_refused(dtype: str) -> None:
    def shifted(x: Tensor, **scalars: Scalar) -> tuple[Tensor, Tensor]:
        values, index = torch.sort(x, **scalars)  # type: ignore[call-overload]
        return values, (index + 1) % x.shape[-1]

    def unsorted(x: Tensor, **scalars: Scalar) -> tuple[Tensor, Tensor]:
        values, index = torch.topk(x, **scalars, sorted=True)  # type: ignore[call-overload]
        return values.flip(-1), index.flip(-1)

    def tile_lost(x: Tensor, **scalars: Scalar) -> tuple[Tensor, Tensor]:
        found = torch.topk(x[..., :-1], **scalars)  # type: ignore[call-overload]
        return found.values, found.indices

    def by_magnitude(x: Tensor, **scalars: Scalar) -> tuple[Tensor, Tensor]:
        index = torch.topk(x.abs(), **scalars).indices  # type: ignore[call-overload]
        return x.gather(-1, index), index

    few = ordering(((64, 9), -1), k=3, largest=True)[0]
    rising = ordering(((4, 33), -1), descending=False)[0]
    assert refused("sort", dtype, shifted, "randn", rising)
    assert refused("topk", dtype, unsorted, "randn", few)
    assert refused("topk", dtype, tile_lost, "randn", few)
    assert refused("topk", dtype, by_magnitude, "randn", few)


def test_any_maximum_may_be_named_where_declared() -> None:
    subject = Subject(ops.argmax, torch.argmax, (), Setup(((1, 5),), {"dim": -1}))
    made = case_of(subject, "float32", "zeros", subject.ordinary)
    for row, firsts, every in (
        ([1.0, 3.0, 2.0, 3.0, 0.0], {1}, {1, 3}),
        ([1.0, 3.0, NAN, 3.0, NAN], {2}, {2, 4}),
        ([0.0, -0.0, 0.0, -1.0, 0.0], {0}, {0, 1, 2, 4}),
    ):
        x = torch.tensor([row])
        spec = replace(made.tensors["x"], fill=None, values=x.numpy().tobytes())
        for ties, admitted in (("first", firsts), ("any", every)):
            case = pose_case(subject, made.with_tensor("x", spec), ties=ties)
            for index in range(-1, 6):
                refused = case.refuses({"y": torch.tensor([index])})
                assert refused is (index not in admitted)
