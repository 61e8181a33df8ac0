"""Members of a burst: recipes and values agree bit for bit, and members differ."""

import json
from collections import Counter

import pytest
import torch

from kfuzz.core.budget import Burst
from kfuzz.core.codec import decode, encode
from kfuzz.core.dtypes import DTYPES, canonical_nan, specials
from kfuzz.core.errors import KfuzzError
from kfuzz.core.recipe import Case, Fill, Plant, TensorSpec
from kfuzz.core.value_families import (
    BOOL_FAMILIES,
    COPIES,
    FAMILIES,
    INDEX_FAMILIES,
    INTEGER_FAMILIES,
    edges,
)
from kfuzz.execution.interpreter.watch import interpreting
from kfuzz.execution.values import fills
from kfuzz.execution.values.fills import batch_values, logical_values
from kfuzz.execution.values.formula import Streams
from kfuzz.execution.values.items import item, item_seeds
from tests.helpers.tiers import sampled

CPU = torch.device("cpu")
FLOATS = [name for name, d in DTYPES.items() if d.kind == "float"]
CODES = ("int8", "uint8", "int16", "int32", "int64")
WIDTHS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
# Shape, structured axis, strides.
LAYOUTS = (
    ((3, 37), -1, None),
    ((), -1, None),
    ((5, 4, 3), -2, None),
    ((0, 4), -1, None),
    ((6, 8), -1, (0, 1)),
    ((2, 3, 4, 5), -3, None),
    ((130,), -1, None),
    ((1,), -1, None),
    ((4, 6), -1, (1, 0)),
    ((4, 0, 2), -1, None),
    ((7, 5), -2, (5, 1)),
)


def bits(x):
    return x.contiguous().view(WIDTHS[x.element_size()])


def spec_of(shape, family, dtype="float32", axis=-1, strides=None, *, seed=1, **rest):
    axes = tuple(f"d{i}" for i in range(len(shape)))
    fill = Fill(family, seed, axis, "a" if family == "transpose_of" else None)
    return TensorSpec(shape, axes, dtype, strides, fill=fill, **rest)


def burst_of(spec, members, *families, **rest):
    other = spec_of(spec.shape, "randn", spec.dtype, spec.fill.axis, seed=99)
    groups = tuple({"x": family} for family in families)
    return Burst(Case({"a": other, "x": spec}), members, groups, **rest)


def assert_members_agree(burst):
    made = batch_values(burst, CPU)
    assert list(made) == list(burst.case.tensors)
    for name, found in made.items():
        spec = burst.case.tensors[name]
        assert found.shape == (burst.members, *spec.shape)
        assert found.dtype is getattr(torch, spec.dtype)
        assert found.is_contiguous()
        for number in range(burst.members):
            alone = logical_values(item(burst, number), name, CPU)
            same = torch.equal(bits(found[number]), bits(alone))
            where = item(burst, number).tensors[name]
            assert same, f"{name} of member {number} is not its recipe's: {where}"


@pytest.mark.slow
@pytest.mark.parametrize("family", sampled(FAMILIES, one_in=3))
def test_values_of_all_are_those_of_each(family):
    for i, dtype in enumerate(FLOATS):
        for j in range(3):
            shape, axis, strides = LAYOUTS[(3 * i + j + len(family)) % len(LAYOUTS)]
            spec = spec_of(shape, family, dtype, axis, strides)
            assert_members_agree(burst_of(spec, 6, "ones", planted=("x", "a")))
            # As the family of a further group, for which the case has no source.
            if family != "transpose_of":
                plain = spec_of(shape, "randn", dtype, axis, strides, seed=i)
                assert_members_agree(burst_of(plain, 5, family))


@pytest.mark.parametrize("dtype", CODES)
def test_integers_of_all_are_those_of_each(dtype):
    for i, family in enumerate(INTEGER_FAMILIES):
        shape, axis, strides = LAYOUTS[i]
        spec = spec_of(shape, family, dtype, axis, strides)
        axes = {"a": spec_of((2,), "randn")}
        groups = ({"x": "int_small"},)
        assert_members_agree(Burst(Case({"x": spec, **axes}), 6, groups, ("x",)))


@pytest.mark.parametrize("family", BOOL_FAMILIES)
def test_masks_of_all_are_those_of_each(family):
    for shape, axis, strides in LAYOUTS[:6]:
        case = Case({"x": spec_of(shape, family, "bool", axis, strides)})
        assert_members_agree(Burst(case, 6, ({"x": "bool_random"},), ("x",)))


