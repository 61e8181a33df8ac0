"""Placement and guarded allocations on a CUDA device."""

import pytest
import torch

from kfuzz.core.recipe import Fill, TensorSpec
from kfuzz.execution.memory.allocations import GuardedAllocations
from kfuzz.execution.memory.placement import place
from kfuzz.execution.memory.poison import Poison
from kfuzz.execution.memory.slots import Arena
from kfuzz.numerics.run import Touch
from tests.helpers.poisoned import is_poison

pytestmark = pytest.mark.gpu

SLICED = TensorSpec((4, 6), ("a", "b"), "bfloat16", (9, 1), 2, Fill("randn"))
EXPANDED = TensorSpec((4, 6), ("a", "b"), "float32", (0, 1), 0, Fill("randn"))


def beyond(tensor, first, count):
    """Return a view of the memory around a tensor, by element offsets from it."""
    size = tensor.element_size()

    class Memory:
        __cuda_array_interface__ = {  # noqa: RUF012
            "shape": (count * size,),
            "typestr": "|u1",
            "data": (tensor.data_ptr() + first * size, False),
            "version": 3,
        }

    return torch.as_tensor(Memory(), device=tensor.device).view(tensor.dtype)


def placed(poison, arena=None):
    values = {
        "x": torch.arange(24, dtype=torch.bfloat16, device="cuda").reshape(4, 6),
        "y": torch.arange(6.0, device="cuda").expand(4, 6).contiguous(),
    }
    specs = {"x": SLICED, "y": EXPANDED}
    placement = place(
        specs, values, device="cuda", alignment=16, poison=poison, arena=arena
    )
    return placement, values


@pytest.mark.parametrize("poison", Poison)
def test_tensors_are_what_the_recipes_say(poison):
    arena = Arena("cuda")
    for _ in range(2):
        placement, values = placed(poison, arena)
        for name, tensor in placement.tensors.items():
            assert tensor.is_cuda
            assert torch.equal(tensor, values[name])
            assert tensor.untyped_storage().data_ptr() % 32 == 16
        x = placement.tensors["x"]
        assert (x.stride(), x.storage_offset(), x._version) == ((9, 1), 2, 0)
        assert is_poison(beyond(x, -2048, 2048), poison).all()
        assert is_poison(beyond(x, 6, 3), poison).all()
        assert is_poison(beyond(x, 33, 2048), poison).all()
        assert torch.equal(torch.relu(x), values["x"])
        assert placement.touches() == []


def test_touches_are_found():
    placement, _ = placed(Poison.NAN)
    x = placement.tensors["x"]
    x[1, 2] = 100
    beyond(x, 7, 1).fill_(1)
    beyond(x, 33, 1).fill_(1)
    beyond(x, -3, 1).fill_(1)
    stray = [
        Touch("x", "slack", 1, 2, 2),
        Touch("x", "before", 1, 3, 2),
        Touch("x", "after", 1, 1, 2),
    ]
    assert placement.touches() == [Touch("x", "element", 1, 0, 2, (1, 2)), *stray]
    assert placement.touches(inplace={"x"}) == stray


@pytest.mark.parametrize("poison", Poison)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_allocations_are_poisoned_and_guarded(dtype, poison):
    like = torch.ones(4, 6, dtype=dtype, device="cuda")
    with GuardedAllocations("cuda", poison) as guard:
        made = torch.empty_like(like)
        assert is_poison(made, poison).all()
        other = torch.empty(5, device="cuda").fill_(1)
        assert torch.equal(made.copy_(like) + 1, like * 2)
        assert guard.touches() == []
        beyond(made, 24, 1).fill_(1)
    assert made.data_ptr() % 512 == 0
    assert other.sum().item() == 5
    assert [(t.allocation, t.where, t.distance) for t in guard.touches()] == [
        (0, "after", 1)
    ]


def test_resize_grows_on_the_device():
    with GuardedAllocations("cuda", Poison.NAN) as guard:
        made = torch.empty(3, device="cuda").fill_(7)
        made.resize_(10)
    assert made[:3].tolist() == [7, 7, 7]
    assert is_poison(made[3:], Poison.NAN).all()
    assert guard.touches() == []
