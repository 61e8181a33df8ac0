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

# Functions of sizes, and functions of a tensor and sizes, with their owners.
_OF_SIZES: Final[tuple[tuple[Any, str], ...]] = (
    (torch, "empty"),
    (torch, "empty_strided"),
    (torch, "empty_permuted"),
)
_OF_TENSOR: Final[tuple[tuple[Any, str], ...]] = (
    (torch, "empty_like"),
    (Tensor, "new_empty"),
    (Tensor, "new_empty_strided"),
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
    groups = ((_OF_SIZES, False), (_OF_TENSOR, True))
    own = [
        Place(owner, name, name, of_tensor, getattr(owner, name))
        for group, of_tensor in groups
        for owner, name in group
    ]
    return [*own, *(p for p in _taken_over(len(sys.modules)) if _still_holds(p))]


def others() -> list[tuple[Any, str, Function]]:
    """Return other functions that give memory, or more of it: owner, name and value."""
    return [(owner, name, getattr(owner, name)) for owner, name in _ASIDE]


def nothing(*args: Any, **kwargs: Any) -> None:
    """Stand for `object.__init__`, which minds arguments where it is called itself."""


def _still_holds(place: Place) -> bool:
    return vars(place.owner).get(place.name) is place.function


@cache
def _taken_over(modules: int) -> list[Place]:
    """Return what modules took over, as long as so many of them are imported."""
    # torch's own table of them: filled later, it would hold replacements.
    torch.utils._device._device_constructors()
    groups = ((_OF_SIZES, False), (_OF_TENSOR, True))
    sought = {
        id(getattr(owner, name)): (name, of_tensor)
        for group, of_tensor in groups
        for owner, name in group
    }
    found = []
    for module_name, module in list(sys.modules.items()):
        if type(module) is not ModuleType or module_name.partition(".")[0] == "torch":
            continue
        for held, value in list(vars(module).items()):
            if id(value) in sought:
                found.append(Place(module, held, *sought[id(value)], value))
    return found
