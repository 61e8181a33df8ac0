"""What a kernel is called on, and in which form, alone or in a burst."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kfuzz.core.recipe import Case, Destination, TensorSpec
from kfuzz.execution.memory.poison import Poison
from kfuzz.numerics.run import Expected


@dataclass(frozen=True)
class Invocation:
    """A kernel on one case, values apart.

    Attributes:
        call: takes the tensors, then the destinations positionally and the scalars
            by keyword.
        case: gives order and layout of the tensors.
        expected: metadata of each output, in order.
        alignment: bytes to which unsliced arguments are aligned.
        around: what lies around and between the arguments' elements.
        scalars: the scalars that the implementation takes.
        inplace: arguments whose bytes become the result.
        destinations: memory for the outputs, one for each in order, where the kernel is
            given it: placed as the arguments are, and holding what fresh memory does.
        config: which autotune configuration runs, modulo their number.
    """

    call: Callable[..., Any]
    case: Case
    expected: Mapping[str, Expected]
    alignment: int
    around: Poison
    scalars: Mapping[str, object] = field(default_factory=dict)
    inplace: Sequence[str] = ()
    destinations: Mapping[str, Destination] = field(default_factory=dict)
    config: int = 0

    @property
    def specs(self) -> dict[str, TensorSpec]:
        """The tensors that it is given, destinations last."""
        places = {name: d.spec() for name, d in self.destinations.items()}
        return {**self.case.tensors, **places}
