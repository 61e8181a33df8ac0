"""Placement of arguments between guard zones, and what is seen of stray writes."""

import ctypes

import pytest
import torch

from kfuzz.core.errors import HarnessError
from kfuzz.core.recipe import Fill, TensorSpec
from kfuzz.execution.memory.placement import Placement, place
from kfuzz.execution.memory.poison import Poison, fill_poison
from kfuzz.execution.memory.slots import GUARD_BYTES, Arena
from kfuzz.numerics.run import Touch
from tests.helpers.poisoned import is_poison

LAYOUTS = {
    "contiguous": ((4, 6), None, 0),
    "transposed": ((4, 6), (1, 4), 0),
    "sliced": ((4, 6), (9, 1), 2),
    "stepped": ((4, 6), (24, 2), 0),
    "expanded": ((4, 6), (0, 1), 1),
    "odd_size_1": ((1, 6), (77, 1), 0),
    "scalar": ((), (), 3),
    "empty": ((0, 6), None, 2),
}
DTYPES = ("float32", "bfloat16", "float16", "float64", "int32", "uint8", "bool")


def make_spec(layout="contiguous", dtype="float32"):
    shape, strides, offset = LAYOUTS[layout]
    axes = tuple("ab"[: len(shape)])
    return TensorSpec(shape, axes, dtype, strides, offset, Fill("randn"))


def make_values(spec):
    count = torch.arange(spec.numel, dtype=torch.float32) % 90 - 7
    return (
        (count % 2 if spec.dtype == "bool" else count.abs())
        .to(getattr(torch, spec.dtype))
        .reshape(spec.shape)
    )


def placed(*, poison=Poison.NAN, alignment=16, arena=None, **specs) -> Placement:
    values = {name: make_values(spec) for name, spec in specs.items()}
    return place(
        specs, values, device="cpu", alignment=alignment, poison=poison, arena=arena
    )


def store(tensor, offset, value=1.5):
    """Store one float32 at an element offset from the view, as a kernel would."""
    address = tensor.data_ptr() + offset * 4
    ctypes.c_float.from_address(address).value = value


@pytest.mark.parametrize("poison", Poison)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_tensor_is_what_the_recipe_says(layout, dtype, poison):
    spec = make_spec(layout, dtype)
    placement = placed(poison=poison, x=spec)
    x = placement.tensors["x"]
    values = make_values(spec)
    if layout == "expanded":
        values = values[:1].expand(4, 6)
    assert torch.equal(x, values)
    assert (x.shape, x.dtype) == (spec.shape, getattr(torch, dtype))
    assert x.stride() == spec.element_strides
    assert x.storage_offset() == spec.offset
    assert x.untyped_storage().nbytes() == (spec.offset + spec.span) * x.itemsize
    assert x._version == 0
    assert x._base is None
    assert placement.touches() == []


@pytest.mark.parametrize("alignment", [1, 2, 4, 8, 16, 32, 64, 256])
def test_base_has_exactly_the_alignment_asked_for(alignment):
    specs = {name: make_spec("sliced", "uint8") for name in "xyz"}
    for x in placed(alignment=alignment, **specs).tensors.values():
        base = x.untyped_storage().data_ptr()
        assert base % alignment == 0
        assert alignment >= 64 or base % (2 * alignment) != 0


@pytest.mark.parametrize("distance", [1, 2, 500])
def test_store_past_either_end_is_found(distance):
    specs = {name: make_spec("sliced") for name in "xyz"}
    placement = placed(**specs)
    y = placement.tensors["y"]
    store(y, specs["y"].span - 1 + distance)
    store(y, -distance)
    assert placement.touches() == [
        Touch("y", "before", 1, distance, 4),
        Touch("y", "after", 1, distance, 4),
    ]


