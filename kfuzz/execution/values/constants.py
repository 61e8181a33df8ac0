"""Initialisers of constants that draw numbers instead.

Weights that are all 0 or all 1 hide whether they are used. While a module is built,
the functions of `torch.nn.init` that fill with a constant draw numbers about it, by the
size of what they fill alone: whoever builds the same layers, in whatever order, has the
same weights.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor, nn

from kfuzz.execution.calls.patches import Patches

_SPREAD: Final = 0.5


@contextmanager
def drawn_constants(*, drawn: bool = True) -> Iterator[None]:
    """Have initialisers of constants draw numbers within the block.

    Args:
        drawn: False for a block that does nothing.
    """
    if not drawn:
        yield
        return
    init: Any = nn.init
    replaced: dict[str, Callable[..., Tensor]] = {
        "ones_": lambda tensor: _about(tensor, 1.0),
        "zeros_": lambda tensor: _about(tensor, 0.0),
        "constant_": _about,
    }
    with Patches() as patches:
        for name, function in replaced.items():
            patches.set(init, name, function)
        yield


def _about(tensor: Tensor, val: float) -> Tensor:
    """Fill a tensor with numbers about one, at most half of it or 0.5 away."""
    seed = 2 * tensor.numel() + (val == 0)
    chance = torch.Generator().manual_seed(seed)
    spread = _SPREAD * (abs(val) or 1.0)
    noise = 2 * torch.rand(tensor.shape, generator=chance) - 1
    with torch.no_grad():
        return tensor.copy_(val + spread * noise)