@pytest.mark.parametrize("family", INDEX_FAMILIES)
def test_indices_of_all_are_those_of_each(family):
    table = TensorSpec((37,), ("V",), "float32", fill=Fill("randn"))
    ignored = (Plant((0, 0), (1 << 64) - 100), Plant((2, 1), 5), Plant((2, 1), 6))
    for dtype in ("int64", "int32"):
        plants = ignored if dtype == "int64" else ()
        x = TensorSpec(
            (3, 5), ("d0", "d1"), dtype, fill=Fill(family, 3), below="V", plants=plants
        )
        burst = Burst(Case({"table": table, "x": x}), 12, ({"x": "index_edges"},))
        assert_members_agree(burst)
        # Whatever the case holds, its further members keep below the bound.
        found = batch_values(burst, CPU)["x"][1:]
        free = torch.ones(3, 5, dtype=torch.bool)
        for plant in plants:
            free[plant.at] = False
            assert (found[(slice(None), *plant.at)] == found[0][plant.at]).all()
        assert (found[:, free] >= 0).all()
        assert (found[:, free] < 37).all()


def test_what_copies_another_argument_follows_its_group():
    a = spec_of((3, 4), "randn", "float16", seed=5)
    b = TensorSpec((4, 6), ("K", "N"), "float16", fill=Fill("transpose_of", 1, -2, "a"))
    case = Case({"b": b, "a": a})
    burst = Burst(case, 9, ({"a": "ties"}, {"b": "randn"}), planted=("a", "b"))
    assert_members_agree(burst)
    made = batch_values(burst, CPU)
    copied = Burst(case, 9, ({"a": "ties"}, {"b": "randn"}))
    plain = batch_values(copied, CPU)
    assert torch.equal(plain["b"][4, :, :3], plain["a"][4].T)
    assert not torch.equal(plain["b"][8, :, :3], plain["a"][8].T)
    assert made["a"].shape == (9, 3, 4)
    with pytest.raises(KfuzzError, match="copies from itself"):
        batch_values(Burst(Case({"a": a, "b": replaced_source(b)}), 3), CPU)


def replaced_source(spec):
    fill = Fill("transpose_of", 1, -2, "b")
    return TensorSpec(spec.shape, spec.axes, spec.dtype, fill=fill)


def test_pinned_arguments_are_the_same_in_all_members():
    data = bytes(range(1, 13))
    pinned = TensorSpec((3, 4), ("d0", "d1"), "uint8", values=data)
    expanded = TensorSpec((3, 4), ("d0", "d1"), "uint8", (0, 1), values=data)
    case = Case({"x": spec_of((3, 4), "randn"), "p": pinned, "e": expanded})
    burst = Burst(case, 4, planted=("x",))
    assert_members_agree(burst)
    assert item(burst, 3).tensors["p"] is pinned
    made = batch_values(burst, CPU)["p"]
    assert all(bytes(m.flatten().tolist()) == data for m in made)


def test_the_first_member_is_the_case():
    plant = Plant((1, 2), canonical_nan("float32"))
    burst = burst_of(spec_of((3, 4), "inf1", plants=(plant,)), 8, planted=("x",))
    assert item(burst, 0) is burst.case
    assert_members_agree(burst)
    for number in (-1, 8):
        with pytest.raises(IndexError):
            item(burst, number)


def test_members_have_the_families_of_their_groups_and_all_else_in_common():
    spec = spec_of((3, 4), "randn", strides=(8, 2), offset=3)
    case = Case({"x": spec}, {"dim": 1}, poison="finite", config=3, layout="padded")
    burst = Burst(case, 10, ({"x": "ties"}, {}))
    made = [item(burst, number) for number in range(10)]
    families = [m.tensors["x"].fill.family for m in made]
    assert families == ["randn"] * 4 + ["ties"] * 3 + ["randn"] * 3
    for m in made:
        assert (m.scalars, m.poison, m.config, m.layout) == (
            {"dim": 1}, "finite", 3, "padded",
        )  # fmt: skip
        x = m.tensors["x"]
        assert (x.strides, x.offset, x.fill.axis) == ((8, 2), 3, -1)
    assert len({m.tensors["x"].fill.seed for m in made}) == 10


def test_seeds_of_members_do_not_repeat():
    seeds = [s for seed in range(200) for s in item_seeds(seed, 0, 128).tolist()]
    assert len(set(seeds)) == len(seeds)
    assert item_seeds(2**63 + 5, 0, 1).tolist() == [2**63 + 5]
    assert item_seeds(7, 60, 61)[0] == item_seeds(7, 0, 128)[60]