def test_stores_at_the_far_edge_of_both_guard_zones_are_found():
    placement = placed(x=make_spec())
    reach = GUARD_BYTES // 4
    store(placement.tensors["x"], -reach)
    store(placement.tensors["x"], 23 + reach)
    assert [(t.where, t.distance) for t in placement.touches()] == [
        ("before", reach),
        ("after", reach),
    ]


def test_last_guard_zone_belongs_to_the_last_argument():
    placement = placed(x=make_spec(), y=make_spec("empty"))
    store(placement.tensors["x"], 24)
    y = placement.tensors["y"].untyped_storage().data_ptr()
    ctypes.c_float.from_address(y + 8).value = 1.5
    assert placement.touches() == [
        Touch("x", "after", 1, 1, 4),
        Touch("y", "after", 1, 1, 4),
    ]


@pytest.mark.parametrize(
    ("layout", "offset", "distance"),
    [("sliced", 6, 1), ("sliced", 7, 2), ("sliced", 8, 1), ("stepped", 15, 5)],
)
def test_store_into_slack_is_found(layout, offset, distance):
    placement = placed(x=make_spec(layout))
    store(placement.tensors["x"], offset)
    assert placement.touches() == [Touch("x", "slack", 1, distance, 4)]


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "sliced", "stepped"])
def test_changed_elements_are_found_with_their_index(layout):
    placement = placed(x=make_spec(layout))
    x = placement.tensors["x"]
    x[3, 1], x[2, 5] = 1000.0, 1000.0
    assert placement.touches() == [Touch("x", "element", 2, 0, 4, (2, 5))]
    assert placement.touches(inplace={"x"}) == []


def test_changed_element_of_an_expanded_tensor_has_index_0():
    placement = placed(x=make_spec("expanded"))
    store(placement.tensors["x"], 4)
    assert placement.touches() == [Touch("x", "element", 1, 0, 4, (0, 4))]
    assert placement.touches(inplace={"x"}) == []


def test_inplace_argument_is_still_guarded():
    placement = placed(x=make_spec("sliced"), y=make_spec())
    placement.tensors["x"].fill_(1000.0)
    store(placement.tensors["x"], 7)
    placement.tensors["y"][0, 0] = 1000.0
    assert placement.touches(inplace={"x"}) == [
        Touch("x", "slack", 1, 2, 4),
        Touch("y", "element", 1, 0, 4, (0, 0)),
    ]


def test_sign_of_zero_and_nan_payload_count_as_changes():
    spec = make_spec()
    values = torch.zeros(4, 6)
    values[0, 1] = torch.nan
    args = {"device": "cpu", "alignment": 16, "poison": Poison.NAN}
    placement = place({"x": spec}, {"x": values}, **args)
    placement.tensors["x"][0, 0] = -0.0
    placement.tensors["x"].view(torch.int32)[0, 1] += 1
    assert placement.touches() == [Touch("x", "element", 2, 0, 4, (0, 0))]


@pytest.mark.parametrize("poison", Poison)
@pytest.mark.parametrize("dtype", DTYPES)
def test_offset_slack_and_guard_zones_hold_poison(dtype, poison):
    spec = make_spec("sliced", dtype)
    x = placed(poison=poison, x=spec).tensors["x"]
    whole = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage())
    mask = torch.ones(whole.shape, dtype=torch.bool)
    mask.as_strided(spec.shape, spec.strides, spec.offset).fill_(False)
    assert is_poison(whole, poison)[mask].all()
    size = x.itemsize
    base = x.untyped_storage().data_ptr()
    stop = base + x.untyped_storage().nbytes()
    expected = torch.zeros(GUARD_BYTES, dtype=torch.uint8)
    fill_poison(expected, x.dtype, poison)
    for zone in (base - GUARD_BYTES, stop):
        assert zone % size == 0
        assert ctypes.string_at(zone, GUARD_BYTES) == expected.numpy().tobytes()


