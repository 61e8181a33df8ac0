"""Every fault planted in every operator, or why it has no place there."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kfuzz.contracts.operators import OPERATORS
from kfuzz.contracts.platform.catalogue import kernels
from kfuzz.contracts.witnesses.planted import (
    calls,
    changed_data,
    configured,
    libraries,
    memory,
    narrow,
    racing,
    results,
    subnormal,
    unstable,
)
from kfuzz.contracts.witnesses.planted.base import Base, Fault
from kfuzz.contracts.witnesses.torch_ops import SHAPES
from kfuzz.contracts.witnesses.witness import Witness

FAULTS: Final[tuple[Fault, ...]] = (
    *memory.FAULTS,
    *calls.FAULTS,
    *results.FAULTS,
    *configured.FAULTS,
    *subnormal.FAULTS,
    *changed_data.FAULTS,
    *narrow.FAULTS,
    *unstable.FAULTS,
    *racing.FAULTS,
)


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

    def witness(self, module: str) -> Witness:
        """Return it as a witness that a module binds."""
        assert self.base is not None
        return Witness(
            self.name, module, self.fault.contract, self.base.shapes, self.base.dtype,
            backends=self.base.backends,
        )  # fmt: skip


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


def copies(device: str, version: str) -> dict[str, Base]:
    """Return conforming kernels whose results several programs copy, by name."""
    return {
        f"{base.operator.name}_copied": racing.through(base, race=False)
        for base in _bases(device, version)
    }


def in_libraries(device: str, version: str) -> dict[str, Base]:
    """Return conforming kernels in a library of their own, each in two configurations.

    By name.
    """
    return {
        f"library_{base.operator.name}": configured.with_blocks(
            libraries.in_library(base)
        )
        for base in _bases(device, version)
    }


def declared(device: str, version: str) -> dict[str, Base]:
    """Return the kernels that faults are planted in, by name."""
    return {f"{b.operator.name}_declared": b for b in _bases(device, version)}


def conforming(name: str, base: Base, module: str) -> Witness:
    """Return a conforming witness that a module binds."""
    return Witness(name, module, "", base.shapes, base.dtype, backends=base.backends)


def _bases(device: str, version: str) -> Iterator[Base]:
    """Yield torch's kernel of each operator, as its conforming witness declares it."""
    for made in kernels(device, version):
        operator = made.operator
        if made.name == f"torch_{operator.name}":
            shapes = SHAPES[made.name]
            yield Base(OPERATORS[operator.name], made.function, made.excused, shapes)
