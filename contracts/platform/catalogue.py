"""Torch's own kernels with what each declares on a device."""

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any

import torch

from kfuzz.contracts.binding import REGISTRY, BoundKernel
from kfuzz.contracts.operator import Operator

# Each enters its kernels.
from kfuzz.contracts.platform import pointwise, products, rows  # noqa: F401
from kfuzz.contracts.platform.defects import DEFECTS
from kfuzz.contracts.platform.table import IMPLEMENTATIONS, excuses, joined
from kfuzz.core.errors import UsageError, suggestion


@dataclass(frozen=True)
class Declared:
    """A kernel of torch's on one device in one version.

    Attributes:
        name: the kernel's name.
        operator: what it computes.
        function: what is called.
        claims: its declarations, as keywords of `kfuzz.kernel`.
        excused: the same, and what leaves its listed defects undecided.
    """

    name: str
    operator: Operator
    function: Callable[..., Any]
    claims: dict[str, Any]
    excused: dict[str, Any]


def kernels(device: str, version: str) -> Iterator[Declared]:
    """Yield the kernels bound on a device, "cpu" or "cuda", in a version of torch.

    Raises:
        BindingError: if claims contradict one another, or the version is none.
    """
    for made in IMPLEMENTATIONS.values():
        if device in made.devices:
            claims = made.declared(device, version)
            excuse = excuses(made.name, DEFECTS, device, version)
            excused = joined(claims, excuse)
            yield Declared(made.name, made.operator, made.function, claims, excused)


# Which of the platform's kernels stand for a function of torch's.

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
        calling = [f"{module}:{b.name}" for b in REGISTRY[module]
                   if function.rpartition(".")[2] in _names(b)]  # fmt: skip
        raise UsageError(
            f"no kernel of the platform's is {function} itself",
            where=function,
            fix=f"name one that calls it: {', '.join(calling)}"
            if calling
            else "name one of them: "
            + suggestion(f"{module}:{function.replace('.', '_')}", every),
        )
    return tuple(f"{module}:{name}" for name in named)


def _names(bound: BoundKernel) -> tuple[str, ...]:
    """Return the names that a kernel's code mentions."""
    code = getattr(bound.function, "__code__", None)
    return code.co_names if isinstance(code, CodeType) else ()
