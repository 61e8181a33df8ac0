import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from kfuzz.core.dtypes import DTYPES, bits_to_number, canonical_nan, number_to_bits
from kfuzz.core.errors import KfuzzError
from kfuzz.core.recipe import Case, Fill, Plant, TensorSpec
from kfuzz.core.value_families import (
    BOOL_FAMILIES,
    FAMILIES,
    INDEX_FAMILIES,
    INTEGER_FAMILIES,
)
from kfuzz.execution.values.fills import logical_values
from kfuzz.execution.values.formula import (
    Grid,
    Streams,
    bell,
    bell_on_host,
    mixed,
    mixed_on_host,
    narrowed,
)
from kfuzz.numerics.formats import FORMATS, round_to

CPU = torch.device("cpu")
FLOATS = [name for name, d in DTYPES.items() if d.kind == "float"]
GOLDEN = Path(__file__).parents[1] / "data" / "fills_golden.json"
INTEGERS = ("int64", "int32")
CODES = ("int8", "uint8", "int16", "int32", "int64")
BOUNDS = (1, 2, 37, 1025)
SHAPES = [((), -1), ((1,), -1), ((3, 37), -1), ((5, 4, 3), -2), ((300, 2), -2)]
EXACT = [f.name for f in FAMILIES.values() if f.group == "exact"]
WIDTHS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def case_of(family, shape, dtype="float32", *, seed=1, axis=-1, **rest):
    axes = tuple(f"d{i}" for i in range(len(shape)))
    source = "a" if family == "transpose_of" else None
    fill = Fill(family, seed, axis, source)
    other = TensorSpec(shape, axes, dtype, fill=Fill("randn", 99, axis))
    return Case({"a": other, "x": TensorSpec(shape, axes, dtype, fill=fill, **rest)})


def make(family, shape, dtype="float32", **rest):
    return logical_values(case_of(family, shape, dtype, **rest), "x", CPU)


def raw_bytes(tensor):
    view = tensor.view(WIDTHS[tensor.element_size()])
    return view.cpu().numpy().tobytes()


def checksum(family, dtype, device):
    digest = hashlib.sha256()
    for seed in (1, 2, 2**63 + 5):
        for shape, axis in SHAPES:
            case = case_of(family, shape, dtype, seed=seed, axis=axis)
            digest.update(raw_bytes(logical_values(case, "x", device)))
    return digest.hexdigest()[:16]


def make_indices(family, shape, bound, dtype="int64", *, seed=1, axis=-1):
    axes = tuple(f"d{i}" for i in range(len(shape)))
    table = TensorSpec((bound,), ("V",), "float32", fill=Fill("randn"))
    fill = Fill(family, seed, axis)
    x = TensorSpec(shape, axes, dtype, fill=fill, below="V")
    return logical_values(Case({"table": table, "x": x}), "x", CPU)


def index_checksum(family, dtype):
    digest = hashlib.sha256()
    for seed in (1, 2, 2**63 + 5):
        for shape, axis in SHAPES:
            for bound in BOUNDS:
                made = make_indices(family, shape, bound, dtype, seed=seed, axis=axis)
                digest.update(raw_bytes(made))
    return digest.hexdigest()[:16]


@pytest.mark.slow
def test_bits_of_every_family_are_those_recorded():
    # Written by this very loop: whoever changes a family on purpose replaces
    # the file, and with it every stored recipe changes its meaning.
    golden = json.loads(GOLDEN.read_text())
    found = {f: {d: checksum(f, d, CPU) for d in FLOATS} for f in FAMILIES}
    for family in INDEX_FAMILIES:
        found[family] = {d: index_checksum(family, d) for d in INTEGERS}
    for family in INTEGER_FAMILIES:
        found[family] = {d: checksum(family, d, CPU) for d in CODES}
    for family in BOOL_FAMILIES:
        found[family] = {"bool": checksum(family, "bool", CPU)}
    assert found == golden


@pytest.mark.slow
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("family", FAMILIES)
def test_families_are_finite_unless_special(family, dtype):
    for shape, axis in [*SHAPES, ((2, 5000), -1), ((0, 4), -1), ((4, 0), -1)]:
        for seed in range(4):
            x = make(family, shape, dtype, seed=seed, axis=axis)
            assert x.shape == shape
            assert x.dtype == getattr(torch, dtype)
            assert x.is_contiguous()
            if FAMILIES[family].group != "special":
                assert torch.isfinite(x.double()).all()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("scale", [0, -12, -20, -130, 5])
def test_narrowing_agrees_with_correct_rounding(dtype, scale):
    fmt = FORMATS[dtype]
    x = Grid(64, 64, fmt, Streams(np.array([3], np.uint64), CPU)).normal(0) * 2.0**scale
    assert torch.equal(narrowed(x, fmt).to(fmt.dtype).double(), round_to(x, fmt))


@pytest.mark.parametrize("family", EXACT)
@pytest.mark.parametrize("n", [1, 2, 3, 17, 1025, 40000])
def test_exact_families_sum_exactly_in_float32_in_any_order(family, n):
    for seed in range(6):
        x = make(family, (2, n), seed=seed).double()
        if family in ("balanced", "powers"):
            x = x * 16
        assert torch.equal(x, x.round())
        assert x.abs().sum(dim=1).max() <= 2**24


