"""What campaign and child hand to each other: shared memory, and words about it.

Each form is written and read here. Nothing that is read trusts the other side: every
field is checked for its type and range before it is used, and what fails is `Broken`.
"""

import fcntl
import math
import os
import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from mmap import mmap
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from kfuzz.core.codec import decode
from kfuzz.core.errors import HarnessError
from kfuzz.core.recipe import span_of
from kfuzz.execution.memory.placement import region_of
from kfuzz.execution.processes.wire import Closing
from kfuzz.numerics.run import Raised

PAGE: Final = 4096

# What one call of the system moves at most, rounded down to pages.
_PIECE: Final = 0x7FFF_F000
# As it is before a file replaces it.
_detach: Final = Tensor.detach


@dataclass(frozen=True)
class Entry:
    """What to import and build from a file that nobody vouches for.

    Attributes:
        path: the file.
        build: name of what the file defines: a class, which is built, or a function.
        args: positional arguments of the constructor: numbers, texts, None, tensors,
            lists, tuples and mappings of these, and torch's dtypes.
        seed: of torch's generators while the file is imported and the class built.
        weights: tensors to load into the parameters and buffers of these names.
        fixed: positional arguments of every call that are no tensors, by position;
            the tensors take the places left in their order.
        evaluation: whether a module is in evaluation mode during calls, in place of as
            it was built.
        constants_drawn: whether initialisers of constants draw numbers while the class
            is built; see `kfuzz.execution.values.fills`.
    """

    path: Path
    build: str
    args: tuple[Any, ...] = ()
    seed: int = 0
    weights: Mapping[str, Tensor] = field(default_factory=dict)
    fixed: Mapping[int, Any] = field(default_factory=dict)
    evaluation: bool = False
    constants_drawn: bool = False


class Carrier(Closing):
    """Anonymous shared memory whose size nobody can change any more.

    It is written and read by calls, not mapped: what the other side does to it can then
    cost an error, but neither a fault nor memory.

    Attributes:
        descriptor: to hand to the other side.
        nbytes: its size.
    """

    def __init__(self, name: str, nbytes: int) -> None:
        self.nbytes = max(nbytes, 1)
        flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
        self.descriptor = os.memfd_create(name, flags)
        os.ftruncate(self.descriptor, self.nbytes)
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, seals)

    def write(self, offset: int, data: Tensor) -> None:
        """Copy bytes in.

        Args:
            offset: where they go.
            data: contiguous uint8 on any device.

        Raises:
            OSError: there is no memory for them.
        """
        view = memoryview(data.cpu().numpy())  # type: ignore[arg-type]
        while len(view):
            done = os.pwrite(self.descriptor, view[:_PIECE], offset)
            view, offset = view[done:], offset + done

    def read(self, offset: int, nbytes: int) -> Tensor:
        """Return a copy of bytes, as uint8 on the CPU.

        Raises:
            OSError: they cannot be read.
            ValueError: they lie outside.
        """
        if offset < 0 or nbytes < 0 or offset + nbytes > self.nbytes:
            raise ValueError(f"bytes {offset} to {offset + nbytes} of {self.nbytes}")
        data = np.empty(nbytes, dtype=np.uint8)
        view = memoryview(data)  # type: ignore[arg-type]
        while len(view):
            done = os.preadv(self.descriptor, [view[:_PIECE]], offset)
            if done <= 0:
                raise OSError("shared memory ended early")
            view, offset = view[done:], offset + done
        return torch.from_numpy(data)

    def close(self) -> None:
        """Let go of the memory."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


@dataclass(frozen=True)
class Geometry:
    """Where the elements of a tensor lie in a storage.

    Attributes:
        dtype: torch's name of the element type.
        shape: sizes.
        strides: element strides, none negative.
        offset: elements before the first one.
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @classmethod
    def of(cls, tensor: Tensor) -> "Geometry":
        """Return the geometry of a strided tensor."""
        return cls(
            str(tensor.dtype).removeprefix("torch."),
            tuple(tensor.shape),
            tuple(tensor.stride()),
            int(tensor.storage_offset()),
        )

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def torch_dtype(self) -> torch.dtype:
        """The element type."""
        dtype: torch.dtype = getattr(torch, self.dtype)
        return dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.numel * self.torch_dtype.itemsize

    @property
    def reach(self) -> int:
        """Bytes of a storage up to the end of the last element."""
        if not self.numel:
            return 0
        span = span_of(self.shape, self.strides)
        return (self.offset + span) * self.torch_dtype.itemsize

    def over(self, storage: torch.UntypedStorage, device: torch.device) -> Tensor:
        """Return the tensor of this geometry in a storage."""
        made = torch.empty(0, dtype=self.torch_dtype, device=device)
        made.set_(storage, self.offset, self.shape, self.strides)
        # .data starts a version counter of its own.
        return made.data

    def problem(self) -> str:
        """Return why no memory can hold such a tensor, "" if some can."""
        if not self.dtype.isidentifier() or not isinstance(
            getattr(torch, self.dtype, None), torch.dtype
        ):
            return "it has no dtype of torch's"
        if len(self.shape) != len(self.strides) or len(self.shape) > MOST_DIMS:
            return "its strides do not fit its sizes"
        if min((*self.shape, *self.strides, self.offset)) < 0:
            return "a number is negative"
        if max((*self.shape, *self.strides, self.offset)) > _MOST_NUMBER:
            return "a number is out of range"
        every = math.prod(max(n, 1) for n in self.shape)
        if max(self.nbytes, self.reach, every) >= 1 << 62:
            return "a tensor is larger than any memory"
        return ""


