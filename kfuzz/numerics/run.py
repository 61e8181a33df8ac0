"""What executions of a kernel leave, as data: execution fills it, contracts read it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from kfuzz.core.verdict import Access, Allocation, Kind
from kfuzz.numerics.formats import Footprint

Where = Literal["element", "slack", "before", "after"]
Side = Literal["before", "after"]


@dataclass(frozen=True)
class Expected:
    """Metadata that one output must have.

    Attributes:
        shape: sizes.
        dtype: element type.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class Metadata:
    """What is wrong with a result before any value is read.

    Attributes:
        kind: how it shows.
        output: name of the result.
        message: one line for people.
        wider: its type, if nothing is wrong but that this floating type is wider than
            asked for; "" otherwise.
    """

    kind: Kind
    output: str
    message: str
    wider: str = ""


@dataclass(frozen=True)
class Raised:
    """An exception that left the kernel.

    Attributes:
        type: its class name.
        message: its first line.
        traceback: as Python prints it, its end where it is long.
        backend: whether it came from inside Triton's interpreter, or Triton had
            nothing to run on.
        memory: whether it says that memory ran out.
        fault: for what the device can do nothing more in this process: the name of
            the error; "" if it can.
        build: what could not be built for the call, as the `BuildError` says it;
            "" if that is not why.
        gpu: what says that the call needs a GPU, where it was made without one; "" if
            nothing does.
        stated: whether a `raise`, an `assert` or compiled code that was called raised
            it, and not an operation or a lookup that failed.
    """

    type: str
    message: str
    traceback: str
    backend: bool = False
    memory: bool = False
    fault: str = ""
    build: str = ""
    gpu: str = ""
    stated: bool = False

    @property
    def lost(self) -> bool:
        """Whether the device can do nothing more in this process."""
        return bool(self.fault)


def _elements(count: int) -> str:
    return f"{count} element{'s' if count != 1 else ''}"


def _outside(count: int, where: Where, distance: int) -> str:
    side = "past the end" if where == "after" else "before the start"
    return f"{_elements(count)} {side}, the nearest by {distance}"


@dataclass(frozen=True)
class Touch:
    """Bytes of an argument's memory that a launch changed.

    Attributes:
        argument: parameter name.
        where: "element" of the view, "slack" between its elements, or "before" or
            "after" the view's span.
        count: elements changed there.
        distance: elements from the nearest changed one to the nearest element of
            the view: 1 is one past the end, 0 an element itself.
        itemsize: bytes per element.
        first_index: logical index of the first changed element; None elsewhere.
    """

    argument: str
    where: Where
    count: int
    distance: int
    itemsize: int
    first_index: tuple[int, ...] | None = None

    def describe(self) -> str:
        """Return how many elements changed, and where."""
        if self.where == "element":
            first = ", ".join(map(str, self.first_index or ()))
            return f"{_elements(self.count)} changed, the first at [{first}]"
        if self.where == "slack":
            return (
                f"{_elements(self.count)} between its own, in the gaps of its strides"
            )
        return _outside(self.count, self.where, self.distance)


@dataclass(frozen=True)
class AllocationTouch:
    """Bytes that were changed outside a tensor that the kernel allocated.

    Attributes:
        allocation: which one, counted from 0 in the order of allocation.
        shape: its shape when allocated.
        dtype: its dtype, as torch calls it without the prefix.
        where: "before" or "after" its storage.
        count: elements changed there.
        distance: elements from the nearest changed one to the storage: 1 is one
            past the end.
    """

    allocation: int
    shape: tuple[int, ...]
    dtype: str
    where: Side
    count: int
    distance: int

    def describe(self) -> str:
        """Return which allocation, how many elements, and where."""
        far = _outside(self.count, self.where, self.distance)
        return f"{self.dtype}{list(self.shape)}, {far}"


@dataclass(frozen=True)
class UncheckedLaunch:
    """An error of the runtime that a call left pending.

    Attributes:
        name: as the runtime calls it: "cudaErrorInvalidConfiguration".
        text: what it means, in the runtime's words.
        certain: whether only a launch leaves such an error. An invalid argument,
            which a launch with too much shared memory leaves, may come from a query
            whose answer the code did not need.
    """

    name: str
    text: str
    certain: bool


@dataclass(frozen=True, eq=False)
class Run:
    """What one execution left.

    Attributes:
        outputs: cloned, contiguous results by output name; empty if it raised
            or returned something else.
        raised: the exception, if one left the kernel.
        metadata: what is wrong with the result's metadata, if anything.
        wider: the result in a wider type, rounded here, if there is one.
        touches: writes to its arguments' memory.
        strays: writes around its own allocations.
        unreliable: why the backend's results may be wrong, or "".
        accesses: what Triton's interpreter saw it do to memory that it should not.
        programs: programs that Triton's interpreter ran.
        alone: why it ran those of a launch one after the other, where it did.
        config: the configuration that it ran, in words, or "".
        configs: of how many it is one, as far as that is known.
        foreign: torch's own operators that computed during the call.
        arguments: where the elements of each argument but the destinations lay.
        results: where each result's elements lay.
        unchecked: a launch that failed on a GPU though the call returned.
        beside: its own allocation that was to lie at the edge, if there was one.
        left: what it left changed of torch's own state, in words.
    """

    outputs: Mapping[str, Tensor] = field(default_factory=dict)
    raised: Raised | None = None
    metadata: Metadata | None = None
    wider: Metadata | None = None
    touches: tuple[Touch, ...] = ()
    strays: tuple[AllocationTouch, ...] = ()
    unreliable: str = ""
    accesses: tuple[Access, ...] = ()
    programs: int = 0
    alone: tuple[str, ...] = ()
    config: str = ""
    configs: int = 0
    foreign: tuple[str, ...] = ()
    arguments: Mapping[str, Footprint] = field(default_factory=dict)
    results: Mapping[str, Footprint] = field(default_factory=dict)
    unchecked: UncheckedLaunch | None = None
    beside: Allocation | None = None
    left: tuple[str, ...] = ()

    @property
    def returned(self) -> bool:
        """Whether the call came back without an exception."""
        return self.raised is None

    @property
    def comparable(self) -> bool:
        """Whether there are results of the right metadata; not if it never ran."""
        return self.returned and self.metadata is None and bool(self.outputs)
