"""What was seen of one call: the arguments before it, and what it left."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

from torch import Tensor
from torch.utils import _pytree as pytree

from kfuzz.monitor.snapshot import Change, TensorCopy, can_copy

LEAF: Final = "*"
"""The structure of what is no structure."""

_TO_COME: Final = ""  # in the place of a copy


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
class Settled:
    """The arguments of a call but for the tensors.

    Attributes:
        places: of each tensor among those of the call, by its name; -1 for none.
        scalars: as in `Call`.
        rest: likewise.
    """

    places: Mapping[str, int]
    scalars: Mapping[str, Any]
    rest: Any


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
        changed: which arguments hold other bits after the call, and where.
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
    changed: Mapping[str, Change]
    handed: str = ""
    rest: Any = None
    is_compiled: bool = False
    tf32: frozenset[str] = frozenset()
    verdict_only: bool = False


class Parts(NamedTuple):
    """A returned object before its tensors are copied.

    Attributes:
        leaves: its leaves in order.
        form, kind, nest: as in `Returned`.
    """

    leaves: tuple[Any, ...]
    form: str
    kind: str
    nest: str

    def split(self) -> tuple[list[Tensor], Returned]:
        """Return the leaves that can be copied, and the object without them.

        The second is to be filled with copies of the first.
        """
        tensors: list[Tensor] = []
        leaves: list[str] = []
        for x in self.leaves:
            if isinstance(x, Tensor) and can_copy(x):
                tensors.append(x)
                leaves.append(_TO_COME)
            else:
                leaves.append(type(x).__name__)
        return tensors, _outline(tuple(leaves), self.form, self.kind, self.nest)


# Most calls of a function return alike.
_outline = lru_cache(maxsize=64)(Returned)


def parts_of(returned: Any) -> Parts:
    """Take a returned object apart."""
    if isinstance(returned, Tensor):  # the usual one
        return Parts((returned,), LEAF, type(returned).__name__, nest_of(1))
    leaves, form = flattened(returned)
    left = iter(leaves)

    def nested(value: Any) -> Any:
        if isinstance(value, tuple | list):
            return [nested(item) for item in value]
        return 0 if next(left, left) is value else None  # a mapping is no leaf

    nest = json.dumps(nested(returned))
    nest = "" if "null" in nest else nest
    return Parts(tuple(leaves), form, type(returned).__name__, nest)


def nest_of(count: int) -> str:
    """Return the nest of one leaf, or of a row of several."""
    return json.dumps([0] * count if count != 1 else 0)


def flattened(value: Any) -> tuple[list[Any], str]:
    """Return the leaves of a structure, and the structure around them as text."""
    leaves, spec = pytree.tree_flatten(value)
    return leaves, LEAF if spec.is_leaf() else str(spec)
