"""What a candidate is, and what contains the child that it runs in."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Entry:
    """What to import and build from a file that nobody vouches for.

    Attributes:
        path: the file.
        build: name of what the file defines: a class, which is built, or a function.
        args: positional arguments of the constructor: numbers, texts, None, tensors,
            lists, tuples and mappings of these, and torch's dtypes.
        seed: of torch's generators while the file is imported and the class built.
        weights: tensors to load into the parameters and buffers of these names.
        fixed: positional arguments of every call that are no tensors, by position;
            the tensors take the places left in their order.
        evaluation: whether a module is in evaluation mode during calls, in place of as
            it was built.
        constants_drawn: whether initialisers of constants draw numbers while the class
            is built; see `kfuzz.execution.values.fills`.
    """

    path: Path
    build: str
    args: tuple[Any, ...] = ()
    seed: int = 0
    weights: "Mapping[str, Tensor]" = field(default_factory=dict)
    fixed: Mapping[int, Any] = field(default_factory=dict)
    evaluation: bool = False
    constants_drawn: bool = False


@dataclass(frozen=True)
class Measures:
    """Which ways of containing a child are tried; each needs the system's consent.

    Attributes:
        namespaces: its own users, processes, network, IPC and mounts.
        landlock: rules of the kernel on what it may write and connect to.
    """

    namespaces: bool = True
    landlock: bool = True


@dataclass(frozen=True)
class Measure:
    """One thing that is kept from a child, or is not.

    Attributes:
        name: what it is about, such as "network".
        held: whether it is enforced here.
        text: how, or what is open instead; one plain sentence without a full stop.
    """

    name: str
    held: bool
    text: str


# Names of the measures that hold nowhere.
_ALWAYS_OPEN: Final = frozenset({"reading", "device"})


@dataclass(frozen=True)
class Containment:
    """What contains a child on this machine.

    Attributes:
        measures: one for each subject, in a fixed order.
    """

    measures: tuple[Measure, ...]

    @property
    def lacking(self) -> tuple[Measure, ...]:
        """What is not enforced here."""
        return tuple(m for m in self.measures if not m.held)

    @property
    def open_here(self) -> tuple[Measure, ...]:
        """The same, without what is open on every machine."""
        return tuple(m for m in self.lacking if m.name not in _ALWAYS_OPEN)

    def __getitem__(self, name: str) -> Measure:
        """Return the measure of a name.

        Raises:
            KeyError: if there is none.
        """
        return {measure.name: measure for measure in self.measures}[name]
