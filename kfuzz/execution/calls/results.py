"""What a kernel returned, read in the form that its contract demands."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from kfuzz.core.verdict import Kind
from kfuzz.execution.memory.destinations import handed_back
from kfuzz.numerics.footprints import Footprint
from kfuzz.numerics.run import Expected, Metadata


class Arguments(Protocol):
    """Placed arguments."""

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """The arguments by name."""


def read_results(
    returned: object,
    placement: Arguments,
    expected: Mapping[str, Expected],
    *,
    inplace: Sequence[str],
    memory: Mapping[str, Tensor],
    device: torch.device,
    copy: bool = True,
) -> tuple[dict[str, Tensor], dict[str, Footprint], Metadata | None]:
    """Return what a call gave, in the memory that it was to write where it was given.

    Args:
        returned: what the kernel returned.
        placement: its arguments where they lie.
        expected: metadata of each output, in order.
        inplace: arguments whose bytes become the result.
        memory: the destinations as the call found them, by output.
        device: where results have to lie.
        copy: whether to clone them; else they are as the kernel returned them.

    Returns:
        The results by name, where they lay, and what is wrong with them.
    """
    problem = None
    if inplace:
        problem = _other_tensor(returned, inplace[0], placement.tensors[inplace[0]])
        returned = placement.tensors[inplace[0]]
    if memory:
        places = list(memory.values())
        if not handed_back(returned, places):
            what = f"returns {_described(returned)} other than its destination "
            problem = Metadata(Kind.WRONG_TYPE, "", what + ", ".join(memory))
        returned = places if len(places) > 1 else places[0]
    if problem is not None:
        return {}, {}, problem
    return read_outputs(returned, expected, device, copy=copy)


def _other_tensor(returned: object, name: str, given: Tensor) -> Metadata | None:
    """Return what is wrong with the return value of an in-place kernel."""
    if returned is None:
        return None
    if isinstance(returned, Tensor) and returned.data_ptr() == given.data_ptr():
        return None
    what = (
        f"returns {_described(returned)} other than {name}, which it declares inplace"
    )
    return Metadata(Kind.WRONG_TYPE, "", what)


def read_outputs(
    returned: object,
    expected: Mapping[str, Expected],
    device: torch.device,
    *,
    copy: bool = True,
) -> tuple[dict[str, Tensor], dict[str, Footprint], Metadata | None]:
    """Return results by name and where they lay, or what is wrong with them.

    They are contiguous clones, or as they were returned.
    """
    names = list(expected)
    if not names:  # the oracle has no result here: values are not judged
        return {}, {}, None
    items: Sequence[object] = (returned,)
    if len(names) > 1 or (isinstance(returned, tuple | list) and len(returned) == 1):
        if not isinstance(returned, tuple | list) or len(returned) != len(names):
            what = _described(returned)
            text = f"returns {what}, expected {len(names)} tensors"
            return {}, {}, Metadata(Kind.WRONG_TYPE, "", text)
        items = returned
    outputs, lay = {}, {}
    for name, item in zip(names, items, strict=True):
        problem = _problem(name, item, expected[name], device)
        if problem is not None:
            return {}, {}, problem
        assert isinstance(item, Tensor)
        outputs[name] = item.detach()
        if copy:
            outputs[name] = item.detach().clone(memory_format=torch.contiguous_format)
        lay[name] = Footprint.of(item)
    return outputs, lay, None


def _problem(
    name: str, item: object, expected: Expected, device: torch.device
) -> Metadata | None:
    if not isinstance(item, Tensor) or type(item) not in (Tensor, torch.nn.Parameter):
        what = f"{name} is {_described(item)}, expected torch.Tensor"
        return Metadata(Kind.WRONG_TYPE, name, what)
    if item.layout is not torch.strided or item.is_quantized:
        what = f"{name} has layout {item.layout}, expected dense"
        return Metadata(Kind.WRONG_TYPE, name, what)
    if tuple(item.shape) != expected.shape:
        what = f"{name} has shape {tuple(item.shape)}, expected {expected.shape}"
        return Metadata(Kind.WRONG_SHAPE, name, what)
    if item.dtype != expected.dtype:
        what = f"{name} is {item.dtype}, expected {expected.dtype}"
        return Metadata(Kind.WRONG_DTYPE, name, what)
    if item.device.type != device.type:
        what = f"{name} is on {item.device}, expected {device}"
        return Metadata(Kind.WRONG_DEVICE, name, what)
    return None


def _described(value: object) -> str:
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return type(value).__name__
