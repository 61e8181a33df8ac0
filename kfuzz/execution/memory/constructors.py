"""The functions of torch, as Python finds them, that give fresh memory."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any, Final

import torch
import torch.utils._device
from torch import Tensor

Function = Callable[..., Any]

# Functions that give fresh memory, with their owners: whether a tensor comes first.
_FRESH: Final[tuple[tuple[Any, str, bool], ...]] = (
    (torch, "empty", False),
    (torch, "empty_strided", False),
    (torch, "empty_permuted", False),
    (torch, "empty_like", True),
    (Tensor, "new_empty", True),
    (Tensor, "new_empty_strided", True),
)
# Others that give memory, or more of it; the first is of torch.Tensor(2, 3) too.
_ASIDE: Final[tuple[tuple[Any, str], ...]] = (
    (Tensor, "__init__"),
    (Tensor, "new"),
    (Tensor, "resize_"),
    (Tensor, "resize_as_"),
)


@dataclass(frozen=True)
class Place:
    """Where such a function is found.

    Attributes:
        owner: a module or a class.
        name: of the attribute.
        of: torch's name of the function.
        of_tensor: whether it takes a tensor before the sizes.
        function: what it was found to hold.
    """

    owner: Any
    name: str
    of: str
    of_tensor: bool
    function: Function


def places() -> list[Place]:
    """Return where functions that give fresh memory are found now.

    Modules that took a function's name over are among them, but for torch's own. What
    a kernel keeps as a default, in a closure or in a container is not found.
    """
    own = [Place(o, name, name, of, getattr(o, name)) for o, name, of in _FRESH]
    found = _taken_over(len(sys.modules))
    return [*own, *(p for p in found if vars(p.owner).get(p.name) is p.function)]


def others() -> list[tuple[Any, str, Function]]:
    """Return other functions that give memory, or more of it: owner, name and value."""
    return [(owner, name, getattr(owner, name)) for owner, name in _ASIDE]


def nothing(*args: Any, **kwargs: Any) -> None:
    """Stand for `object.__init__`, which minds arguments where it is called itself."""


@cache
def _taken_over(modules: int) -> list[Place]:
    """Return what modules took over, as long as so many of them are imported."""
    # torch's own table of them: filled later, it would hold replacements.
    torch.utils._device._device_constructors()
    sought = {id(getattr(o, name)): (name, of) for o, name, of in _FRESH}
    found = []
    for module_name, module in list(sys.modules.items()):
        if type(module) is not ModuleType or module_name.partition(".")[0] == "torch":
            continue
        for held, value in list(vars(module).items()):
            if id(value) in sought:
                found.append(Place(module, held, *sought[id(value)], value))
    return found
