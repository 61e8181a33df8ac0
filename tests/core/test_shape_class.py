"""Shape classes: parsed to a whitelist, evaluated exactly, bounds that are sound."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfuzz.core.declaration import MAX_LENGTH, ShapeClass
from kfuzz.core.errors import BindingError

SIZES = st.integers(0, 70)
COMPARISONS = ["==", "!=", "<", "<=", ">", ">="]


@st.composite
def terms(draw: st.DrawFn) -> str:
    left = draw(st.sampled_from(["N", "M", "N % 4", "M % 3", "N + M", "N * 2", "-N"]))
    op, right = draw(st.sampled_from(COMPARISONS)), draw(st.integers(0, 64))
    if draw(st.booleans()):
        return f"{right} {op} {left}"
    if draw(st.booleans()):
        return f"{draw(st.integers(0, 8))} <= {left} {op} {right}"
    return f"{left} {op} {right}"


@st.composite
def expressions(draw: st.DrawFn) -> str:
    parts = draw(st.lists(terms(), min_size=1, max_size=3))
    text = draw(st.sampled_from([" and ", " or "])).join(parts)
    return f"not ({text})" if draw(st.integers(0, 3)) == 0 else text


@given(expressions(), SIZES, SIZES)
def test_admits_what_python_says(text: str, n: int, m: int) -> None:
    wanted = bool(eval(text, {"__builtins__": {}}, {"N": n, "M": m}))
    assert ShapeClass.parse(text).accepts({"N": n, "M": m}) is wanted


@given(expressions(), SIZES, SIZES)
def test_no_admitted_size_lies_outside_the_bounds(text: str, n: int, m: int) -> None:
    shape_class = ShapeClass.parse(text)
    if shape_class.accepts({"N": n, "M": m}):
        least, greatest, modulus, remainder = shape_class.bounds("N")
        assert least <= n
        assert greatest is None or n <= greatest
        assert n % modulus == remainder


def test_what_stands_alone_in_an_equality_is_computed_from_the_rest() -> None:
    shape_class = ShapeClass.parse("E == D // r and D % 2 == 0 and N == E and 3 == M")
    assert shape_class.computed == {"E", "N"}
    sizes = {"D": 8, "E": 1, "M": 1, "N": 1}
    assert shape_class.settled(sizes, {"r": 2}) == {"D": 8, "E": 4, "M": 1, "N": 4}
    # Nothing is computed from what is unknown, no scalar is changed.
    assert shape_class.settled(sizes, {}) == {**sizes, "N": 1}
    assert ShapeClass.parse("r == D").settled({"D": 8}, {"r": 2}) == {"D": 8}
    assert ShapeClass.parse("E == D // r").settled(sizes, {"r": 0}) == sizes
    assert ShapeClass.parse("E == D or D > 3").computed == frozenset()


def test_a_modulus_may_be_a_scalar() -> None:
    shape_class = ShapeClass.parse("N % r == 0")
    assert shape_class.bounds("N", {"r": 8}) == (0, None, 8, 0)
    assert shape_class.bounds("N") == (0, None, 1, 0)


@pytest.mark.parametrize(
    ("text", "culprit"),
    [
        ("N ** 2 < 9", "Pow"),
        ("f(N)", "f(N)"),
        ("N == True", "True"),
        ("(lambda: 1)", "lambda"),
        ("__import__('os')", "__import__"),
    ],
)
def test_anything_else_is_refused_by_name(text: str, culprit: str) -> None:
    with pytest.raises(BindingError) as caught:
        ShapeClass.parse(text, where="my_kernel")
    assert culprit in caught.value.what.split("may not hold")[1]
    assert caught.value.where == "my_kernel"
    assert "allowed: integers" in caught.value.fix


@pytest.mark.parametrize(
    "text",
    [
        "", "N <", "N := 3", "N\0", "(" * 240 + "N" + ")" * 240, 3, None, b"N",
        "N" * (MAX_LENGTH + 1),
    ],
)  # fmt: skip
def test_what_does_not_parse_is_refused(text: object) -> None:
    with pytest.raises(BindingError):
        ShapeClass.parse(text)
