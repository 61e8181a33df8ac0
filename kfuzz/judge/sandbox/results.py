"""The campaign's side of a call: what a child told, checked, as tensors of its own.

Nothing here trusts the child: every field is checked for its type and range before it
is used, and what fails is `Broken`. A claim about metadata can be a lie; values are
bytes.
"""

import math
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from kfuzz.core.untrusted import Told
from kfuzz.judge.sandbox.carried import Carrier, Geometry
from kfuzz.judge.sandbox.telling import MOST_ITEMS

MOST_DIMS: Final = 64  # of a tensor of torch's
_MOST_NUMBER: Final = 1 << 48
_MOST_TEXT: Final = 32_000
_MOST_NAME: Final = 200
_MOST_NAMES: Final = 64

# A storage larger than this many times its elements is not built: the elements then
# lie densely.
_MOST_SLACK: Final = 4
_FREE_SLACK: Final = 1 << 20


class Broken(Exception):
    """What the child sent is no answer."""


@dataclass(frozen=True)
class Returned:
    """What a call brought, in the campaign's memory.

    Attributes:
        value: what the kernel returned: tensors of kfuzz's own, in a tuple where it
            returned several; in place of anything else an object that has the name of
            its type and nothing more.
        tensors: the tensors in it, in order.
        nesting: how they were nested, as `telling.nesting` says it.
        type: the name of its type.
        late: whether results or arguments still changed after the call had returned.
        operators: torch's own operators that computed.
        kernels: those of Triton that it launched, in the order of the first launch.
        strays: writes beside its own allocations.
        inside: seconds that the call took by the child's clock.
    """

    value: object
    tensors: tuple[Tensor, ...]
    nesting: str
    type: str
    late: bool
    operators: tuple[str, ...]
    kernels: tuple[str, ...]
    strays: tuple[str, ...]
    inside: float


class Given:
    """The results handed out so far that somebody still holds.

    A child that returns the memory of an earlier result has changed that result too.
    """

    def __init__(self) -> None:
        self._calls: dict[tuple[int, int], list[weakref.ref[Tensor]]] = {}

    def forget(self) -> None:
        """The child is another one."""
        self._calls.clear()

    def keep(self, call: int, place: int, tensor: Tensor) -> None:
        """Remember a result."""
        old = [key for key in self._calls if key[0] < call - 4]
        for key in old:
            del self._calls[key]
        self._calls.setdefault((call, place), []).append(weakref.ref(tensor))

    def storage(self, call: int, place: int) -> torch.UntypedStorage | None:
        """Return the storage of an earlier result, None if nobody holds it."""
        for reference in self._calls.get((call, place), ()):
            tensor = reference()
            if tensor is not None:
                return tensor.untyped_storage()
        return None


def told_exception(told: object) -> tuple[Told, bool]:
    """Return an exception as told, and whether it is said to be Triton's own fault.

    Raises:
        Broken: it is no exception.
    """
    fields = _mapping(told)
    exception = Told(
        type=_text(fields.get("type"), _MOST_NAME) or "Exception",
        message=_text(fields.get("message"), _MOST_TEXT),
        traceback=_text(fields.get("traceback"), _MOST_TEXT),
        memory=fields.get("memory") is True,
        fault=_text(fields.get("fault"), _MOST_NAME),
        gpu=_text(fields.get("gpu"), _MOST_TEXT),
    )
    return exception, fields.get("backend") is True