def page_up(nbytes: int) -> int:
    """Return a size rounded up to pages."""
    return -(-nbytes // PAGE) * PAGE


def whole(tensor: Tensor) -> Tensor:
    """Return a tensor's storage as bytes."""
    storage = tensor.untyped_storage()
    made = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return made.set_(storage, 0, (storage.nbytes(),), (1,))


def raw(tensor: Tensor) -> Tensor:
    """Return a tensor's elements in C order as bytes, copied where they must be."""
    plain = _detach(tensor).resolve_conj().resolve_neg().contiguous()
    # Nothing has no bytes to look at.
    flat = plain.reshape(-1)
    return (
        flat.view(torch.uint8) if flat.numel() else flat.new_empty(0, dtype=torch.uint8)
    )


@contextmanager
def packed(value: Any) -> Iterator[int]:
    """Give a descriptor of shared memory with plain data and tensors.

    Raises:
        OSError: there is no memory for them.
        Exception: a value cannot be passed to another process.
    """
    with open(os.memfd_create("tensors", os.MFD_CLOEXEC), "w+b") as memory:
        torch.save(_plain(value), memory)
        memory.flush()
        yield memory.fileno()


def unpacked(descriptor: int) -> Any:
    """Return what `packed` was given, plain data alone, its tensors on the CPU."""
    with mmap(descriptor, 0) as memory:
        file: Any = memory  # it reads and seeks as one
        return torch.load(file, map_location="cpu", weights_only=True)


def _plain(value: Any) -> Any:
    """Return data of plain types alone."""
    if isinstance(value, Tensor):
        x = value.detach().cpu()
        if x.layout is not torch.strided:
            return x
        return x if x.nbytes == x.untyped_storage().nbytes() else x.clone()
    if isinstance(value, Mapping):
        return {_plain(k): _plain(v) for k, v in value.items()}
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return list(map(_plain, value))
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    if value is None or isinstance(value, torch.dtype | torch.device | complex):
        return value
    if isinstance(value, np.generic):
        return _plain(value.item())
    what = f"{type(value).__name__} among the reference's arguments"
    raise HarnessError(f"{what} cannot be passed to another process")


class ArgumentRooms:
    """The memory that the arguments of a call lie in, each part of it once.

    Args:
        tensors: the arguments.
        most: bytes that one of them may span.

    Raises:
        HarnessError: one spans more.

    Attributes:
        told: per part its address, its size and where it is carried.
        tensors: per argument its geometry, its part, and where its storage begins and
            ends there.
        nbytes: what the parts take in shared memory.
    """

    def __init__(self, tensors: Sequence[Tensor], most: int) -> None:
        self.told: list[list[int]] = []
        self.tensors: list[list[Any]] = []
        self.nbytes = 0
        self._parts: list[Tensor] = []
        known: dict[tuple[int, int], int] = {}
        for tensor in tensors:
            region = region_of(tensor)
            if region is None:
                part = whole(tensor)
                base, stop = 0, part.numel()
            else:
                part, base, stop = region.memory, region.base, region.stop
            if part.numel() > most:
                raise HarnessError(
                    f"an argument's memory spans {part.numel()} bytes, more than the "
                    f"{most} that are carried to a child"
                )
            key = part.data_ptr(), part.numel()
            if key not in known:
                known[key] = len(self._parts)
                self._parts.append(part)
                self.told.append([*key, self.nbytes])
                self.nbytes += page_up(part.numel())
            self.tensors.append([asdict(Geometry.of(tensor)), known[key], base, stop])

    def write(self, carrier: Carrier) -> None:
        """Copy all parts to shared memory."""
        for part, (_, _, offset) in zip(self._parts, self.told, strict=True):
            carrier.write(offset, part)

    def read(self, carrier: Carrier) -> None:
        """Copy all parts back."""
        for part, (_, nbytes, offset) in zip(self._parts, self.told, strict=True):
            part.copy_(carrier.read(offset, nbytes))


# What is told, checked --------------------------------------------------------------

MOST_DIMS: Final = 64
"""Dimensions of a tensor of torch's."""

MOST_NAME: Final = 200
MOST_TEXT: Final = 32_000
MOST_NAMES: Final = 64
_MOST_NUMBER: Final = 1 << 48
_MOST_MESSAGE: Final = 300


class Broken(Exception):
    """What the other side sent is no answer."""


def as_text(told: str, longest: int) -> str:
    """Return text that can be shown on one line or several."""
    shown = told[:longest].encode(errors="replace").decode()
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in shown)


