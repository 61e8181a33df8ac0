"""Views that end past a item's memory, which a storage of its own would refuse."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from kfuzz.execution.calls.patches import Patches
from kfuzz.execution.memory.rows import Rows
from kfuzz.numerics.footprints import Footprint

OVERREACH: Final = "a view past the end of its memory"
"""Why an item is suspect that makes such a view."""

# What makes a tensor of any part of a storage.
_OF_STORAGE: Final[tuple[tuple[Any, str], ...]] = (
    (Tensor, "as_strided"),
    (Tensor, "as_strided_"),
    (Tensor, "set_"),
    (torch, "as_strided"),
    (torch, "as_strided_"),
)


class Overreach:
    """Notes such views, as far as Python makes them, until its context ends.

    Items share a storage, which such a view need not leave.

    Attributes:
        seen: whether one has been made; whoever calls the kernel sets it back.
        first: storages in which items have parts from the beginning.
        later: those that have come since.
    """

    def __init__(self, *shared: Rows) -> None:
        """Note nothing yet.

        Args:
            shared: storages in which items have parts from the beginning.
        """
        self.seen = False
        self.first = shared
        self.later: Sequence[Rows] = ()
        self._patches = Patches()
        self._begun = False

    def begin(self) -> None:
        """Note such views from now on until the context ends.

        Not before a kernel's first call has imported what it does: other libraries
        keep tables of torch's functions.
        """
        if not self._begun:
            self._begun = True
            for owner, name in _OF_STORAGE:
                self._patches.set(owner, name, self._noting(getattr(owner, name)))

    def __enter__(self) -> "Overreach":
        return self

    def __exit__(self, *_: object) -> None:
        self._patches.undo()

    def _noting(self, true: Callable[..., Any]) -> Callable[..., Any]:
        def noting(*args: Any, **kwargs: Any) -> Any:
            made = true(*args, **kwargs)
            if type(made) is Tensor and self._is_past(made):
                self.seen = True
            return made

        return noting

    def _is_past(self, made: Tensor) -> bool:
        """Whether a tensor ends elsewhere than in what it begins in."""
        if made.layout is not torch.strided or not made.numel():
            return False
        try:
            place = made.untyped_storage().data_ptr()
        except (RuntimeError, NotImplementedError):  # a wrapper's, as vmap makes
            return False
        for shared in (*self.first, *self.later):
            if shared.low == place:
                footprint = Footprint.of(made)
                return not shared.holds(footprint.address, footprint.stop)
        return False
