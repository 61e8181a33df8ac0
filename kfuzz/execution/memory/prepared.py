"""A kernel's own allocations in a batch: noted in one call, prepared for all.

A dispatch mode that guards each allocation costs a call more than most kernels. Where
everything that it would guard comes through torch's Python functions, these hand out
memory that was poisoned and put between guard zones for all items at once: what the
first item asks for is made for the others too.
"""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kfuzz.execution.calls.patches import Patches
from kfuzz.execution.memory.allocations import (
    TOTAL_BYTES,
    GuardedAllocations,
    is_guarded,
)
from kfuzz.execution.memory.arena import Arena
from kfuzz.execution.memory.constructors import Function, nothing, others, places
from kfuzz.execution.memory.placement import ROW_BYTES
from kfuzz.execution.memory.poison import ALTERNATING, Poison
from kfuzz.execution.memory.rows import PoisonedSlot, Rows
from kfuzz.execution.memory.zones import (
    alignment_on,
    guard_bytes,
    next_slot,
    slot_room,
    up,
)

_Plain = bool | int | torch.dtype | torch.device | torch.layout | torch.memory_format


@dataclass(frozen=True)
class _Noted:
    """One call that allocates.

    Attributes:
        name: the function.
        like: the tensor that it was given first; None for a function of sizes.
        args: the other positional arguments.
        kwargs: the keyword arguments.
        tensors: what it gives each item; None where that is nothing to guard.
    """

    name: str
    like: tuple[Any, ...] | None
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    tensors: tuple[Tensor, ...] | None