@pytest.mark.parametrize("finite", [False, True])
def test_plants_differ_and_lie_at_ends_and_tile_edges(finite):
    spec = spec_of((20, 300), "ones", axis=-1)
    burst = burst_of(spec, 300, planted=("x",), finite=finite)
    plants = [item(burst, n).tensors["x"].plants for n in range(1, 300)]
    counts = Counter(map(len, plants))
    assert 0.18 < 1 - counts[0] / len(plants) < 0.32
    assert set(counts) == {0, 1, 2, 3}
    every = [plant for found in plants for plant in found]
    assert len(set(every)) > 0.8 * len(every)
    columns = Counter(p.at[1] in edges(300) for p in every)
    assert columns[True] > 0.65 * len(every)
    assert columns[False]
    assert sum(p.at[0] in (0, 19) for p in every) > 0.65 * len(every)
    assert {p.bits for p in every} == set(specials("float32", finite=finite))
    values = batch_values(burst, CPU)["x"]
    assert bool(torch.isfinite(values).all()) is finite
    # Only the named arguments have any.
    assert (batch_values(burst, CPU)["a"].abs() < 4).all()


def test_a_burst_survives_json():
    spec = spec_of((3, 4), "nan1", plants=(Plant((0, 1), 1 << 31),))
    burst = burst_of(spec, 5, "ones", "ties", planted=("x",), finite=True)
    text = json.dumps(encode(burst))
    assert decode(Burst, json.loads(text)) == burst
    seeds = [item(burst, n).tensors["x"].fill.seed for n in range(1, 5)]
    assert all(float(seed) == seed for seed in seeds)
    plain = Burst(burst.case, 1)
    assert decode(Burst, encode(plain)) == plain


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "shape", "axis"),
    [
        ("float32", (3, 37), -1),
        ("float16", (5, 4, 3), -2),
        ("bfloat16", (2, 19), -1),
        ("float32", (), -1),
    ],
)
def test_one_kernel_makes_the_bits_of_every_family(dtype, shape, axis):
    pytest.importorskip("triton")
    if not interpreting():
        pytest.skip("Triton's kernels are compiled here")
    from kfuzz.execution.values import fused_fills

    families = sorted(set(FAMILIES) - COPIES)
    each = 2 if shape else 1
    groups = [{"x": family} for family in families]
    spec = spec_of(shape, "randn", dtype, axis)
    burst = Burst(Case({"x": spec}), each * (1 + len(groups)), tuple(groups))
    wanted = batch_values(burst, CPU)["x"]
    made = torch.full_like(wanted, 7.0)
    runs = [
        (each * i, each * i + each, family)
        for i, family in enumerate(["randn", *families])
    ]
    left_out = runs.pop(4)
    streams = Streams(item_seeds(1, 0, burst.members), CPU)
    fills = fused_fills.Fills()
    fills.add(made, runs, streams, axis=axis)
    fills.send()
    for start, stop, family in runs:
        same = torch.equal(bits(made[start:stop]), bits(wanted[start:stop]))
        assert same, f"{family}: {made[start:stop]} is not {wanted[start:stop]}"
    assert (made[left_out[0] : left_out[1]] == 7).all()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_one_kernel_plants_and_copies_as_torch_does(dtype, monkeypatch):
    pytest.importorskip("triton")
    if not interpreting():
        pytest.skip("Triton's kernels are compiled here")
    one, other = Plant((0, 1), 1), Plant((1, 0), 2)
    many = tuple(Plant((i, 0), i) for i in range(4))
    fill = Fill("randn", 5)
    tensors = {
        "b": TensorSpec(
            (3, 4), ("K", "M"), dtype, fill=Fill("transpose_of", 1, -2, "a")
        ),
        "a": TensorSpec((4, 3), ("M", "K"), dtype, fill=fill, plants=(one, other)),
        "wide": TensorSpec((4, 3), ("M", "K"), dtype, (0, 1), fill=fill, plants=(one,)),
        "many": TensorSpec((4, 3), ("M", "K"), dtype, fill=fill, plants=many),
        "alike": TensorSpec((4, 3), ("M", "K"), dtype, fill=fill, plants=(one,)),
    }
    groups = ({"a": "ties", "b": "randn"}, {"a": "nan1"})
    planted = ("a", "b", "wide", "many")
    burst = Burst(Case(tensors), 24, groups, planted)
    wanted = batch_values(burst, CPU)
    monkeypatch.setattr(fills, "is_fused", lambda device: True)
    made = batch_values(burst, CPU)
    for name in tensors:
        same = torch.equal(bits(made[name]), bits(wanted[name]))
        assert same, f"{name}: {made[name]} is not {wanted[name]}"