def read_exception(told: object) -> Raised:
    """Return an exception as the child told it.

    Raises:
        DecodeError: it is no exception.
    """
    raised = decode(Raised, told)
    message = as_text(raised.message, MOST_TEXT).strip().partition("\n")[0]
    return replace(
        raised,
        type=as_text(raised.type, MOST_NAME) or "Exception",
        message=message[:_MOST_MESSAGE],
        traceback=as_text(raised.traceback, MOST_TEXT),
        fault=as_text(raised.fault, MOST_NAME),
        build="",
        gpu=as_text(raised.gpu, MOST_TEXT),
    )


# What a call returned, as the child tells it and as the campaign reads it.
#
# A claim about metadata can be a lie; values are bytes.

MOST_ITEMS: Final = 64
"""Results of one call that are told."""

# Levels of nested results.
_DEPTH: Final = 8
_CALLS: Final = 2
_HELD_BYTES: Final = 1 << 30

# A storage larger than this many times its elements is not built: the elements then
# lie densely.
_MOST_SLACK: Final = 4
_FREE_SLACK: Final = 1 << 20


@dataclass(frozen=True)
class Item:
    """A result as the child describes it.

    Attributes:
        type: the name of its type; what follows is there for tensors alone.
        layout: torch's name of it.
        geometry: where its elements lie, if it is strided.
        device: torch's type of it.
        argument: the number of the argument whose memory it lies in, if it does.
        storage: stands for its memory among the results of this call and the last.
        carried: whether, and as how many, its elements are handed over.
        at: where.
    """

    type: str
    layout: str = ""
    geometry: Geometry | None = None
    device: str = ""
    argument: int | None = None
    storage: int = 0
    carried: int | None = None
    at: int = 0


@dataclass(frozen=True)
class Told:
    """What a call returned, as the child describes it; see `Returned`."""

    many: bool
    count: int
    type: str
    nesting: str
    items: tuple[Item, ...]
    late: bool
    words: Mapping[str, tuple[str, ...]]


# The child's side ------------------------------------------------------------------


class Held:
    """The results of the last calls, kept alive.

    While the campaign holds results of a call, their memory must not be given to the
    next; and a kernel that returns the very memory of an earlier result is told from
    one that was given memory which had become free.
    """

    def __init__(self) -> None:
        self._numbers = count()
        # The call under way, and those before.
        self._calls: deque[dict[int, Tensor]] = deque()

    def begin(self) -> None:
        """Keep the results of another call."""
        self._calls.append({})

    def keep(self, tensor: Tensor) -> int:
        """Keep a result; return the number of its storage, among all that are kept."""
        own = tensor.untyped_storage().data_ptr()
        for call in self._calls if own else ():
            for number, other in call.items():
                if other.untyped_storage().data_ptr() == own:
                    self._calls[-1][number] = tensor
                    return number
        number = next(self._numbers)
        self._calls[-1][number] = tensor
        return number

    def trim(self) -> None:
        """Keep no more calls than are needed, nor too many bytes."""
        sizes = [
            sum(tensor.untyped_storage().nbytes() for tensor in call.values())
            for call in self._calls
        ]
        while sizes and (len(sizes) > _CALLS or sum(sizes) > _HELD_BYTES):
            del sizes[0]
            self._calls.popleft()

    def clear(self) -> None:
        """Keep nothing."""
        self._calls.clear()


