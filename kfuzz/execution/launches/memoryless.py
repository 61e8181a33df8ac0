"""Tensors without memory, and what is known of the numbers that they hold."""

import operator
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.utils._pytree import tree_leaves

from kfuzz.contracts.binding import BoundKernel
from kfuzz.core.domain import parsed
from kfuzz.core.recipe import Case
from kfuzz.strategies.membership import ignored_index
from kfuzz.strategies.parameters import IndexParameter

# Operators whose results hold values of their first argument and no others.
_MOVES: Final = frozenset(
    {"clone", "contiguous", "_to_copy", "copy", "view", "_unsafe_view", "reshape",
     "alias", "as_strided", "expand", "permute", "t", "transpose", "unsqueeze",
     "squeeze", "slice", "select", "detach", "flatten", "_reshape_alias", "ravel"}
)  # fmt: skip


# Operators whose results are the number that all elements of their argument are.
_SAME: Final = _MOVES | {"max", "min", "amax", "amin", "any", "all", "mean"}
# Operators whose results hold integers of their first argument and no others.
_KEEPS: Final = _MOVES | {"max", "min", "amax", "amin"}
# What torch raises where it would need values, or does not know an operator.
LIMITS: Final = (
    DataDependentOutputException, DynamicOutputShapeException,
    UnsupportedOperatorException, NotImplementedError,
)  # fmt: skip
_COMPARED: Final[Mapping[str, Callable[[int, int], int]]] = {
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "eq": operator.eq, "ne": operator.ne, "bitwise_and": operator.and_,
    "bitwise_or": operator.or_, "logical_and": operator.and_,
    "logical_or": operator.or_, "add": operator.add, "sub": operator.sub,
    "mul": operator.mul,
}  # fmt: skip