def test_transpose_of_copies_its_source_with_plants_and_leaves_it_alone():
    plant = Plant((0, 1), canonical_nan("float32"))
    a = TensorSpec(
        (3, 4), ("M", "K"), "float32", fill=Fill("randn", 5), plants=(plant,)
    )
    fill = Fill("transpose_of", 1, -2, "a")
    b = TensorSpec((4, 5), ("K", "N"), "float32", fill=fill)
    case = Case({"a": a, "b": b})
    left = logical_values(case, "a", CPU)
    right = logical_values(case, "b", CPU)
    assert right[1, 0].isnan()
    assert raw_bytes(right[:, :3].T.contiguous()) == raw_bytes(left)
    assert raw_bytes(right[:, 3:].contiguous()) == raw_bytes(left.T[:, :2].contiguous())
    # What is taken from a tall source is never as wide as the source is tall.
    tall = TensorSpec((1 << 20, 2), ("M", "K"), "float32", fill=Fill("randn", 5))
    wide = TensorSpec((1 << 20, 3), ("K", "N"), "float32", fill=fill)
    assert logical_values(Case({"a": tall, "b": wide}), "b", CPU).shape == wide.shape
    # An empty source has nothing to copy.
    empty = TensorSpec((0, 4), ("M", "K"), "float32", fill=Fill("randn", 5))
    assert torch.isfinite(logical_values(case.with_tensor("a", empty), "b", CPU)).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_plants_are_the_very_bits(dtype):
    d = DTYPES[dtype]
    top = 1 << (8 * d.itemsize - 1)
    patterns = [1, top, canonical_nan(dtype) | top, number_to_bits(1.5, dtype)]
    plants = tuple(Plant((1, i), bits) for i, bits in enumerate(patterns))
    x = make("ones", (3, 4), dtype, plants=plants)
    size = d.itemsize
    data = raw_bytes(x[1].contiguous())
    found = [
        int.from_bytes(data[i : i + size], "little") for i in range(0, 4 * size, size)
    ]
    assert found == patterns
    assert bits_to_number(found[3], dtype) == 1.5
    assert (x[0].double() == 1).all()


def test_an_expanded_dimension_repeats_its_first_index():
    spec = dict(strides=(0, 1), plants=(Plant((4, 2), canonical_nan("float32")),))
    x = make("randn", (6, 8), **spec)
    assert all(raw_bytes(row) == raw_bytes(x[0]) for row in x)
    assert x[0].isnan().tolist() == [i == 2 for i in range(8)]
    # Plants apart, index 0 holds what it holds without the expansion.
    assert torch.equal(x[0, 3:], make("randn", (6, 8))[0, 3:])


@pytest.mark.parametrize("dtype", DTYPES)
def test_pinned_values_come_back(dtype):
    data = bytes([1, 0] * 3 * DTYPES[dtype].itemsize)
    spec = TensorSpec((3, 2), ("d0", "d1"), dtype, values=data)
    x = logical_values(Case({"x": spec}), "x", CPU)
    assert x.dtype == getattr(torch, dtype)
    assert raw_bytes(x.view(torch.uint8) if dtype == "bool" else x) == data


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (TensorSpec((2,), ("d0",), "int32", fill=Fill("randn")), "integer family"),
        (TensorSpec((2,), ("d0",), "bool", fill=Fill("randn")), "bool family"),
        (TensorSpec((2,), ("d0",), "float32", fill=Fill("rand")), "'randn'"),
        (
            TensorSpec((2,), ("d0",), "float32", fill=Fill("ones", axis=0)),
            "fill axis 0",
        ),
        (TensorSpec((2,), ("d0",), "float32", fill=Fill("ones", axis=-2)), "rank-1"),
        (
            TensorSpec((2,), ("d0",), "float32", fill=Fill("transpose_of", source="x")),
            "copies from itself",
        ),
        (
            TensorSpec((2,), ("d0",), "float32", fill=Fill("transpose_of", source="q")),
            "no argument",
        ),
        (TensorSpec((2,), ("d0",), "float32", fill=Fill("transpose_of")), "no source"),
        (TensorSpec((2, 2), ("d0",), "float32", fill=Fill("ones")), "axis names"),
    ],
)
def test_impossible_recipes_are_refused_with_the_cause(spec, words):
    with pytest.raises(KfuzzError, match=words):
        logical_values(Case({"x": spec}), "x", CPU)


def test_the_host_and_a_device_compute_the_same_words_and_numbers():
    counter = torch.cat((torch.arange(5000), 2**33 + torch.arange(-2, 5000)))
    halves = torch.tensor([0, 1, 0x9E3779B9, 2**31, 2**32 - 1])
    low, high = (h.view(-1, 1) for h in (halves, halves.flip(0)))
    on_device = mixed(counter, low, high)
    keys = (h.numpy().astype(np.uint32) for h in (low, high))
    on_host = mixed_on_host(counter.numpy().astype(np.uint32), *keys)
    assert torch.equal(on_device, torch.from_numpy(on_host.astype(np.int64)))
    centre = torch.tensor([[0xFFFF0000, 0, 0], [0xFFFF8000, 0, 2**32 - 1]])
    for both in (on_device[:2], on_device[3:], centre):
        numbers = bell_on_host(both.numpy().astype(np.uint32))
        assert torch.equal(bell(both).view(torch.int64), bits_of(numbers))


def bits_of(numbers):
    return torch.from_numpy(numbers).view(torch.int64)
