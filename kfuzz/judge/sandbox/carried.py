"""Shared memory of a fixed size, and what is told of the tensors in it."""

import fcntl
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from kfuzz.execution.processes.closing import Closing

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
        return {
            "dtype": self.dtype,
            "shape": list(self.shape),
            "strides": list(self.strides),
            "offset": self.offset,
        }


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
    flat = plain.reshape(-1)
    return flat.view(torch.uint8) if flat.numel() else whole_of_nothing(plain)


def whole_of_nothing(tensor: Tensor) -> Tensor:
    """Return no bytes, on a tensor's device."""
    return torch.empty(0, dtype=torch.uint8, device=tensor.device)


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
