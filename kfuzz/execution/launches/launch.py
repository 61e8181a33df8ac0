"""Launches of a Triton kernel as its wrapper makes them: arguments and grid.

All frozen: a launch is compared with others, and watched in later runs.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

UNKNOWN: Final = -1
"""What is in front of a pointer where that is not known."""


@dataclass(frozen=True)
class TensorArgument:
    """A pointer that a kernel is given.

    Attributes:
        type: as in a signature, "*fp32".
        itemsize: bytes of an element.
        shape: of the tensor that the wrapper passes; () for a bare pointer.
        strides: in elements.
        storage: number of its storage in the call: equal ones overlap.
        before: elements from the first that may be touched to the pointer, or UNKNOWN.
        after: elements from the pointer that may be touched.
        name: of the operator's argument that the storage belongs to; "" for memory
            that the wrapper allocates.
        below: what the values stay below where they are indices, else None.
        ignored: which index there may be besides, None if none.
        filled: whether torch has put values there before the launch.
        output: whether the storage holds a result of the call.
        aligned: whether the pointer is a multiple of 16 bytes.
        block: of a descriptor made on the host its block's shape, else None.
    """

    type: str
    itemsize: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    storage: int
    before: int
    after: int
    name: str = ""
    below: int | None = None
    ignored: int | None = None
    filled: bool = False
    output: bool = False
    aligned: bool = True
    block: tuple[int, ...] | None = None

    @property
    def numel(self) -> int:
        """Number of its elements."""
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def span(self) -> int:
        """Elements from the first to the last addressed one."""
        if not self.numel:
            return 0
        steps = zip(self.shape, self.strides, strict=True)
        return 1 + sum((n - 1) * s for n, s in steps)

    @property
    def distinct(self) -> bool:
        """Whether no two elements share memory, as far as nesting strides tell."""
        steps = zip(self.strides, self.shape, strict=True)
        reach = 0
        for stride, size in sorted((s, n) for s, n in steps if n > 1):
            if stride <= reach:
                return False
            reach += (size - 1) * stride
        return True

    @property
    def contiguous(self) -> bool:
        """Whether the elements, if there are any, lie in C order without gaps."""
        if not self.numel:
            return True
        step = 1
        for size, stride in zip(
            reversed(self.shape), reversed(self.strides), strict=True
        ):
            if size != 1 and stride != step:
                return False
            step *= size
        return True


@dataclass(frozen=True)
class IntArgument:
    """An integer that a kernel is given.

    Attributes:
        type: "i32", "i64", …, by its value where none is declared.
        value: the integer.
        declared: whether the parameter has a type of its own.
    """

    type: str
    value: int
    declared: bool = False


@dataclass(frozen=True)
class OtherArgument:
    """A float that a kernel is given: no address depends on it.

    Attributes:
        type: "fp32", ….
    """

    type: str


@dataclass(frozen=True)
class ConstArgument:
    """A constant of a launch.

    Attributes:
        value: the constant; None where an argument is left out.
        text: how it is told from others.
    """

    value: Any = field(compare=False)
    text: str

    @property
    def number(self) -> int | None:
        """The constant as an integer, None where it is none."""
        return int(self.value) if isinstance(self.value, int) else None


Argument = TensorArgument | IntArgument | OtherArgument | ConstArgument


@dataclass(frozen=True)
class Launch:
    """One launch of one kernel.

    Attributes:
        kernel: name of the function.
        file: in which it is defined.
        line: of its definition.
        arguments: by parameter name, in order.
        grid: programs along x, y and z.
        options: of the compilation, such as num_warps.
        sizes: the operator's dimensions and integer scalars by name.
    """

    kernel: str
    file: str
    line: int
    arguments: Mapping[str, Argument]
    grid: tuple[int, int, int]
    options: Mapping[str, Any] = field(compare=False)
    sizes: Mapping[str, int]

    @property
    def vacuous(self) -> bool:
        """Whether no program runs, and there is no element that one would store."""
        tensors = [a for a in self.arguments.values() if isinstance(a, TensorArgument)]
        return 0 in self.grid and all(0 in a.shape for a in tensors)

    @property
    def constants(self) -> tuple[tuple[str, str], ...]:
        """Names and texts of its constants."""
        made = self.arguments.items()
        return tuple((n, a.text) for n, a in made if isinstance(a, ConstArgument))

    def unknown_in(self, storages: Collection[int]) -> "Launch":
        """Return it where nothing is known of integers in some storages."""
        arguments = {
            name: replace(a, below=None, ignored=None)
            if isinstance(a, TensorArgument)
            and a.storage in storages
            and a.below is not None
            else a
            for name, a in self.arguments.items()
        }
        if all(a is b for a, b in zip(
            arguments.values(), self.arguments.values(), strict=True
        )):  # fmt: skip
            return self
        return replace(self, arguments=arguments)

    @property
    def types(self) -> tuple[str, ...]:
        """Types of its other arguments, but for the width of undeclared integers."""
        return tuple(
            "" if isinstance(a, IntArgument) and not a.declared else a.type
            for a in self.arguments.values()
            if not isinstance(a, ConstArgument)
        )
