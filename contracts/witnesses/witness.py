"""What a witness is, and the decorator by which a kernel declares that it is one.

It stands above `kernel`, beside the kernel:

    @witness(SQUARE, breaks="K-MEM-03")
    @kernel(ops.relu)
    def relu_overwrites_input(x): ...
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kfuzz.contracts.binding import REGISTRY, BoundKernel

Shape = tuple[int, ...]

LONG_ROWS: Final = (16, 1024)
"""A friendly shape of what is reduced along rows."""
SQUARE: Final = (64, 64)
"""A friendly shape of what is computed element by element, and of matrices."""


@dataclass(frozen=True)
class Witness:
    """One implementation that calibrates a contract.

    Attributes:
        kernel: the bound kernel's name.
        module: name of its module in this package.
        contract: class under which it is falsified, "" for a conforming one.
        shapes: friendly shape of each tensor argument.
        dtype: data type of the functional test.
        backends: where the fault shows.
    """

    kernel: str
    module: str
    contract: str
    shapes: tuple[Shape, ...]
    dtype: str = "float32"
    backends: tuple[str, ...] = ("interpret", "cuda")

    @property
    def conforming(self) -> bool:
        """Whether no case falsifies it."""
        return not self.contract

    def load(self) -> BoundKernel:
        """Import the witness's module and return its bound kernel."""
        name = f"{__package__}.{self.module}"
        importlib.import_module(name)
        return next(b for b in REGISTRY[name] if b.name == self.kernel)


_DECLARED: Final[dict[str, list[Witness]]] = {}


def witness(
    *shapes: Shape,
    breaks: str = "",
    dtype: str = "float32",
    backends: tuple[str, ...] = ("interpret", "cuda"),
) -> Callable[[BoundKernel], BoundKernel]:
    """Declare a bound kernel as a witness.

    Args:
        shapes: friendly shape of each tensor argument.
        breaks: the class under which it is falsified, "" if it conforms.
        dtype: data type of the functional test.
        backends: where the fault shows.
    """

    def declare(bound: BoundKernel) -> BoundKernel:
        module = bound.module.removeprefix(f"{__package__}.")
        made = Witness(bound.name, module, breaks, shapes, dtype, backends)
        _DECLARED.setdefault(module, []).append(made)
        return bound

    return declare


def declared_in(module: str) -> tuple[Witness, ...]:
    """Return the witnesses of one module of this package, in its order."""
    importlib.import_module(f"{__package__}.{module}")
    return tuple(_DECLARED.get(module, ()))
