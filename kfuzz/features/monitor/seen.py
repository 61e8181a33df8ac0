"""What was seen of one call: the arguments before it, and what it left."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from kfuzz.core.dtypes import DTYPES
from kfuzz.numerics.formats import Footprint

LEAF: Final = "*"
"""The structure of what is no structure."""

PLAIN: Final = frozenset({Tensor, torch.nn.Parameter})
"""The classes of tensors that are copied; a subclass may be anything."""

_COPIED: Final = frozenset(getattr(torch, name) for name in DTYPES)
# Views of unsliced tensors begin at such a multiple of bytes.
_ALIGNED: Final = 16
_TO_COME: Final = ""  # in the place of a copy


@dataclass(frozen=True)
class TensorCopy:
    """One tensor as it was.

    Attributes:
        values: its elements on the CPU, in the ring's memory; not yet there until
            the snapshot has been waited for.
        device: the original's.
        footprint: where the original's elements lay.
    """

    values: Tensor
    device: torch.device
    footprint: Footprint

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes."""
        return self.footprint.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """The original's, in elements."""
        return self.footprint.strides

    @property
    def offset(self) -> int:
        """Elements from an address of 16 bytes' alignment to the first one."""
        size = self.footprint.itemsize
        return self.footprint.address % max(_ALIGNED, size) // size

    @property
    def dtype(self) -> torch.dtype:
        """Element type."""
        return self.values.dtype


def can_copy(tensor: Tensor) -> bool:
    """Whether a tensor is a plain one, of numbers, on the CPU or a GPU."""
    return (
        type(tensor) in PLAIN
        and tensor.layout is torch.strided
        and tensor.dtype in _COPIED
        and (tensor.is_cuda or tensor.is_cpu)
    )


@dataclass(frozen=True)
class Call:
    """The arguments of a call, by the names that its contract knows them by.

    Attributes:
        tensors: in the contract's order; not those that only receive results.
        scalars: everything else that the contract speaks of.
        written: the memory that the call writes its results to, by output, where the
            contract says so; it is the caller's.
        free: arguments among the tensors that the call may change.
        rest: for a reference, what its arguments are made of besides tensors.
        tf32: kinds of float32 products for which torch may use TF32 at the call.
    """

    tensors: Mapping[str, Tensor]
    scalars: Mapping[str, Any] = field(default_factory=dict)
    written: Mapping[str, Tensor] = field(default_factory=dict)
    free: frozenset[str] = frozenset()
    rest: Any = None
    tf32: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Returned:
    """What a call returned, taken apart.

    Attributes:
        leaves: a copy of each tensor; of anything else the name of its type.
        form: the structure around them, as text: equal for equal structures.
        kind: the name of the type of all of it.
        nest: how tuples and lists hold the leaves, as JSON: 0 for a leaf, [0, [0, 0]];
            "" where anything else holds some.
    """

    leaves: tuple[TensorCopy | str, ...]
    form: str
    kind: str
    nest: str

    @property
    def copies(self) -> list[TensorCopy]:
        """The copies of tensors among the leaves."""
        return [x for x in self.leaves if isinstance(x, TensorCopy)]

    def filled(self, copies: Sequence[TensorCopy]) -> "Returned":
        """Return an outline with copies in place of what is to come."""
        left = iter(copies)
        leaves = tuple(next(left) if x == _TO_COME else x for x in self.leaves)
        return replace(self, leaves=leaves)


@dataclass(frozen=True)
class Seen:
    """One call as the checker sees it; valid until its snapshots are released.

    Attributes:
        tensors: copies of the arguments as they were before the call.
        scalars: its other arguments.
        returned: what it returned, or left in the memory that it was to write to.
        changed: which arguments hold other bits after the call: how many elements,
            and the first of them, counted in C order.
        handed: what is wrong with the returned object itself where the results lie
            in memory of the caller's; "" if nothing is.
        rest: as in `Call`.
        is_compiled: whether the call was one of compiled code, where addresses are
            the compiler's choice.
        tf32: as in `Call`.
        verdict_only: whether nobody asks how near to the bound the results are.
    """

    tensors: Mapping[str, TensorCopy]
    scalars: Mapping[str, Any]
    returned: Returned
    changed: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    handed: str = ""
    rest: Any = None
    is_compiled: bool = False
    tf32: frozenset[str] = frozenset()
    verdict_only: bool = False


# Most calls of a function return alike.
_outline = lru_cache(maxsize=64)(Returned)


def parts_of(returned: Any) -> tuple[list[Tensor], Returned]:
    """Return the tensors of a returned object that can be copied, and what is left.

    The second is to be filled with copies of the first.
    """
    kind = type(returned).__name__
    leaves, form = flattened(returned)
    left = iter(leaves)

    def nested(value: Any) -> Any:
        if isinstance(value, tuple | list):
            return [nested(item) for item in value]
        return 0 if next(left, left) is value else None  # a mapping is no leaf

    nest = json.dumps(nested(returned))
    nest = "" if "null" in nest else nest
    tensors = [x for x in leaves if isinstance(x, Tensor) and can_copy(x)]
    kept = set(map(id, tensors))
    kinds = (_TO_COME if id(x) in kept else type(x).__name__ for x in leaves)
    return tensors, _outline(tuple(kinds), form, kind, nest)


def nest_of(count: int) -> str:
    """Return the nest of one leaf, or of a row of several."""
    return json.dumps([0] * count if count != 1 else 0)


def flattened(value: Any) -> tuple[list[Any], str]:
    """Return the leaves of a structure, and the structure around them as text."""
    leaves, spec = pytree.tree_flatten(value)
    return leaves, LEAF if spec.is_leaf() else str(spec)
