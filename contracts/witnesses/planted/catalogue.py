"""Every fault planted in every operator, or why it has no place there."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import torch

from kfuzz.contracts.operators import OPERATORS
from kfuzz.contracts.platform.catalogue import kernels
from kfuzz.contracts.witnesses.planted import faults, libraries, narrow, unstable
from kfuzz.contracts.witnesses.planted.base import Base, Fault
from kfuzz.contracts.witnesses.torch_ops import shapes_of
from kfuzz.contracts.witnesses.witness import Witness

FAULTS: Final[tuple[Fault, ...]] = (*faults.FAULTS, *narrow.FAULTS, *unstable.FAULTS)


@dataclass(frozen=True)
class Planted:
    """A fault in an operator.

    Attributes:
        fault: what is wrong.
        operator: the operator's name.
        base: the spoilt kernel; None where the fault has no place.
        reason: why it has none, "" where it has.
    """

    fault: Fault
    operator: str
    base: Base | None
    reason: str = ""

    @property
    def name(self) -> str:
        """The kernel's name."""
        return f"{self.fault.name}_in_{self.operator}"


def planted(device: str, version: str) -> Iterator[Planted]:
    """Yield every fault in every operator, in torch's own kernels.

    Args:
        device: "cpu" or "cuda".
        version: torch's.
    """
    bases = {b.operator.name: b for b in _bases(device, version)}
    for fault in FAULTS:
        for name in sorted(OPERATORS):
            if device not in fault.devices:
                yield Planted(fault, name, None, f"nothing shows it on {device}")
                continue
            made = fault.plant(bases[name])
            if isinstance(made, str):
                yield Planted(fault, name, None, made)
            else:
                yield Planted(fault, name, made)


def conforming(device: str, version: str) -> Iterator[tuple[str, Base]]:
    """Yield conforming kernels by name.

    Each as a kernel in a library of its own, in two configurations; on the CPU with
    results that several programs copy, since torch's own are witnesses elsewhere, else
    as it is.
    """
    for base in _bases(device, version):
        name = base.operator.name
        if device == "cpu":
            yield f"{name}_copied", faults.through(base, race=False)
        else:
            yield f"{name}_declared", base
        yield f"library_{name}", faults.with_blocks(libraries.in_library(base))


def declared(device: str, version: str) -> dict[str, Base]:
    """Return the kernels that faults are planted in, by name."""
    return {f"{b.operator.name}_declared": b for b in _bases(device, version)}


def bound_on(
    device: str,
) -> tuple[tuple[Planted, ...], dict[str, Base], list[Witness]]:
    """Return what the module of a device, "cpu" or "cuda", binds.

    Returns:
        Every fault in every operator, or why it has no place there; the kernels of
        those that have one, and conforming ones, by name; and these as witnesses.
    """
    every = tuple(planted(device, torch.__version__))
    faulty = {p.name: p for p in every if p.base is not None}
    kernels = {name: p.base for name, p in faulty.items() if p.base is not None}
    kernels |= dict(conforming(device, torch.__version__))
    witnesses = [
        Witness(
            name,
            f"planted.on_{device}",
            faulty[name].fault.contract if name in faulty else "",
            base.shapes,
            base.dtype,
            backends=base.backends,
        )
        for name, base in kernels.items()
    ]
    return every, kernels, witnesses


def _bases(device: str, version: str) -> Iterator[Base]:
    """Yield torch's kernel of each operator, as its conforming witness declares it."""
    for made in kernels(device, version):
        operator = made.operator
        if made.name == f"torch_{operator.name}":
            yield Base(
                OPERATORS[operator.name], made.function, made.excused, shapes_of(made)
            )
