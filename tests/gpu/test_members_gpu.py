"""Values of all members on a GPU: the CPU's bits, by one kernel and by torch."""

import pytest
import torch

from kfuzz.core.budget import Burst
from kfuzz.core.dtypes import DTYPES
from kfuzz.core.recipe import Case, Fill, Plant, TensorSpec
from kfuzz.core.value_families import (
    BOOL_FAMILIES,
    FAMILIES,
    INDEX_FAMILIES,
    INTEGER_FAMILIES,
)
from kfuzz.execution.values import fills
from kfuzz.execution.values.fills import batch_values

pytestmark = pytest.mark.gpu

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
FLOATS = [name for name, d in DTYPES.items() if d.kind == "float"]
FUSED = ("float32", "float16", "bfloat16")
WIDTHS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
LAYOUTS = (
    ((3, 37), -1, None),
    ((), -1, None),
    ((5, 4, 3), -2, None),
    ((0, 4), -1, None),
    ((6, 8), -1, (0, 1)),
    ((2, 3, 4, 5), -3, None),
    ((70, 30), -2, None),
    ((2, 1025), -1, None),
)
EACH = 5


def bits(x):
    return x.contiguous().view(WIDTHS[x.element_size()]).cpu()


def burst_of(shape, axis, strides, dtype, families, plants=(), **rest):
    axes = tuple(f"d{i}" for i in range(len(shape)))
    fill = Fill(families[0], 11, axis)
    x = TensorSpec(shape, axes, dtype, strides, fill=fill, plants=plants)
    groups = tuple({"x": family} for family in families[1:])
    return Burst(Case({"x": x, **rest}), EACH * len(families), groups, ("x",))


def assert_equal_bits(burst, families, what):
    wanted, made = batch_values(burst, CPU), batch_values(burst, CUDA)
    for name in wanted:
        one, other = bits(wanted[name]), bits(made[name])
        if torch.equal(one, other):
            continue
        unlike = (one != other).reshape(len(one), -1).any(1)
        wrong = unlike.nonzero().flatten().tolist()
        spoilt = sorted({families[burst.group(number)] for number in wrong})
        first = (one != other).nonzero()[0].tolist()
        at = tuple(first)
        pytest.fail(
            f"{what}: {name} differs in members {wrong}, of families {spoilt}; "
            f"first at {first}: {one[at].item():#x} on the CPU, {other[at].item():#x}"
        )


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_cuda_makes_the_bits_of_the_cpu(layout, dtype):
    families = [f for f in FAMILIES if f != "transpose_of"]
    shape, axis, strides = layout
    plants = (Plant((0,) * len(shape), 1),) if 0 not in shape else ()
    burst = burst_of(shape, axis, strides, dtype, families, plants)
    assert_equal_bits(burst, families, f"{dtype} {layout}")


@pytest.mark.parametrize("dtype", FUSED)
def test_torch_makes_them_too(dtype, monkeypatch):
    assert fills.is_fused(CUDA), "no kernel of kfuzz's own would run here"
    monkeypatch.setattr(fills, "is_fused", lambda device: False)
    families = [f for f in FAMILIES if f != "transpose_of"]
    for shape, axis, strides in LAYOUTS:
        burst = burst_of(shape, axis, strides, dtype, families)
        assert_equal_bits(burst, families, f"torch, {dtype} {shape}")


@pytest.mark.parametrize("dtype", FLOATS)
def test_copies_of_another_argument(dtype):
    a = TensorSpec((3, 40), ("M", "K"), dtype, fill=Fill("randn", 5))
    b = TensorSpec((40, 6), ("K", "N"), dtype, fill=Fill("transpose_of", 1, -2, "a"))
    groups = ({"a": "ties", "b": "randn"}, {"a": "nan1"}, {"a": "cancel"})
    burst = Burst(Case({"b": b, "a": a}), 20, groups, ("a", "b"))
    assert_equal_bits(burst, ["case", "randn", "nan1", "cancel"], dtype)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64", "bool"])
def test_integers_and_masks(dtype):
    families = list(BOOL_FAMILIES if dtype == "bool" else INTEGER_FAMILIES)
    for shape, axis, strides in LAYOUTS:
        burst = burst_of(shape, axis, strides, dtype, families)
        assert_equal_bits(burst, families, f"{dtype} {shape}")


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_indices(dtype):
    table = TensorSpec((1025,), ("V",), "float32", fill=Fill("randn"))
    for first in INDEX_FAMILIES:
        families = [
            first, *(n for n, f in INDEX_FAMILIES.items() if f.group == "index")
        ]  # fmt: skip
        x = TensorSpec((3, 37), ("a", "b"), dtype, fill=Fill(first, 7), below="V")
        groups = tuple({"x": family} for family in families[1:])
        burst = Burst(Case({"table": table, "x": x}), 4 * len(families), groups)
        assert_equal_bits(burst, families, f"{dtype} {first}")