def test_arena_is_used_again_and_old_placements_say_so():
    arena = Arena("cpu")
    first = placed(arena=arena, x=make_spec())
    where = first.tensors["x"].data_ptr()
    second = placed(arena=arena, x=make_spec("stepped"))
    assert second.tensors["x"].data_ptr() == where
    assert second.touches() == []
    with pytest.raises(HarnessError, match="reused by a later one"):
        first.touches()


def test_arena_grows():
    arena = Arena("cpu")
    placed(arena=arena, x=make_spec())
    big = TensorSpec((300, 1000), ("a", "b"), "float32", fill=Fill("randn"))
    placement = placed(arena=arena, x=big, y=make_spec())
    store(placement.tensors["x"], 300_000)
    assert placement.touches() == [Touch("x", "after", 1, 1, 4)]


@pytest.mark.parametrize(
    ("spec", "values", "message"),
    [
        (make_spec(), torch.zeros(6, 4), "do not fit shape"),
        (make_spec(), torch.zeros(4, 6, dtype=torch.int32), "do not fit shape"),
        (
            TensorSpec((3, 3), ("a", "b"), "float32", (1, 1), 0, Fill("randn")),
            torch.zeros(3, 3),
            "elements overlap",
        ),
    ],
)
def test_impossible_placements_are_refused(spec, values, message):
    args = {"device": "cpu", "alignment": 16, "poison": Poison.NAN}
    with pytest.raises(HarnessError, match=message):
        place({"x": spec}, {"x": values}, **args)
    with pytest.raises(HarnessError, match="not a power of two"):
        placed(alignment=12, x=make_spec())


def test_interleaved_but_disjoint_strides_are_accepted():
    spec = TensorSpec((2, 3), ("a", "b"), "float32", (3, 2), 0, Fill("randn"))
    assert torch.equal(placed(x=spec).tensors["x"], make_values(spec))


@pytest.mark.parametrize("poison", Poison)
@pytest.mark.parametrize("dtype", [*DTYPES, "float8_e5m2", "float8_e4m3fn", "uint16"])
def test_poison_is_recognised_bit_by_bit(dtype, poison):
    memory = torch.zeros(64, dtype=torch.uint8)
    kind = getattr(torch, dtype)
    fill_poison(memory, kind, poison)
    tensor = memory.view(kind).clone()
    assert is_poison(tensor, poison).all()
    other = Poison.FINITE if poison is Poison.NAN else Poison.NAN
    assert not is_poison(tensor, other).any()
    tensor.view(torch.uint8)[0] ^= 1
    assert is_poison(tensor, poison).tolist() == [False] + [True] * (len(tensor) - 1)


def test_poison_values_are_what_they_claim():
    for dtype, want in (
        (torch.float64, 2.0**100),
        (torch.float32, 2.0**100),
        (torch.bfloat16, 2.0**100),
        (torch.float16, 2.0**15),
        (torch.float8_e5m2, 2.0**15),
        (torch.float8_e4m3fn, 2.0**8),
    ):
        memory = torch.zeros(16, dtype=torch.uint8)
        fill_poison(memory, dtype, Poison.FINITE)
        assert set(memory.view(dtype).double().tolist()) == {want}
        fill_poison(memory, dtype, Poison.NAN)
        assert memory.view(dtype).double().isnan().all()
    ordinary = torch.full((2,), torch.nan)
    assert not is_poison(ordinary, Poison.NAN).any()


def test_bytes_of_unknown_meaning_are_nan_in_whatever_they_are_viewed_as():
    memory = torch.zeros(16, dtype=torch.uint8)
    fill_poison(memory, torch.uint8, Poison.NAN)
    for dtype in (
        torch.float8_e8m0fnu, torch.float8_e4m3fn, torch.float8_e5m2, torch.float16,
        torch.bfloat16, torch.float32, torch.float64,
    ):  # fmt: skip
        assert memory.view(dtype).double().isnan().all(), dtype
    other = torch.zeros(16, dtype=torch.uint8)
    fill_poison(other, torch.float8_e8m0fnu, Poison.NAN)
    assert torch.equal(memory, other)
