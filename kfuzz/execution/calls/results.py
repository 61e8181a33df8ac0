"""What a kernel returned, read in the form that its contract demands."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from kfuzz.core.results import OtherForm, described, in_place
from kfuzz.core.verdict import Kind
from kfuzz.execution.calls.invocation import Invocation
from kfuzz.execution.memory.destinations import handed_back
from kfuzz.execution.memory.placement import Placement
from kfuzz.numerics.footprints import Footprint
from kfuzz.numerics.run import Expected, Metadata


@dataclass(frozen=True)
class Reading:
    """What a call gave.

    Attributes:
        outputs: the results by name; empty if something is wrong with them.
        results: where their elements lay.
        problem: what is wrong with them.
    """

    outputs: Mapping[str, Tensor] = field(default_factory=dict)
    results: Mapping[str, Footprint] = field(default_factory=dict)
    problem: Metadata | None = None


class Reader:
    """Reads what calls return, in the memory that they were to write where given it.

    Attributes:
        places: per destination the memory of each item, as the call finds it.
    """

    def __init__(
        self, asked: Invocation, placement: Placement, device: torch.device
    ) -> None:
        """Keep what a call may change."""
        self._asked = asked
        self._placement = placement
        self._device = device
        # Other tensor objects: a kernel may put other memory under the ones it has.
        self.places = {name: placement.views(name) for name in asked.destinations}

    def read(self, returned: object, number: int = 0, *, copy: bool = True) -> Reading:
        """Return what the call of an item gave; see `read_results`."""
        asked = self._asked
        return read_results(
            returned,
            asked.expected,
            self._device,
            inplace={n: self._placement.every[n][number] for n in asked.inplace},
            memory={name: all_[number] for name, all_ in self.places.items()},
            copy=copy,
        )


def read_results(
    returned: object,
    expected: Mapping[str, Expected],
    device: torch.device,
    *,
    inplace: Mapping[str, Tensor],
    memory: Mapping[str, Tensor],
    copy: bool = True,
) -> Reading:
    """Return what a call gave, in the memory that it was to write where it was given.

    Args:
        returned: what the kernel returned.
        expected: metadata of each output, in order.
        device: where results have to lie.
        inplace: arguments whose bytes become results: the only one, or those of their
            names.
        memory: the destinations as the call found them, by output.
        copy: whether to clone them; else they are as the kernel returned them.
    """
    if not expected:  # the oracle has no result here, and how many there are none says
        return Reading({}, {}, None)
    problem = None
    own = {**memory, **inplace} if len(expected) > 1 else dict(memory)
    rest = [name for name in expected if name not in own]
    if own and rest:
        whole = _completed(returned, expected, own)
        if whole is None:
            what = f"returns {described(returned)}, expected {', '.join(rest)}"
            what += f", with {', '.join(own)} written where the kernel was given them"
            problem = Metadata(Kind.WRONG_TYPE, "", what)
        returned = whole
    elif own:
        places = [own[name] for name in expected]
        if not handed_back(returned, places):
            what = f"returns {described(returned)} other than its destination "
            problem = Metadata(Kind.WRONG_TYPE, "", what + ", ".join(own))
        returned = places if len(places) > 1 else places[0]
    else:
        for name, given in list(inplace.items())[:1]:
            own_tensor = isinstance(returned, Tensor) and (
                returned.data_ptr() == given.data_ptr()
            )
            if returned is not None and not own_tensor:
                what = f"returns {described(returned)} other than {name}, which it "
                problem = Metadata(Kind.WRONG_TYPE, "", what + "declares inplace")
            returned = given
    if problem is not None:
        return Reading(problem=problem)
    return Reading(*read_outputs(returned, expected, device, copy=copy))


def _completed(
    returned: object, names: Collection[str], own: Mapping[str, Tensor]
) -> list[object] | None:
    """Return all results where some lie in memory that the kernel was given.

    It returns the others alone, or all of them, these in their memory; None for
    anything else.
    """
    items = list(returned) if isinstance(returned, tuple | list) else [returned]
    rest = [name for name in names if name not in own]
    if len(items) == len(names):
        handed = dict(zip(names, items, strict=True))
        if any(not handed_back(handed[n], [own[n]]) for n in names if n in own):
            return None
    elif len(items) == len(rest):
        handed = dict(zip(rest, items, strict=True))
    else:
        return None
    return [own.get(name, handed.get(name)) for name in names]


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
    try:
        items = in_place(returned, expected)
    except OtherForm as other:
        return {}, {}, Metadata(Kind.WRONG_TYPE, other.name, other.what)
    outputs, lay = {}, {}
    for name, item in items.items():
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
    kind = Kind.WRONG_TYPE
    if not isinstance(item, Tensor) or type(item) not in (Tensor, torch.nn.Parameter):
        what = f"is {described(item)}, expected torch.Tensor"
    elif item.layout is not torch.strided or item.is_quantized:
        what = f"has layout {item.layout}, expected dense"
    elif tuple(item.shape) != expected.shape:
        kind = Kind.WRONG_SHAPE
        what = f"has shape {tuple(item.shape)}, expected {expected.shape}"
    elif item.dtype != expected.dtype:
        kind, what = Kind.WRONG_DTYPE, f"is {item.dtype}, expected {expected.dtype}"
    elif item.device.type != device.type:
        kind, what = Kind.WRONG_DEVICE, f"is on {item.device}, expected {device}"
    else:
        return None
    return Metadata(kind, name, f"{name} {what}")