class Memoryless(FakeTensorMode):  # type: ignore[no-untyped-call]
    """Tensors without memory; numbers read from one are 0, as if all indices were 0.

    What a wrapper asks of indices, such as whether the greatest is in bounds, is
    computed as if they were.

    Attributes:
        indices: what is known of the integers that a tensor holds, by storage.
        equal: the number that all elements of a tensor are, by storage.
        empty: storages that hold nothing yet.
        written: storages that an operator has written to.
        kept: what must not be freed, or another would get its storage's address.
        reads: numbers that were read.
        answers: 0, or a seed: what is read is then any number that may stand there.
    """

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True)
        self.begin(0)

    def begin(self, answers: int) -> None:
        """Forget all tensors."""
        self.indices: dict[int, Indices] = {}
        self.equal: dict[int, int] = {}
        self.empty: set[int] = set()
        self.written: set[int] = set()
        self.kept: list[Any] = []
        self.reads, self.answers = 0, answers

    def dispatch(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Carry out an operator; what reads a value gives 0."""
        if func is torch.ops.aten._local_scalar_dense.default:
            return self._read(args[0])
        name = func.overloadpacket.__name__ if hasattr(func, "overloadpacket") else ""
        value = self._computed(name.removesuffix("_"), args)
        made = super().dispatch(func, types, args, kwargs)
        self._fill(name, args, made)
        self._write(func, args, kwargs or {})
        if not isinstance(made, Tensor):
            return made
        if value is not None and (not name.endswith("_") or _fills(made)):
            self.kept.append(made)
            self.equal[storage_of(made)] = value
        if name in _KEEPS and args and isinstance(args[0], Tensor):
            known = self.indices.get(storage_of(args[0]))
            if known is not None and known.fit(made.dtype):
                self.note(made, known)
        return made

    def _read(self, tensor: Tensor) -> bool | int | float:
        """Return the number that a tensor of one element holds."""
        self.reads += 1
        storage, kind = storage_of(tensor), tensor.dtype
        read: float = self.equal.get(storage, 0)
        if self.answers:
            chance = random.Random(f"{self.answers} {self.reads}")
            known = self.indices.get(storage)
            if known is not None:
                few = {0, known.below - 1, known.below // 2, known.ignored}
                read = chance.choice(sorted(n for n in few if n is not None))
            else:
                read = chance.choice((0, 1, 2, 3, 17, 100, 1000))
            if kind is torch.bool:
                read = chance.choice((0, 1))
        if kind.is_floating_point:
            return float(read)
        return bool(read) if kind is torch.bool else int(read)

    def _write(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Forget what is known of memory that an operator writes to."""
        schema = getattr(func, "_schema", None)
        if schema is None or not schema.is_mutable:
            return
        given = dict(zip((a.name for a in schema.arguments), args, strict=False))
        given |= kwargs
        for argument in schema.arguments:
            tensor = given.get(argument.name)
            written = argument.alias_info is not None and argument.alias_info.is_write
            if written:
                for leaf in tree_leaves(tensor):
                    if isinstance(leaf, Tensor):
                        self.kept.append(leaf)
                        storage = storage_of(leaf)
                        self.indices.pop(storage, None)
                        self.equal.pop(storage, None)
                        self.written.add(storage)

    def _fill(self, name: str, args: Sequence[Any], made: Any) -> None:
        """Note which memory holds nothing, and which does from now on."""
        if name.startswith(("empty", "new_empty")) and isinstance(made, Tensor):
            self.kept.append(made)
            self.empty.add(storage_of(made))
        elif name in ("fill_", "zero_", "copy_") and isinstance(args[0], Tensor):
            self.empty -= {storage_of(args[0])} if _fills(args[0]) else set()

    def _computed(self, name: str, args: Sequence[Any]) -> int | None:
        """Return what all elements of a result are, None where that is not known."""
        known = [
            self.equal.get(storage_of(a)) if isinstance(a, Tensor) else a for a in args
        ]
        if not known or not any(isinstance(a, Tensor) for a in args):
            return None
        if known[0] is None or not isinstance(known[0], int):
            return None
        if name in _SAME:
            return int(known[0])
        if name == "sum":
            return int(known[0]) * int(args[0].numel())
        operation = _COMPARED.get(name)
        if operation is None or len(known) < 2 or not isinstance(known[1], int):
            return None
        return int(operation(known[0], known[1]))

    def note(self, tensor: Tensor, known: "Indices") -> None:
        """Take it that a tensor holds such indices."""
        self.kept.append(tensor)
        self.indices[storage_of(tensor)] = known


@dataclass(frozen=True)
class Indices:
    """What is known of the integers that a tensor holds: they are in [0, below).

    Attributes:
        below: the bound.
        ignored: the number that may be among them besides, None if none may.
    """

    below: int
    ignored: int | None = None

    def fit(self, kind: torch.dtype) -> bool:
        """Whether a type holds all of them."""
        most = max(self.below - 1, abs(self.ignored or 0))
        if kind.is_floating_point:
            return most <= 2 / torch.finfo(kind).eps
        return kind is not torch.bool and most <= torch.iinfo(kind).max and (
            (self.ignored or 0) >= torch.iinfo(kind).min
        )  # fmt: skip

    @classmethod
    def of(cls, kernel: BoundKernel, case: Case, name: str) -> "Indices | None":
        """Return what the contract says of an argument's integers."""
        bound = case.bound(case.tensors[name])
        parameter = kernel.operator.inputs.get(name)
        if not bound or not isinstance(parameter, IndexParameter):
            return None
        # Offsets and ends of parts may be the whole.
        return cls(
            bound + int(parsed(parameter.domain).cuts),
            ignored_index(kernel.operator.inputs, parameter, case),
        )


def _fills(tensor: Tensor) -> bool:
    """Whether a tensor is all of its memory."""
    return tensor.numel() * tensor.itemsize == tensor.untyped_storage().nbytes()


def storage_of(tensor: Tensor) -> int:
    """Return what tells the memory of one tensor from that of others."""
    return int(tensor.untyped_storage()._cdata)
