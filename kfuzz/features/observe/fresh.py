"""Memory of a program that nothing has written, and what a launch may reach of it."""

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, Final

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from kfuzz.execution.calls.patches import Patches
from kfuzz.execution.interpreter.memory import Reach, Region, Regions, tensors_in
from kfuzz.execution.memory.allocations import places
from kfuzz.execution.memory.changes import WriteMap
from kfuzz.execution.memory.poison import Poison, fill_poison, poison_bytes

_weak: Final[Any] = StorageWeakRef  # untyped

LEAST_BYTES: Final = 2
"""Of an element: the poison of a byte is too common as data to tell it from that."""


class FreshMemory:
    """What `torch.empty` and its kin gave, as long as it lives.

    What it holds at first is poison. Torch's own operators write to it unseen: what
    holds anything else was written.
    """

    def __init__(self) -> None:
        self._maps: dict[int, tuple[Any, WriteMap]] = {}
        self._most = 1 << 10

    def follow(self, patches: Patches) -> None:
        """Poison all that is allocated from now on."""
        for place in places():
            patches.set(place.owner, place.name, self._poisoning(place.function))

    def _poisoning(self, true: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(true)
        def allocate(*args: Any, **kwargs: Any) -> Any:
            made = true(*args, **kwargs)
            if (
                type(made) is Tensor
                and made.layout is torch.strided
                and not made.is_meta
                and made.dtype is not torch.bool
                and made.dtype.itemsize >= LEAST_BYTES
                and made.untyped_storage().nbytes()
            ):
                self._poison(made)
            return made

        return allocate

    def _poison(self, made: Tensor) -> None:
        storage = made.untyped_storage()
        size = storage.nbytes() // made.dtype.itemsize * made.dtype.itemsize
        with torch.no_grad(), torch._C.DisableTorchFunction():
            memory = torch.empty(0, dtype=torch.uint8).set_(storage, 0, (size,), (1,))
            fill_poison(memory, made.dtype, Poison.NAN)
        pattern = poison_bytes(made.dtype, Poison.NAN)
        writes = WriteMap(size, made.dtype.itemsize, pattern)
        self._maps[storage.data_ptr()] = _weak(storage), writes
        if len(self._maps) > self._most:
            live = {at: m for at, m in self._maps.items() if not m[0].expired()}
            self._maps, self._most = live, max(2 * len(live), self._most)

    def writes(self, tensor: Tensor) -> WriteMap | None:
        """Return what is written of a tensor's memory; None where all is."""
        storage = tensor.untyped_storage()
        held = self._maps.get(storage.data_ptr())
        if held is None or held[0].expired() or held[0] != _weak(storage):
            return None
        return held[1]

    def reach(self, given: Mapping[str, Any]) -> "LaunchReach":
        """Return what a launch may touch, by the kernel's names of its arguments."""
        names: dict[int, list[str]] = {}
        for name, value in given.items():
            for tensor in tensors_in(value):
                names.setdefault(tensor.untyped_storage().data_ptr(), []).append(name)
        return LaunchReach(self, names)


class LaunchReach(Reach):
    """The storages whose tensors one launch is given."""

    def __init__(self, fresh: FreshMemory, names: Mapping[int, list[str]]) -> None:
        super().__init__({}, {}, None)
        self._fresh = fresh
        self._names = names

    def regions(self, launched: Iterable[Tensor]) -> Regions:
        """Return what one launch may touch."""
        made: dict[int, Region] = {}
        for tensor in launched:
            storage = tensor.untyped_storage()
            low, size = storage.data_ptr(), storage.nbytes()
            if not size or low in made:
                continue
            dtype = str(tensor.dtype).removeprefix("torch.")
            names = self._names.get(low, [])
            memory = f"{', '.join(names) or 'its own'} {dtype}{list(tensor.shape)}"
            writes = self._fresh.writes(tensor)
            made[low] = Region(
                low,
                low + size,
                tensor.itemsize,
                names[0] if names else "",
                memory,
                None,
                writes,
            )
        return Regions(made.values())