def told_results(
    returned: object, arguments: Sequence[Tensor], held: Held, capacity: int
) -> tuple[dict[str, Any], list[Tensor]]:
    """Describe what a call returned.

    Args:
        returned: what it returned.
        arguments: the tensors that it was given.
        held: earlier results; these are added.
        capacity: bytes that can be handed over.

    Returns:
        The description, and the tensors whose elements are to be handed over: result
        `carried` belongs at the byte `at`.
    """
    many = isinstance(returned, tuple | list | dict)
    found = [] if returned is None else leaves(returned)
    items: list[dict[str, Any]] = []
    carried: list[Tensor] = []
    held.begin()
    at = 0
    for each in found[:MOST_ITEMS]:
        item: dict[str, Any] = {"type": type(each).__name__[:100]}
        items.append(item)
        if type(each) not in (Tensor, torch.nn.Parameter):
            continue
        assert isinstance(each, Tensor)
        # Without methods that a file hung on the object, to compute as it is read.
        tensor = _detach(each)
        item["layout"] = str(tensor.layout)
        if tensor.layout is not torch.strided or tensor.is_quantized:
            item["layout"] = "quantized" if tensor.is_quantized else item["layout"]
            continue
        item["geometry"] = asdict(Geometry.of(tensor))
        item["device"] = tensor.device.type
        if tensor.device.type == "meta":
            continue
        item["argument"] = _argument(tensor, arguments)
        if item["argument"] is not None:
            continue
        item["storage"] = held.keep(tensor)
        nbytes = tensor.numel() * tensor.element_size()
        if at + nbytes <= capacity:
            item.update(carried=len(carried), at=at)
            carried.append(tensor)
            at += page_up(nbytes)
    held.trim()
    told: dict[str, Any] = {
        "many": many, "count": len(found), "type": type(returned).__name__[:100],
        "nesting": nesting(returned), "items": items,
    }  # fmt: skip
    return told, carried


def leaves(returned: object, depth: int = 0) -> list[object]:
    """Return what nested tuples, lists and mappings hold, in order; keys sorted.

    At most one more than are told of: that many are too many.
    """
    if depth > _DEPTH or not isinstance(returned, tuple | list | dict):
        return [returned]
    each: Sequence[object] = (
        [returned[key] for key in sorted(returned, key=str)]
        if isinstance(returned, dict)
        else returned
    )
    found: list[object] = []
    for part in each:
        found += leaves(part, depth + 1)
        if len(found) > MOST_ITEMS:
            break
    return found[: MOST_ITEMS + 1]


def nesting(returned: object) -> str:
    """Return how results are nested: "(*, {'k': *})"; lists are tuples.

    "" for a tensor, or several in a row.
    """
    parts = returned if isinstance(returned, tuple | list) else ()
    nested = isinstance(returned, dict) or any(
        isinstance(part, tuple | list | dict) for part in parts
    )
    return _form(returned) if nested else ""


def _form(returned: object, depth: int = 0) -> str:
    """Return the form of results; of more than are told of, how many there are."""
    if depth > _DEPTH or not isinstance(returned, tuple | list | dict):
        return "*"
    if len(returned) > MOST_ITEMS:
        return f"{len(returned)}"
    if not isinstance(returned, dict):
        return f"({', '.join(_form(part, depth + 1) for part in returned)})"
    parts = (
        f"{str(key)[:100]!r}: {_form(returned[key], depth + 1)}"
        for key in sorted(returned, key=str)
    )
    return f"{{{', '.join(parts)}}}"


def _argument(result: Tensor, arguments: Sequence[Tensor]) -> int | None:
    """Return the number of the argument whose storage a result lies in."""
    own = result.untyped_storage().data_ptr()
    for number, argument in enumerate(arguments):
        if result is argument:
            return number
    for number, argument in enumerate(arguments):
        storage = argument.untyped_storage()
        if storage.nbytes() and own and storage.data_ptr() == own:
            return number
    return None


# The campaign's side ----------------------------------------------------------------


WORDS: Final = ("operators", "kernels", "strays", "left")
"""By a child's word: torch's own operators that computed, Triton's kernels in the order
of the first launch, writes beside its own allocations, what of torch's state is left
changed."""