class Prepared:
    """A context in which calls that allocate give prepared memory.

    What the first item's call asks for, while `recording`, the others are given too.
    It is poisoned as the item's number says, aligned as torch's allocators do, and
    lies between guard zones; shape and strides are those that torch gives. One
    allocation of all items is one storage, so that its tensors have storage offsets,
    and one version counter, but for those of items that are isolated.

    Attributes:
        first: number of the first item.
        row: of the item whose call is under way, counted from the first.
        at: calls that have allocated in it.
        count: how many there are to be.
        columns: what has been prepared.
        sound: whether all that was to be guarded in the first item's call was.
        error: what prevented memory from being prepared.
    """

    def __init__(
        self, arena: Arena, first: int, items: int, isolated: Collection[int] = ()
    ) -> None:
        """Prepare nothing yet.

        Args:
            arena: where memory comes from.
            first: number of the first item.
            items: how many.
            isolated: numbers of items whose memory is a storage of its own each; the
                first is one in any case, or a function that enlarges what it is given
                would find room there.
        """
        self.first = first
        self.row = self.at = self.count = 0
        self.columns: list[Rows] = []
        self._guarded: list[PoisonedSlot] = []
        self._poisons = ALTERNATING[first % 2 :] + ALTERNATING[: first % 2]
        self.sound = True
        self.error: Exception | None = None
        self._arena = arena
        self._items = items
        self._isolated = {0, *(n - first for n in isolated if n >= first)}
        self._usual: set[str] = set()
        self._sequence: list[_Noted] = []
        self._bytes = 0
        self._watch: _Watch | None = None
        self._patches = Patches()
        arena.shed(2 * TOTAL_BYTES)  # sizes are rounded up to powers of two

    def __enter__(self) -> "Prepared":
        try:
            for at in places():
                made = self._replacement(at.of, at.function, at.of_tensor)
                self._patches.set(at.owner, at.name, made)
            for owner, name, true in others():
                self._patches.set(owner, name, self._noting(name, true))
        except BaseException:
            self._patches.undo()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._patches.undo()

    def recording(self) -> "_Watch":
        """Return a context for the call of the first item.

        All of it can be prepared for the others if it is `sound` afterwards. It is not
        where memory was to be guarded that came another way: from C++, from a
        constructor, by growing, from another thread.
        """
        self._watch = _Watch(self._arena.device, self._poisons[0])
        return self._watch

    def recorded(self) -> None:
        """End the recording."""
        assert self._watch is not None
        self.sound = self.sound and not self._watch.saw
        self._watch = None
        self.count = len(self._sequence)

    def touched(self) -> Tensor | None:
        """Return per item whether a byte around its memory has changed.

        A bool tensor [items] on the device, not waited for; None if nothing was
        prepared.
        """
        if not self._guarded:
            return None
        found = [guarded.touched() for guarded in self._guarded]
        return torch.stack(found).any(0)[: self._items]

    def _replacement(self, name: str, true: Function, of_tensor: bool) -> Function:
        # All in one function each: every call of the kernel goes through it.
        sequence = self._sequence

        def of_sizes(*args: Any, **kwargs: Any) -> Any:
            at = self.at
            if at < self.count:
                made = sequence[at]
                if made.name is name and args == made.args and kwargs == made.kwargs:
                    self.at = at + 1
                    given = made.tensors
                    return true(*args, **kwargs) if given is None else given[self.row]
            return self._other(name, true, of_tensor, args, kwargs)

        def like_tensor(*args: Any, **kwargs: Any) -> Any:
            at = self.at
            if at < self.count and args:
                made = sequence[at]
                if (
                    made.name is name
                    and made.like == _form(args[0])
                    and args[1:] == made.args
                    and kwargs == made.kwargs
                ):
                    self.at = at + 1
                    given = made.tensors
                    return true(*args, **kwargs) if given is None else given[self.row]
            return self._other(name, true, of_tensor, args, kwargs)

        return like_tensor if of_tensor else of_sizes

    def _noting(self, name: str, true: Function) -> Function:
        """Return a function by which memory may come another way than recorded."""
        act = nothing if true is object.__init__ else true

        def noting(*args: Any, **kwargs: Any) -> Any:
            if self._watch is not None:  # which sees whether it does
                self._usual.add(name)
            elif name not in self._usual:
                self.at = self.count + 1
            return act(*args, **kwargs)

        return noting

    def _other(
        self,
        name: str,
        true: Function,
        of_tensor: bool,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Make a call that is not as recorded, or record it."""
        watch = self._watch
        if watch is None:
            self.at = self.count + 1  # from here on nothing is as recorded
            return true(*args, **kwargs)
        if threading.get_ident() != watch.thread:
            self.sound = False
        if watch.inside or not self.sound:
            return true(*args, **kwargs)
        with _Inside(watch):
            made = true(*args, **kwargs)
            try:
                given = self._noted(name, of_tensor, args, kwargs, made)
            except RuntimeError as error:  # kfuzz's own: no matter of the kernel's
                self.sound, self.error, given = False, error, made
        if not self.sound:
            watch.guard(made)
        return given

    def _noted(
        self,
        name: str,
        of_tensor: bool,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        made: Any,
    ) -> Any:
        """Prepare for all items what a call gave the first one.

        Returns:
            What takes the place of `made`.
        """
        like = None
        self.sound = False
        if of_tensor:
            like, args = _form(args[0]) if args else None, args[1:]
            if like is None:
                return made
        if type(made) is not Tensor or made.requires_grad:
            return made
        if not _plain((args, tuple(kwargs.values()))):
            return made
        tensors = None
        if is_guarded(made, self._arena.device) and not kwargs.get("pin_memory"):
            tensors = self._column(made)
            if tensors is None:
                return made
        own = {key: _copied(value) for key, value in kwargs.items()}
        self._sequence.append(_Noted(name, like, _copied(args), own, tensors))
        self.at += 1
        self.sound = True
        return made if tensors is None else tensors[0]

    def _column(self, made: Tensor) -> tuple[Tensor, ...] | None:
        """Prepare memory like a tensor's, a row for each item; None if it is too much.

        Returns:
            The tensor of each item.
        """
        arena, nbytes = self._arena, made.untyped_storage().nbytes()
        guard, align = guard_bytes(nbytes), alignment_on(arena.device)
        pitch = up(max(slot_room(nbytes, guard, align), 1), ROW_BYTES)
        poisons = self._poisons
        need = up(self._items, len(poisons)) * pitch
        self._bytes += need
        if self._bytes > TOTAL_BYTES:
            return None
        with torch._C._DisableTorchDispatch():  # it costs each call as much again
            memory = arena.own(len(self.columns), need)[:need]
            slot = next_slot(
                memory.data_ptr(), 0, nbytes, guard, alignment=align, exact=False
            )
            rows = Rows(memory, (slot,), need // pitch, pitch)
            self._guarded.append(PoisonedSlot(rows, made.dtype, poisons))
            form = made.dtype, made.shape, made.stride(), 0
            tensors = rows.tensors(self._isolated, slot, form)
        self.columns.append(rows)  # views of it are looked at from here on
        return tuple(tensors)


class _Watch(GuardedAllocations):  # type: ignore[no-untyped-call]
    """Guards memory that comes another way than through the replaced functions."""

    def __init__(self, device: torch.device, poison: Poison) -> None:
        super().__init__(device, poison)
        self.inside = 0
        self.thread = threading.get_ident()

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run one operator; guard what it allocates if it is the kernel's."""
        if self.inside:
            return func(*args, **(kwargs or {}))
        return super().__torch_dispatch__(func, types, args, kwargs)

    @property
    def saw(self) -> bool:
        """Whether any memory came another way."""
        return bool(self.made or self.unguarded or self.grown)


class _Inside:
    """A context in which what allocates is no matter of the kernel's."""

    def __init__(self, watch: _Watch) -> None:
        self._watch = watch

    def __enter__(self) -> None:
        self._watch.inside += 1

    def __exit__(self, *_: object) -> None:
        self._watch.inside -= 1


def _form(like: Any) -> tuple[Any, ...] | None:
    """Return what decides what is made like a tensor; None of anything else."""
    if (
        type(like) not in (Tensor, torch.nn.Parameter)
        or like.layout is not torch.strided
    ):
        return None
    return type(like), like.dtype, like.shape, like.stride(), like.device


def _plain(value: Any) -> bool:
    """Whether a value is compared by what it holds, and is no tensor."""
    if isinstance(value, tuple | list):
        return all(_plain(item) for item in value)
    return value is None or isinstance(value, _Plain | str)


def _copied(value: Any) -> Any:
    """Return a value that its owner cannot change any more."""
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return tuple(_copied(item) for item in value) if isinstance(value, tuple) else value
