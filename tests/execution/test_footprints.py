import pytest
import torch
from torch import Tensor

from kfuzz.numerics.formats import Footprint


def meets(one: Tensor, other: Tensor) -> bool:
    found = Footprint.of(one).overlaps(Footprint.of(other))
    assert Footprint.of(other).overlaps(Footprint.of(one)) is found
    return found


def test_views_of_one_buffer_meet_where_they_share_an_element() -> None:
    buffer = torch.zeros(6, 8)
    assert meets(buffer, buffer)
    assert meets(buffer, buffer[3:4, 7])
    assert meets(buffer[:4], buffer[3:])
    assert meets(buffer.t()[::2], buffer[5])
    assert meets(buffer[:, 0].expand(3, 6), buffer[2])
    assert meets(buffer.view(torch.uint8)[0, 3:4], buffer[0, 0])


def test_what_lies_between_each_other_is_apart() -> None:
    buffer = torch.zeros(6, 8)
    assert not meets(buffer[:, 0], buffer[:, 1])
    assert not meets(buffer[:, ::2], buffer[:, 1::2])
    assert not meets(buffer[:3], buffer[3:])
    assert not meets(buffer[:, :4].unsqueeze(0).expand(5, 6, 4), buffer[:, 4:])
    assert not meets(
        buffer.view(torch.uint8)[:, 0::4], buffer.view(torch.uint8)[:, 1::4]
    )


@pytest.mark.parametrize("shape", [(0,), (4, 0), (0, 3)])
def test_the_empty_meet_nothing(shape: tuple[int, ...]) -> None:
    buffer = torch.zeros(12)
    empty = buffer.new_empty(shape)
    assert not meets(empty, empty)
    assert not meets(buffer[:0].view(0), buffer)
    nowhere = Footprint(0, shape, (1,) * len(shape), 4)  # as on a device
    assert not nowhere.overlaps(Footprint.of(buffer))


def test_a_sparse_view_is_compared_by_its_elements() -> None:
    """The bytes between the ends would not fit in memory."""
    sparse = Footprint(1 << 40, (3, 4), (1 << 33, 1), 4)
    between = Footprint((1 << 40) + 64, (1 << 20,), (1,), 4)
    assert not sparse.overlaps(between)
    assert sparse.overlaps(Footprint((1 << 40) + 12, (1 << 20,), (1,), 4))
