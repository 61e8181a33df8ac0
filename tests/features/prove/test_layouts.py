"""The lemmas of layouts, held against every element of small tensors."""

from itertools import product

import pytest

from kfuzz.execution.launches.capture import ConstArgument, IntArgument, Launch
from kfuzz.execution.launches.capture import TensorArgument as Tensor
from kfuzz.features.prove.fitting import Fit, Layout, Relations, quantities
from kfuzz.features.prove.ir.values import Valuation, as_poly, symbol
from kfuzz.features.prove.properties import inside, products


def tensor(shape: tuple[int, ...], strides: tuple[int, ...], size: int = 4) -> Tensor:
    steps = zip(shape, strides, strict=True)
    span = 1 + sum((n - 1) * s for n, s in steps)
    return Tensor("*fp32", size, shape, strides, 0, 0, span)


def rows(shape: tuple[int, ...], strides: tuple[int, ...], step: int) -> Launch:
    """Return a launch on a tensor whose rows are to be so many elements apart."""
    arguments = {"x": tensor(shape, strides), "step": IntArgument("i32", step)}
    return Launch("rows", "rows.py", 1, arguments, (1, 1, 1), {}, {})


ROWS = [
    rows((2, 3, 5), (21, 7, 1), 7),
    rows((4, 1, 5), (9, 777, 1), 9),
    rows((1, 4, 3), (888, 11, 1), 11),
    rows((3, 2, 4), (26, 13, 1), 13),
    rows((0, 2, 4), (1, 1, 3), 4),
    rows((1, 1, 4), (123, 456, 1), 4),
]


@pytest.mark.parametrize(
    ("shape", "strides", "dense"),
    [
        ((2, 3, 4), (12, 4, 1), True),
        ((1, 3, 4), (999, 4, 1), False),
        ((2, 1, 3), (3, 777, 1), False),
        ((2, 3), (1, 2), False),
        ((3, 4), (0, 5), False),
    ],
)
def test_what_follows_of_products_is_so_of_each_element(
    shape: tuple[int, ...], strides: tuple[int, ...], *, dense: bool
) -> None:
    span = as_poly(tensor(shape, strides).span)
    sizes, steps = tuple(map(as_poly, shape)), tuple(map(as_poly, strides))
    layout = Layout(sizes, steps, span, dense)
    indices = tuple(as_poly(symbol(f"i{d}")) for d in range(len(shape)))
    for place in product(*map(range, shape)):
        values = Valuation({symbol(f"i{d}"): i for d, i in enumerate(place)})
        assert values.cond(inside(indices, layout))
        assert all(map(values.cond, products(indices, layout)))
    beyond = Valuation({symbol(f"i{d}"): n for d, n in enumerate(shape)})
    assert not all(map(beyond.cond, products(indices, layout)))


def row_layouts(relations: Relations) -> list[Layout]:
    step = as_poly(symbol("step"))
    return [x for x in relations.layouts["x"] if x.strides == (step, as_poly(1))]


def test_rows_are_a_step_apart_whatever_dimensions_of_one_element_say() -> None:
    relations = Fit(ROWS).fitted()
    assert "rows of x are step apart where there are several" in {
        premise.text for premise in relations.premises
    }
    (layout,) = row_layouts(relations)
    for launch in ROWS:
        assert relations.broken_by(launch) is None
        x = launch.arguments["x"]
        assert isinstance(x, Tensor)
        values = Valuation(quantities(launch))
        count, width = map(values.poly, layout.sizes)
        step = values.poly(layout.strides[0])
        by_rows = {r * step + c for r, c in product(range(count), range(width))}
        places = product(*map(range, x.shape))
        assert by_rows == {
            sum(i * s for i, s in zip(place, x.strides, strict=True))
            for place in places
        }


@pytest.mark.parametrize(
    "wrong",
    [
        rows((2, 3, 5), (22, 7, 1), 7),  # a gap after every third row
        rows((3, 3, 5), (7, 21, 1), 7),  # the outer dimension's
        rows((2, 2, 5), (20, 10, 1), 5),
    ],
)
def test_rows_that_are_no_step_apart_are_none(wrong: Launch) -> None:
    assert Fit(ROWS).fitted().broken_by(wrong) is not None
    assert not row_layouts(Fit([*ROWS, wrong]).fitted())