def returned(
    answer: object,
    memory: Carrier,
    arguments: Sequence[Tensor],
    device: torch.device,
    given: Given,
) -> Returned:
    """Return what a call brought.

    Args:
        answer: the child's.
        memory: where the elements of results are.
        arguments: the tensors that the kernel was given, with what it left in them.
        device: where results are to lie.
        given: earlier results.

    Raises:
        Broken: it is malformed.
        OSError: the shared memory cannot be read.
    """
    fields = _mapping(answer)
    told = _mapping(fields.get("returned"))
    listed = told.get("items")
    if not isinstance(listed, list) or len(listed) > MOST_ITEMS:
        raise Broken("its results are no list")
    made = _Made(memory, arguments, device, given, _count(told.get("call")))
    items = [made.item(_mapping(item)) for item in listed]
    inside = fields.get("seconds")
    return Returned(
        value=_structured(told, items),
        tensors=tuple(item for item in items if isinstance(item, Tensor)),
        nesting=_text(told.get("nesting"), _MOST_TEXT),
        type=_text(told.get("type"), _MOST_NAME),
        late=fields.get("late") is True,
        operators=_names(fields.get("operators")),
        kernels=_names(fields.get("kernels")),
        strays=_names(fields.get("strays")),
        inside=float(inside) if isinstance(inside, int | float) else 0.0,
    )


def _structured(told: Mapping[str, Any], items: list[object]) -> object:
    structure = told.get("structure")
    if structure == "none" and not items:
        return None
    if structure == "one" and len(items) == 1:
        return items[0]
    if structure != "tuple":
        raise Broken("it does not say what it returned")
    count = _count(told.get("count"))
    if len(items) != min(count, MOST_ITEMS):
        raise Broken("it returned more or less than it tells")
    # More than anything is expected to return: that many is all that matters.
    return (*items, *[None] * min(count - len(items), 1))


class _Made:
    """Builds the results of one call."""

    def __init__(
        self,
        memory: Carrier,
        arguments: Sequence[Tensor],
        device: torch.device,
        given: Given,
        call: int,
    ) -> None:
        self._memory = memory
        self._arguments = arguments
        self._device = device
        self._given = given
        self._call = call
        self._storages: dict[int, torch.UntypedStorage] = {}

    def item(self, told: Mapping[str, Any]) -> object:
        """Return one result."""
        kind = _text(told.get("type"), _MOST_NAME)
        if kind not in ("Tensor", "Parameter"):
            return stand_in(kind)
        layout = _text(told.get("layout"), _MOST_NAME)
        if layout != "torch.strided":
            return stand_in(f"Tensor with layout {layout}")
        geometry = _geometry(told.get("geometry"))
        place = _text(told.get("device"), _MOST_NAME)
        number = told.get("argument")
        if number is not None:
            return self._of_argument(number, geometry)
        if place != self._device.type:
            return _elsewhere(geometry, place)
        if told.get("carried") is None:  # larger than anything that was declared
            return _sized(geometry, self._device)
        data = self._memory.read(*self._range(told.get("at"), geometry.nbytes))
        storage = told.get("storage")
        if isinstance(storage, bool) or not isinstance(storage, int) or storage < 0:
            raise Broken("a result has no storage")
        made = self._over(geometry, storage, told.get("again"))
        elements = data.view(geometry.torch_dtype).reshape(geometry.shape)
        _fill(made, elements)
        self._given.keep(self._call, storage, made)
        return made

    def _of_argument(self, number: object, geometry: Geometry) -> Tensor:
        """Return the view of an argument's memory that a result is."""
        if isinstance(number, bool) or not isinstance(number, int):
            raise Broken("a result is told to be an argument without a number")
        if not 0 <= number < len(self._arguments):
            raise Broken(f"a result is told to be argument {number}")
        argument = self._arguments[number]
        if Geometry.of(argument) == geometry:
            return argument
        storage = argument.untyped_storage()
        if geometry.reach > storage.nbytes():
            raise Broken("a result lies outside the argument that it is told to be")
        return geometry.over(storage, argument.device)

    def _range(self, at: object, nbytes: int) -> tuple[int, int]:
        if isinstance(at, bool) or not isinstance(at, int):
            raise Broken("a result lies nowhere")
        if at < 0 or nbytes > self._memory.nbytes or at + nbytes > self._memory.nbytes:
            raise Broken("a result lies outside the shared memory")
        return at, nbytes

    def _over(self, geometry: Geometry, number: int, again: object) -> Tensor:
        """Return uninitialised memory of a result: its own, or another result's."""
        if not geometry.numel or geometry.reach > _room(geometry):
            return torch.empty(
                geometry.shape, dtype=geometry.torch_dtype, device=self._device
            )
        known = self._storages.get(number)
        if known is None and isinstance(again, list) and len(again) == 2:
            known = self._given.storage(_count(again[0]), _count(again[1]))
        if known is None or known.nbytes() < geometry.reach:
            room = (
                torch.empty(_room(geometry), dtype=torch.uint8, device=self._device)
                if number not in self._storages
                else None
            )
            if room is None:
                return torch.empty(
                    geometry.shape, dtype=geometry.torch_dtype, device=self._device
                )
            known = room.untyped_storage()
        self._storages[number] = known
        return geometry.over(known, self._device)


