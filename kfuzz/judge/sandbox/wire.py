"""What campaign and child hand to each other: shared memory, and words about it.

Each form is written and read here. Nothing that is read trusts the other side: every
field is checked for its type and range before it is used, and what fails is `Broken`.
"""

import fcntl
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from kfuzz.core.errors import HarnessError
from kfuzz.execution.memory.placement import region_of
from kfuzz.execution.processes.closing import Closing
from kfuzz.execution.processes.wire import Channel, Message
from kfuzz.numerics.run import Raised

PAGE: Final = 4096

# What one call of the system moves at most, rounded down to pages.
_PIECE: Final = 0x7FFF_F000


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
        steps = zip(self.shape, self.strides, strict=True)
        last = self.offset + sum((n - 1) * step for n, step in steps)
        return (last + 1) * self.torch_dtype.itemsize

    def over(self, storage: torch.UntypedStorage, device: torch.device) -> Tensor:
        """Return the tensor of this geometry in a storage."""
        made = torch.empty(0, dtype=self.torch_dtype, device=device)
        made.set_(storage, self.offset, self.shape, self.strides)
        # .data starts a version counter of its own.
        return made.data

    def told(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)

    @classmethod
    def read(cls, told: object) -> "Geometry":
        """Return the geometry that was told.

        Raises:
            Broken: it is none, or of more than any memory holds.
        """
        fields = as_mapping(told)
        dtype = as_text(fields.get("dtype"), MOST_NAME)
        if not dtype.isidentifier() or not isinstance(
            getattr(torch, dtype, None), torch.dtype
        ):
            raise Broken(f"{dtype!r} is no dtype")
        shape, strides = (
            as_counts(fields.get("shape")),
            as_counts(fields.get("strides")),
        )
        if len(shape) != len(strides) or len(shape) > MOST_DIMS:
            raise Broken(f"strides {strides} do not fit sizes {shape}")
        offset = as_count(fields.get("offset"))
        made = cls(dtype, shape, strides, offset)
        every = math.prod(max(n, 1) for n in shape)
        if max(made.nbytes, made.reach, every) >= 1 << 62:
            raise Broken("a tensor is larger than any memory")
        return made


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
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    # Nothing has no bytes to look at.
    flat = plain.reshape(-1)
    return (
        flat.view(torch.uint8) if flat.numel() else flat.new_empty(0, dtype=torch.uint8)
    )


@contextmanager
def received(channel: Channel) -> Iterator[tuple[Message, list[int]]]:
    """Wait for a message; give it with its descriptors, which are closed afterwards."""
    message = channel.receive()
    count = int(message.get("descriptors", 0))
    given = channel.receive_descriptors(count, None) if count else []
    try:
        yield message, given
    finally:
        for descriptor in given:
            os.close(descriptor)


def plain_to_wire(value: Any, tensors: list[Tensor] | None = None) -> Any:
    """Return plain data as JSON can hold it.

    Args:
        value: the data.
        tensors: takes the tensors among them, which are named by their place; None
            where there may be none.

    Raises:
        TypeError: a value is none of None, bool, int, float, str, dtype, and lists,
            tuples and mappings of these.
    """
    if isinstance(value, Tensor) and tensors is not None:
        tensors.append(value.detach())
        return {"given": len(tensors) - 1}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, tuple | torch.Size):
        return {"tuple": [plain_to_wire(v, tensors) for v in value]}
    if isinstance(value, Sequence):
        return [plain_to_wire(v, tensors) for v in value]
    if isinstance(value, dict):
        pairs = [
            [plain_to_wire(k), plain_to_wire(v, tensors)] for k, v in value.items()
        ]
        return {"pairs": pairs}
    raise TypeError(f"{type(value).__name__} cannot be passed to a child")


def plain_from_wire(value: Any, tensors: Sequence[Tensor] = ()) -> Any:
    """Return what `plain_to_wire` was given, with the tensors that it took."""
    if isinstance(value, list):
        return [plain_from_wire(v, tensors) for v in value]
    if not isinstance(value, dict):
        return value
    if "dtype" in value:
        return getattr(torch, value["dtype"])
    if "given" in value:
        return tensors[value["given"]]
    if "tuple" in value:
        return tuple(plain_from_wire(v, tensors) for v in value["tuple"])
    return {plain_from_wire(k): plain_from_wire(v, tensors) for k, v in value["pairs"]}


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
            self.tensors.append([Geometry.of(tensor).told(), known[key], base, stop])

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


def as_mapping(told: object) -> dict[str, Any]:
    """Return what has to be an object.

    Raises:
        Broken: it is none.
    """
    if not isinstance(told, dict):
        raise Broken("it is no object")
    return told


def as_count(told: object) -> int:
    """Return what has to be a number of things, bytes or elements.

    Raises:
        Broken: it is none.
    """
    if isinstance(told, bool) or not isinstance(told, int):
        raise Broken(f"{told!r:.40} is no number")
    if not 0 <= told <= _MOST_NUMBER:
        raise Broken("a number is out of range")
    return told


def as_counts(told: object) -> tuple[int, ...]:
    """Return what has to be a list of such numbers.

    Raises:
        Broken: it is none.
    """
    if not isinstance(told, list | tuple):
        raise Broken("sizes are no list")
    return tuple(map(as_count, told))


def as_text(told: object, longest: int) -> str:
    """Return text that can be shown on one line or several, "" if it is none."""
    if not isinstance(told, str):
        return ""
    shown = told[:longest].encode(errors="replace").decode()
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in shown)


def as_names(told: object) -> tuple[str, ...]:
    """Return a list of names, "" for what is none."""
    if not isinstance(told, list):
        return ()
    return tuple(as_text(each, MOST_NAME) for each in told[:MOST_NAMES])


def read_exception(told: object) -> Raised:
    """Return an exception as the child told it.

    Raises:
        Broken: it is no exception.
    """
    fields = as_mapping(told)
    message = as_text(fields.get("message"), MOST_TEXT).strip().partition("\n")[0]
    return Raised(
        type=as_text(fields.get("type"), MOST_NAME) or "Exception",
        message=message[:_MOST_MESSAGE],
        traceback=as_text(fields.get("traceback"), MOST_TEXT),
        backend=fields.get("backend") is True,
        memory=fields.get("memory") is True,
        fault=as_text(fields.get("fault"), MOST_NAME),
        gpu=as_text(fields.get("gpu"), MOST_TEXT),
    )
