"""What the reducer keeps of a placement, and what it shrinks together."""

import math
import random
from collections.abc import Callable

import pytest

from kfuzz.core.dtypes import number_to_bits, pack_bits, unpack_bits, unpack_numbers
from kfuzz.core.recipe import Case, TensorSpec
from kfuzz.engine.reduce import recast, reduce_case

FAR = 2**30 + 1


def pinned(shape, *, strides=None, offset=0):
    axes = tuple("abcd"[: len(shape)])
    values = b"\x00\x00\x80\x3f" * math.prod(shape)
    return TensorSpec(shape, axes, "float32", strides, offset, values=values)


def reduced(case, fails):
    minimum, reduction = reduce_case(
        case, fails, lambda case: True, deadline=float("inf")
    )
    assert reduction.stopped == "minimal"
    return minimum


def test_an_offset_beyond_32_bits_shrinks_to_three_rows():
    def wraps(case):
        spec = case.tensors["x"]
        steps = zip(spec.shape, spec.element_strides, strict=True)
        return any((n - 1) * s >= 2**31 for n, s in steps)

    case = Case({"x": pinned((5, 17, 9), strides=(9, FAR, 1))})
    spec = reduced(case, wraps).tensors["x"]
    assert (spec.shape, spec.strides) == ((3,), (FAR,))


def test_a_far_stride_comes_near_where_any_step_between_rows_fails():
    """A kernel that takes rows for adjacent, whatever lies between them."""

    def packed(case):
        spec = case.tensors["x"]
        rows, columns = spec.shape[0], spec.shape[-1]
        return rows > 1 and columns == 5 and spec.element_strides[0] > columns

    for strides in ((FAR, 1), (64, 1)):
        spec = reduced(Case({"x": pinned((4, 5), strides=strides)}), packed).lead
        assert (spec.shape, spec.strides) == ((2, 5), (6, 1))
    spec = reduced(Case({"x": pinned((4, 3, 5), strides=(FAR, 10, 2))}), packed).lead
    assert spec.span < 40


def test_an_index_beyond_its_bound_shrinks_with_it():
    """Accepted up to one past a row padded to a power of 2: 6 at 5, 3 at 3."""

    def padded(case):
        n, label = case.dims["b"], int.from_bytes(case.tensors["i"].values, "little")
        return n <= label < 1 << (n - 1).bit_length()

    label = TensorSpec((1,), ("a",), "int64", values=b"\6" + bytes(7), below="b")
    case = Case({"x": pinned((1, 5)), "i": label})
    minimum = reduced(case, padded)
    assert minimum.dims["b"] == 3
    assert minimum.tensors["i"].values[0] == 3


def floats(values, shape, axes, dtype="float32"):
    data = pack_bits([number_to_bits(v, dtype) for v in values], dtype)
    return TensorSpec(shape, axes, dtype, values=data)


def test_groups_go_with_the_channels_that_they_divide():
    """One group of two channels is enough, wherever it was found."""

    def spreads(case):
        x, groups = case.tensors["x"], case.scalars["num_groups"]
        numbers = unpack_numbers(x.values, x.dtype)
        size = x.shape[0] // groups
        parts = [numbers[i : i + size] for i in range(0, len(numbers), size)]
        return any(max(part) - min(part) > 40 for part in parts)

    values = [100.0] * 16
    values[10:12] = 379.0, 300.0
    case = Case({"x": floats(values, (16,), ("C",))}, {"num_groups": 8})
    minimum, _ = reduce_case(
        case,
        spreads,
        lambda c: c.dims["C"] % c.scalars["num_groups"] == 0,
        deadline=float("inf"),
    )
    assert minimum.dims == {"C": 2}
    assert minimum.scalars == {"num_groups": 1}


# Beyond a size ---------------------------------------------------------------------


def normal(shape, axes):
    rng = random.Random(7)
    values = [round(rng.gauss(0, 1000)) + 0.5 for _ in range(math.prod(shape))]
    return floats(values, shape, axes)


def judged(case, fails):
    """Return a case's minimum, and how many runs it took to its size and in all."""
    runs, sizes = 0, {}

    def counted(candidate):
        nonlocal runs
        runs += 1
        failed = fails(candidate)
        if failed:
            sizes.setdefault(candidate.elements, runs)
        return failed

    minimum = reduced(case, counted)
    return minimum, sizes[minimum.elements], runs


def nonzero(case, name="x"):
    spec = case.tensors[name]
    return sum(map(bool, unpack_bits(spec.values, spec.dtype)))


