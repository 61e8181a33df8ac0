"""Torch's own kernels with what each declares on a device."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from kfuzz.contracts.operator import Operator

# Each enters its kernels.
from kfuzz.contracts.platform import pointwise, products, rows  # noqa: F401
from kfuzz.contracts.platform.table import DEFECTS, IMPLEMENTATIONS, excuses, joined


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
