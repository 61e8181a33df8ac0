"""What an observed program did, as one process hands it to another."""

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

FILE: Final = "seen.pickle"


@dataclass(frozen=True)
class Shape:
    """A tensor as a call got it.

    Attributes:
        sizes: of its dimensions.
        strides: in elements.
        dtype: "float32", ….
        device: "cpu", "cuda:0", ….
        values: the elements on the CPU; None where there were too many of them.
    """

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: str
    values: Any = field(default=None, compare=False)

    def __str__(self) -> str:
        """Return it as a signature has it."""
        return f"{self.dtype}[{', '.join(map(str, self.sizes))}]"


@dataclass(frozen=True)
class Seen:
    """One call.

    Attributes:
        given: arguments by name, in order: `Shape` for tensors; others as they were, or
            as `Unknown`.
        results: the results; None where it raised or had none.
    """

    given: Mapping[str, Any]
    results: tuple[Any, ...] | None


@dataclass(frozen=True)
class Unknown:
    """A value that no file of bindings can hold.

    Attributes:
        text: what it is, for people.
    """

    text: str


@dataclass
class Callee:
    """A function that launches kernels, or a custom operator.

    Attributes:
        module: in which it lies.
        name: in the module: "softmax", "SoftmaxFunction.apply"; of an operator its
            qualified name, "ns::softmax".
        launches: names of Triton functions, each with how often it was launched and the
            options of the last launch.
        calls: calls seen, the first few.
        count: how many there were.
    """

    module: str
    name: str
    launches: dict[str, tuple[int, dict[str, Any]]] = field(default_factory=dict)
    calls: list[Seen] = field(default_factory=list)
    count: int = 0

    @property
    def is_operator(self) -> bool:
        """Whether it is an operator of torch.library."""
        return "::" in self.name


def write(callees: Mapping[object, Callee], folder: Path) -> None:
    """Keep what was seen, whole or not at all."""
    made = folder / f"{FILE}.new"
    made.write_bytes(pickle.dumps(list(callees.values())))
    made.replace(folder / FILE)


def read(folder: Path) -> list[Callee]:
    """Return what was seen; nothing where the program was not begun."""
    file = folder / FILE
    # kfuzz's own process wrote it, into a folder of kfuzz's own.
    found: list[Callee] = pickle.loads(file.read_bytes()) if file.exists() else []
    return found
