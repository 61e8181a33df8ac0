import pytest
import torch

from kfuzz.core.dtypes import DTYPES
from kfuzz.core.recipe import Case, Fill, Plant, TensorSpec
from kfuzz.core.value_families import FAMILIES, INDEX_FAMILIES
from kfuzz.execution.values.fills import logical_values

pytestmark = pytest.mark.gpu

FLOATS = [name for name, d in DTYPES.items() if d.kind == "float"]
SHAPES = [
    ((), -1), ((1,), -1), ((0, 3), -1), ((3, 0), -2), ((3, 37), -1), ((5, 4, 3), -2),
    ((300, 70), -2), ((2, 1025), -1),
]  # fmt: skip
WIDTHS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("family", FAMILIES)
def test_cuda_makes_the_same_bits_as_the_cpu(family, dtype):
    for shape, axis in SHAPES:
        for seed in (1, 2, 2**63 + 5):
            axes = tuple(f"d{i}" for i in range(len(shape)))
            plants = (Plant((0,) * len(shape), 1),) if 0 not in shape else ()
            fill = Fill(family, seed, axis, "a" if family == "transpose_of" else None)
            case = Case(
                {
                    "a": TensorSpec(shape, axes, dtype, fill=Fill("randn", 9, axis)),
                    "x": TensorSpec(shape, axes, dtype, fill=fill, plants=plants),
                }
            )
            host = logical_values(case, "x", torch.device("cpu"))
            device = logical_values(case, "x", torch.device("cuda"))
            width = WIDTHS[host.element_size()]
            assert torch.equal(host.view(width), device.view(width).cpu())


@pytest.mark.parametrize("dtype", ["int64", "int32"])
@pytest.mark.parametrize("family", INDEX_FAMILIES)
def test_cuda_makes_the_same_indices_as_the_cpu(family, dtype):
    for (shape, axis), bound in zip(SHAPES, (1, 2, 37, 5, 1025, 64, 3, 9), strict=True):
        axes = tuple(f"d{i}" for i in range(len(shape)))
        table = TensorSpec((bound,), ("V",), "float32", fill=Fill("randn"))
        x = TensorSpec(shape, axes, dtype, fill=Fill(family, 7, axis), below="V")
        case = Case({"table": table, "x": x})
        host = logical_values(case, "x", torch.device("cpu"))
        device = logical_values(case, "x", torch.device("cuda"))
        assert torch.equal(host, device.cpu())