def sized(n: int, parts: int, *, block: int = 8, rest: int = 3) -> Launch:
    arguments = {
        "x": tensor((rest, n), (n, 1)),
        "n": IntArgument("i32", n),
        "parts": IntArgument("i32", parts),
        "BLOCK": ConstArgument(block, str(block)),
    }
    return Launch("sized", "sized.py", 1, arguments, (1, 1, 1), {}, {})


PARTS = [(6, 3), (20, 4), (35, 7), (8, 1), (0, 0), (90, 9)]


def test_a_multiple_of_0_is_0() -> None:
    relations = Fit([sized(n, parts) for n, parts in PARTS]).fitted()
    texts = {premise.text for premise in relations.premises}
    assert "n is a multiple of parts" in texts
    assert relations.broken_by(sized(12, 6)) is None
    assert relations.broken_by(sized(12, 5)) is not None
    assert relations.broken_by(sized(12, 0)) is not None


def test_a_number_that_never_differs_is_one_only_where_all_else_does() -> None:
    launches = [sized(n, 2) for n in (1, 2, 3, 5, 8, 100)]
    chance, law = Fit(launches).fitted(), Fit(launches, varied=True).fitted()
    other = sized(4, 2, rest=5)
    assert chance.broken_by(other) is None
    broken = law.broken_by(other)
    assert broken is not None
    assert broken.text == "x.size(0) = 3"


def test_what_a_constant_makes_of_another_is_fitted() -> None:
    def cut(n: int, block: int, programs: int) -> Launch:
        arguments = {
            "x": tensor((n,), (1,)),
            "N": ConstArgument(n, str(n)),
            "BLOCK": ConstArgument(block, str(block)),
        }
        return Launch("cut", "cut.py", 1, arguments, (programs, 1, 1), {}, {})

    made = [(n, b) for n in (1, 7, 8, 9, 100, 513) for b in (8, 16)]
    up = Fit([cut(n, b, -(-n // b)) for n, b in made]).fitted()
    down = Fit([cut(n, b, max(n // b, 1)) for n, b in made]).fitted()
    text = "grid.0 = cdiv(N, BLOCK)"
    assert text in {premise.text for premise in up.premises}
    assert text not in {premise.text for premise in down.premises}


def test_rows_may_have_an_index_in_several_dimensions_of_a_contiguous_tensor() -> None:
    sizes = [(2, 3, 2), (1, 4, 5), (3, 1, 4), (2, 2, 7), (0, 2, 3)]
    launches = [
        rows((b, s, h, 3), (s * h * 3, h * 3, 3, 1), h * 3) for b, s, h in sizes
    ]
    step, size = as_poly(symbol("step")), as_poly(symbol("x.size(0)"))

    def several(made: list[Launch]) -> list[Layout]:
        found = Fit(made).fitted().layouts["x"]
        return [x for x in found if x.strides[0] == step and x.sizes[0] != size]

    chain, own = several(launches)
    for launch in launches:
        values = Valuation(quantities(launch))
        x = launch.arguments["x"]
        b, s, *inner = x.shape
        for layout in (chain, own):
            assert list(map(values.poly, layout.sizes)) == [b * s, *inner]
        assert list(map(values.poly, own.strides[1:])) == list(x.strides[2:])
    # It is contiguous, and its rows lie 12 apart.
    assert not several([*launches, rows((2, 1, 4, 3), (12, 999, 3, 1), 999)])


@pytest.mark.parametrize("lost", [0, 1])
def test_a_grid_of_two_constants_and_a_half_is_fitted(lost: int) -> None:
    def made(t: int, b: int, d: int, block: int) -> Launch:
        given = {"B": b, "D": d, "BLOCK": block}
        constants = {name: ConstArgument(n, str(n)) for name, n in given.items()}
        x = tensor((t, d // 2), (d // 2, 1))
        grid = -(-t // block) * b * d - lost * (t == 100)
        arguments = {"x": x, "T": IntArgument("i32", t), **constants}
        return Launch("made", "made.py", 1, arguments, (grid, 1, 1), {}, {})

    sizes = product((1, 8, 9, 100), (2, 3), (4, 10), (8, 16))
    texts = {p.text for p in Fit([made(*each) for each in sizes]).fitted().premises}
    assert "x.size(1) = cdiv(D, 2)" in texts
    assert any(t.startswith("grid.0 = ") for t in texts) is not bool(lost)