@dataclass(frozen=True)
class Returned:
    """What a call brought, in the campaign's memory.

    Attributes:
        value: what the kernel returned: tensors of kfuzz's own, in a tuple where it
            returned several; in place of anything else an object that has the name of
            its type and nothing more.
        nesting: how they were nested, as `nesting` says it.
        type: the name of its type.
        late: whether results or arguments still changed after the call had returned.
        words: what it says that it did, as of `WORDS`.
    """

    value: object
    nesting: str
    type: str
    late: bool
    words: Mapping[str, tuple[str, ...]]


Given = weakref.WeakValueDictionary[tuple[int, int], Tensor]
"""Results that were handed out and that somebody still holds, by storage and place: a
child that returns the memory of an earlier one has changed that one too."""


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
        Broken, DecodeError: it is malformed.
        OSError: the shared memory cannot be read.
    """
    told = decode(Told, answer)
    if len(told.items) != min(told.count, MOST_ITEMS):
        raise Broken("it returned more or less than it reports")
    if told.count > 1 and not told.many:
        raise Broken("it does not say what it returned")
    made = _Made(memory, arguments, device, given)
    items = [made.item(item) for item in told.items]
    value: object = items[0] if items else None
    if told.many:
        # More than anything is expected to return: that many is all that matters.
        value = (*items, *[None] * min(told.count - len(items), 1))
    return Returned(
        value=value,
        nesting=as_text(told.nesting, MOST_TEXT),
        type=as_text(told.type, MOST_NAME),
        late=told.late,
        words={
            name: tuple(as_text(x, MOST_NAME) for x in told.words[name][:MOST_NAMES])
            for name in WORDS
        },
    )


class _Made:
    """Builds the results of one call."""

    def __init__(
        self,
        memory: Carrier,
        arguments: Sequence[Tensor],
        device: torch.device,
        given: Given,
    ) -> None:
        self._memory = memory
        self._arguments = arguments
        self._device = device
        self._given = given
        self._storages: dict[int, torch.UntypedStorage] = {}

    def item(self, told: Item) -> object:
        """Return one result."""
        if told.type not in ("Tensor", "Parameter"):
            return stand_in(as_text(told.type, MOST_NAME))
        geometry = told.geometry
        if told.layout != "torch.strided" or geometry is None:
            layout = as_text(told.layout, MOST_NAME)
            return stand_in(f"Tensor with layout {layout}")
        if told.argument is not None:
            return self._of_argument(told.argument, geometry)
        if told.device != self._device.type:
            meta = "cpu" if told.device == "cpu" else "meta"
            return _sized(geometry, torch.device(meta))
        if told.carried is None:  # larger than anything that was declared
            return _sized(geometry, self._device)
        data = self._memory.read(told.at, geometry.nbytes)
        made = self._over(geometry, told.storage)
        elements = data.view(geometry.torch_dtype).reshape(geometry.shape)
        _fill(made, elements)
        self._given[told.storage, len(self._given)] = made
        return made

    def _of_argument(self, number: int, geometry: Geometry) -> Tensor:
        """Return the view of an argument's memory that a result is."""
        if not 0 <= number < len(self._arguments):
            raise Broken(f"a result is reported to be argument {number}")
        argument = self._arguments[number]
        if Geometry.of(argument) == geometry:
            return argument
        storage = argument.untyped_storage()
        if geometry.reach > storage.nbytes():
            raise Broken("a result lies outside the argument that it is reported to be")
        return geometry.over(storage, argument.device)

    def _over(self, geometry: Geometry, number: int) -> Tensor:
        """Return uninitialised memory of a result: its own, or another result's."""
        room = _MOST_SLACK * geometry.nbytes + _FREE_SLACK
        known = self._storages.get(number)
        if known is None:
            held = (x for key, x in self._given.items() if key[0] == number)
            known = next((x.untyped_storage() for x in held), None)
        short = known is None or known.nbytes() < geometry.reach
        if (
            not geometry.numel
            or geometry.reach > room
            or (short and number in self._storages)
        ):
            # It lies by itself, densely.
            return torch.empty(
                geometry.shape, dtype=geometry.torch_dtype, device=self._device
            )
        if known is None or short:
            made = torch.empty(room, dtype=torch.uint8, device=self._device)
            known = made.untyped_storage()
        self._storages[number] = known
        return geometry.over(known, self._device)


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


def _sized(geometry: Geometry, device: torch.device) -> Tensor:
    """Return a tensor of a size that takes no memory; its values mean nothing."""
    one = torch.zeros((), dtype=geometry.torch_dtype, device=device)
    return one.expand(geometry.shape)
