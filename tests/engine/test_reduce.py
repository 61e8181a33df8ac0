"""What the reducer keeps of a placement, and what it shrinks together."""

import math
import struct

from kfuzz.core.dtypes import number_to_bits, pack_bits, unpack_numbers
from kfuzz.core.recipe import Case, TensorSpec
from kfuzz.engine.reduce import reduce_case

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


def single(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def test_two_numbers_of_many_digits_are_less_than_three_of_few():
    """A variance in one pass: of two short numbers nothing is rounded."""

    def cancels(case):
        x = case.tensors["x"]
        n = unpack_numbers(x.values, x.dtype)
        mean = single(sum(n) / len(n))
        squares = single(sum(single(v * v) for v in n) / len(n))
        exact = sum((v - sum(n) / len(n)) ** 2 for v in n) / len(n)
        return abs(single(squares - single(mean * mean)) - exact) > exact / 4

    case = Case({"x": floats([1001.0, 1001.0, 1002.0], (3,), ("N",))})
    assert cancels(case)
    assert reduced(case, cancels).dims == {"N": 2}