def _room(geometry: Geometry) -> int:
    """Return the bytes that the storage of a result may have."""
    return _MOST_SLACK * geometry.nbytes + _FREE_SLACK


def _fill(made: Tensor, elements: Tensor) -> None:
    """Write the elements of a result; of elements that share memory the last counts."""
    if made.numel() == 0:
        return
    # As bytes, so that no conversion touches a NaN.
    words = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    word = words.get(made.element_size())
    if word is None:  # complex128: two of them
        made.copy_(elements)
        return
    target = made.view(word)
    source = elements.contiguous().view(word)
    for axis, (n, step) in enumerate(zip(made.shape, made.stride(), strict=True)):
        if step == 0 and n > 1:
            target = target.narrow(axis, 0, 1)
            source = source.narrow(axis, 0, 1)
    target.copy_(source)


def stand_in(name: str) -> object:
    """Return an object of a type of this name, for what cannot be a tensor here."""
    return type(name, (), {})()


def _elsewhere(geometry: Geometry, place: str) -> Tensor:
    """Return a tensor of a size on another device, without memory."""
    return _sized(geometry, torch.device("cpu" if place == "cpu" else "meta"))


def _sized(geometry: Geometry, device: torch.device) -> Tensor:
    """Return a tensor of a size that takes no memory; its values mean nothing."""
    one = torch.zeros((), dtype=geometry.torch_dtype, device=device)
    return one.expand(geometry.shape)


def _geometry(told: object) -> Geometry:
    fields = _mapping(told)
    dtype = _text(fields.get("dtype"), _MOST_NAME)
    if not dtype.isidentifier() or not isinstance(
        getattr(torch, dtype, None), torch.dtype
    ):
        raise Broken(f"{dtype!r} is no dtype")
    shape, strides = _sizes(fields.get("shape")), _sizes(fields.get("strides"))
    if len(shape) != len(strides) or len(shape) > MOST_DIMS:
        raise Broken(f"strides {strides} do not fit sizes {shape}")
    offset = _count(fields.get("offset"))
    geometry = Geometry(dtype, shape, strides, offset)
    if max(geometry.nbytes, geometry.reach) >= 1 << 62 or offset > _MOST_NUMBER:
        raise Broken("a result is larger than any memory")
    if math.prod(max(n, 1) for n in shape) >= 1 << 62:
        raise Broken("a result is larger than any memory")
    return geometry


def _sizes(told: object) -> tuple[int, ...]:
    if not isinstance(told, list):
        raise Broken("sizes are no list")
    return tuple(map(_count, told))


def _count(told: object) -> int:
    if isinstance(told, bool) or not isinstance(told, int):
        raise Broken(f"{told!r:.40} is no number")
    if not 0 <= told <= _MOST_NUMBER:
        raise Broken("a number is out of range")
    return told


def _mapping(told: object) -> dict[str, Any]:
    if not isinstance(told, dict):
        raise Broken("it is no object")
    return told


def _text(told: object, longest: int) -> str:
    """Return text that can be shown on one line or several, "" if it is none."""
    if not isinstance(told, str):
        return ""
    shown = told[:longest].encode(errors="replace").decode()
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in shown)


def _names(told: object) -> tuple[str, ...]:
    if not isinstance(told, list):
        return ()
    return tuple(_text(each, _MOST_NAME) for each in told[:_MOST_NAMES])
