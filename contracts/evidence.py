"""What a view holds up: an element that misses, rows of a batch, bits that differ."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from kfuzz.core.verdict import Kind
from kfuzz.numerics.run import Run


@dataclass(frozen=True)
class Miss:
    """The worst element of one output that lies outside its acceptance.

    Attributes:
        output: name of the output.
        kind: how it misses.
        index: logical index.
        got: value stored by the kernel.
        expected: reference value; None where a relation between the results, not
            one value, is what it misses.
        low: least admissible stored value; None likewise.
        high: greatest admissible stored value; None likewise.
        ratio: |error| / tolerance, None where the result must be exact.
        elements: number of missing elements of this output.
        of: number of elements of this output.
        promise: what the relation asks for, in words.
    """

    output: str
    kind: Kind
    index: tuple[int, ...]
    got: float
    expected: float | None
    low: float | None
    high: float | None
    ratio: float | None
    elements: int
    of: int
    promise: str = ""

    def describe(self) -> str:
        """Return one line: where, what was got, what was admissible."""
        place = f"{self.output}[{', '.join(map(str, self.index))}]"
        if self.expected is None or self.low is None or self.high is None:
            text = f"{place} = {self.got:.9g}, against: {self.promise}"
        elif self.kind is Kind.VALUE:
            wanted = f"admissible {self.low:.9g} to {self.high:.9g}"
            if self.low == self.high:
                wanted = f"exactly {self.low:.9g}"
            far = f", {self.ratio:.3g} x tolerance" if self.ratio else ""
            text = f"{place} = {self.got:.9g}, {wanted}{far}"
        else:
            text = f"{place} = {self.got:.9g}, expected {self.expected:.9g}"
        if self.elements > 1:
            text += f" ({self.elements} of {self.of} elements)"
        return text

    @property
    def excess(self) -> float | None:
        """|error| over the distance from the reference to the admissible end.

        Above 1 for every numerical miss; None where the result must be exact.
        """
        got, expected = self.got, self.expected
        if expected is None or self.low is None or self.high is None:
            return None
        room = self.high - expected if got > expected else expected - self.low
        if not (math.isfinite(got) and math.isfinite(room) and room > 0):
            return None
        return abs(got - expected) / room


@dataclass(frozen=True)
class Batch:
    """What a kernel left on some rows of a case.

    Attributes:
        rows: which rows of the case, in the order in which they were given.
        axes: per output the axis that they lie along.
        run: what the call left.
    """

    rows: tuple[int, ...]
    axes: Mapping[str, int]
    run: Run

    def differing(self, whole: "Batch") -> dict[str, Tensor]:
        """Return, per output, where these rows hold other bits than in the whole."""
        places = {}
        for name, made in self.run.outputs.items():
            rows = torch.tensor(self.rows, device=made.device)
            axis = self.axes[name]
            bits = as_integers(whole.run.outputs[name]).index_select(axis, rows)
            places[name] = ~same_bits(bits.view(made.dtype), made)
        return places


def same_bits(a: Tensor, b: Tensor) -> Tensor:
    """Return where two tensors of one dtype hold the same bits (NaN = NaN)."""
    x, y = a.contiguous(), b.contiguous()
    equal = as_integers(x) == as_integers(y)
    return equal | (torch.isnan(x) & torch.isnan(y))


def as_integers(values: Tensor) -> Tensor:
    """Return contiguous elements of any dtype as the integers of their size."""
    ints = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return values.view(ints[values.element_size()])