@pytest.mark.parametrize("threshold", [1, 257, 1000, 4095])
@pytest.mark.parametrize("axis", ["a", "b"])
def test_a_fault_beyond_a_size_ends_one_above_it_at_one_value(axis, threshold):
    """What lies beyond the threshold is left out: it takes one value there to see."""

    def cut(case):
        x, n = case.tensors["x"], case.dims.get(axis, 0)
        at = x.axes.index(axis) if n else 0
        inner = math.prod(x.shape[at + 1 :])
        values = unpack_numbers(x.values, x.dtype)
        return any(v and i // inner % n >= threshold for i, v in enumerate(values))

    shape = (5000, 12) if axis == "a" else (12, 5000)
    case = Case({"x": normal(shape, ("a", "b"))}, {"dim": -1})
    minimum, at_size, runs = judged(case, cut)
    assert {n for n in minimum.dims.values() if n > 1} == {threshold + 1}
    assert nonzero(minimum) == 1
    assert at_size <= 60  # not one for each size
    assert runs <= 120


def test_a_fault_beyond_a_number_of_elements_takes_a_logarithm_of_runs() -> None:
    def beyond(threshold: int) -> Callable[[Case], bool]:
        def cut(case: Case) -> bool:
            x = case.tensors["x"]
            assert x.values is not None
            return any(unpack_bits(x.values, x.dtype)[threshold:])

        return cut

    small, _, few = judged(Case({"x": normal((40, 50), ("a", "b"))}), beyond(700))
    large, _, more = judged(Case({"x": normal((400, 500), ("a", "b"))}), beyond(70_000))
    assert (small.elements, large.elements) == (701, 70_001)
    assert nonzero(small) == nonzero(large) == 1
    assert more <= few + 50


def test_each_dimension_of_a_product_ends_at_what_it_needs() -> None:
    def cut(case: Case) -> bool:
        x, y, k = case.tensors["x"], case.tensors["y"], case.dims.get("k", 0)
        a, b = unpack_numbers(x.values, x.dtype), unpack_numbers(y.values, y.dtype)
        columns = math.prod(y.shape[1:])
        return any(
            v and any(b[columns * (i % k) : columns * (i % k + 1)])
            for i, v in enumerate(a)
            if i % k >= 1000
        )

    given = {"x": normal((20, 1500), ("m", "k")), "y": normal((1500, 30), ("k", "n"))}
    minimum, _, runs = judged(Case(given), cut)
    assert {n for n in minimum.dims.values() if n > 1} == {1001}
    assert (nonzero(minimum, "x"), nonzero(minimum, "y")) == (1, 1)
    assert runs <= 150


def test_sizes_that_have_to_be_multiples_are_halved_as_such() -> None:
    case = Case({"x": normal((12, 4800), ("a", "b"))}, {"dim": -1})
    minimum, _ = reduce_case(
        case,
        lambda c: c.dims["b"] > 1000,
        lambda c: c.dims["b"] % 32 == 0,
        deadline=float("inf"),
    )
    assert minimum.dims["b"] == 1024


def test_a_window_is_bisected_like_a_size() -> None:
    case = Case({"x": normal((2000,), ("a",))}, {"window": 1500})
    minimum, _, runs = judged(
        case, lambda c: c.scalars["window"] > 257 and c.dims["a"] > 300
    )
    assert (minimum.scalars["window"], minimum.dims["a"]) == (258, 301)
    assert runs <= 120


def test_one_special_value_anywhere_is_found_by_halves() -> None:
    values = [1.5] * 70_000
    values[44_321] = math.nan

    def has_nan(case: Case) -> bool:
        x = case.tensors["x"]
        return any(v != v for v in unpack_numbers(x.values, x.dtype))

    minimum, _, runs = judged(Case({"x": floats(values, (70_000,), ("a",))}), has_nan)
    assert minimum.elements == 1
    assert runs <= 60


@pytest.mark.parametrize(
    ("dtype", "signals"),
    [("float16", 0x7C01), ("float32", 0x7F800001), ("float64", 0x7FF0000000000001)],
)
def test_a_nan_that_signals_is_taken_for_any_other_without_a_warning(dtype, signals):
    """Of vectors too: a processor may warn of several at once alone."""
    spec = TensorSpec((32,), ("N",), dtype, values=pack_bits([signals] * 32, dtype))
    for wanted, quiet in (("float32", 0x7FC00000), ("float64", 0x7FF8 << 48)):
        made = recast(spec, wanted, lambda n: n / 2)
        assert made is not None
        assert unpack_bits(made.values, wanted) == [quiet] * 32
