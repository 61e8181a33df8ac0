"""Which of the platform's kernels stand for a function of torch's."""

import importlib

import torch

from kfuzz.contracts.binding import REGISTRY
from kfuzz.core.errors import UsageError, suggestion

# Functions that no operator of the suite speaks of have a file of their own.
_APART = {"torch._scaled_mm": "kfuzz.contracts.platform.scaled"}


def targets_of(function: str, device: str) -> tuple[str, ...]:
    """Return the targets, "module:kernel", that call a function of torch's.

    Args:
        function: its dotted name, "torch.matmul".
        device: "cpu" or "cuda".

    Raises:
        UsageError: if it is none, or no kernel calls it as it is.
    """
    if function in _APART:
        module = _APART[function]
        importlib.import_module(module)
        return tuple(f"{module}:{bound.name}" for bound in REGISTRY[module])
    module = f"kfuzz.contracts.platform.torch_{device}"
    importlib.import_module(module)
    found: object = torch
    for part in function.split(".")[1:]:
        found = getattr(found, part, None)
    named = [b.name for b in REGISTRY[module] if found and b.function is found]
    if not named:
        every = [f"{module}:{b.name}" for b in REGISTRY[module]]
        raise UsageError(
            f"no kernel of the platform's is {function} itself",
            where=function,
            fix="name one of them: "
            + suggestion(f"{module}:{function.replace('.', '_')}", every),
        )
    return tuple(f"{module}:{name}" for name in named)
