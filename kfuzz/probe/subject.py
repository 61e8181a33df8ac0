"""What probes ask: a kernel in one format, and what calls of it gave."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from kfuzz.contracts.binding import BoundKernel
from kfuzz.core.accumulators import Accumulator
from kfuzz.core.arithmetic_facts import Observed, Outcome, Reading
from kfuzz.core.budget import SizeBudget
from kfuzz.core.declaration import Declaration
from kfuzz.core.recipe import Case
from kfuzz.probe.rows import Row
from kfuzz.probe.sums import Elements, Sums, elements_of, sums_of

ONES: Final = (Row(1.0),)
"""Right factors of 1."""

NOTHING: Final = "nothing is declared of it"
SIZES: Final = (16, 32, 64, 128, 256)
"""Numbers of terms, the least that tells something first."""

# Rows that have right factors of their own make a result for each pair of them.
_MOST_APART: Final = 64


class Unobserved(Exception):
    """Why a probe cannot tell.

    Args:
        reason: in words.
        known: what the reading says all the same, by its fields.
    """

    def __init__(self, reason: str, **known: object) -> None:
        super().__init__(reason)
        self.known = known


class Inapplicable(Unobserved):
    """Why a probe has nothing to do with a kernel or a format."""


@dataclass
class Subject:
    """A kernel in one format, as probes see it.

    Attributes:
        kernel: the kernel.
        dtype: format of the data.
        ask: makes equal calls on a case, as many as it is told.
        budget: limits on cases.
        most_terms: most terms of a sum.
        most_pairs: most sums that finding an order may take.
        output: format of the results; that of the data where it is "".
        rows_per_call: rows of each call that asks for an order.
        calls: calls made so far.
        sums: the kernel as a machine that adds, or why it is none.
        elements: the kernel as a function of elements, or why it is none.
    """

    kernel: BoundKernel
    dtype: str
    ask: Callable[[Case, int], Observed]
    budget: SizeBudget
    most_terms: int = 64
    most_pairs: int = 4096
    output: str = ""
    rows_per_call: int = 32
    calls: int = 0
    sums: Sums | str = field(init=False)
    elements: Elements | str = field(init=False)

    def __post_init__(self) -> None:
        """See what kind of kernel it is."""
        self.output = self.output or self.dtype
        self.sums = sums_of(self.kernel, self.dtype, self.output)
        self.elements = elements_of(self.kernel, self.dtype)

    @property
    def claims(self) -> Declaration:
        """What the kernel declares."""
        return self.kernel.declaration

    @property
    def accumulator(self) -> Accumulator:
        """How it declares to keep sums."""
        return Accumulator.parse(self.claims.accumulator)

    @property
    def adder(self) -> Sums:
        """The kernel as a machine that adds.

        Raises:
            Inapplicable: if it is none.
        """
        if isinstance(self.sums, str):
            raise Inapplicable(self.sums)
        return self.sums

    def observed(self, case: Case, times: int = 1) -> Observed:
        """Return what equal calls on a case give.

        Raises:
            Unobserved: if there are no results.
        """
        made = self.ask(case, times)
        self.calls += made.calls
        if made.problem:
            raise Unobserved(made.problem)
        return made

    def case(self, n: int, lefts: Sequence[Row], rights: Sequence[Row] = ONES) -> Case:
        """Return the case that sums rows of n terms.

        Raises:
            Unobserved: if none is in the kernel's domain, or the format lacks a value.
        """
        try:
            made = self.adder.case(
                n,
                [row.packed(n, self.dtype) for row in lefts],
                [row.packed(n, self.dtype) for row in rights],
            )
        except ValueError as error:
            raise Unobserved(str(error)) from None
        if made is None:
            raise Unobserved(f"no sums of {n} terms lie in its domain")
        return made

    def first_case(
        self, n: int, lefts: Sequence[Row], rights: Sequence[Row] = ONES
    ) -> tuple[Case, int]:
        """Return the case that sums the first rows, and how many: all, or half, ….

        Raises:
            Unobserved: if the kernel's domain has not even one.
        """
        count, apart = len(lefts), len(rights) > 1
        while True:
            own = rights[:count] if apart else rights
            try:
                return self.case(n, lefts[:count], own), count
            except Unobserved:
                if count == 1:
                    raise
            count = (count + 1) // 2

    def admits(self, n: int) -> bool:
        """Whether sums of n terms lie in the kernel's domain."""
        try:
            self.case(n, [Row()])
        except Unobserved:
            return False
        return True

    def size(self, sizes: Sequence[int] = SIZES) -> int:
        """Return the first number of terms whose sums lie in the kernel's domain.

        Raises:
            Inapplicable: if it adds nothing that can be chosen.
            Unobserved: if no sums do.
        """
        self.adder  # noqa: B018 - it says why there is none
        for n in sizes:
            if self.admits(n):
                return n
        raise Unobserved(f"no sums of {SIZES[0]} terms or more lie in its domain")

    def elementwise(self, *columns: Sequence[float]) -> tuple[Case, Sequence[float]]:
        """Return the case with the values of each argument, and its results.

        Raises:
            Unobserved: if none is in the kernel's domain, or there are no results.
        """
        assert not isinstance(self.elements, str)
        case = self.elements.case(*columns)
        if case is None:
            raise Unobserved("no such elements lie in its domain")
        return case, self.elements.read(self.observed(case), len(columns[0]))

    def results(
        self,
        n: int,
        lefts: Sequence[Row],
        rights: Sequence[Row] = ONES,
        *,
        most: int | None = None,
    ) -> list[tuple[float, ...]]:
        """Return all results that are the sum of each row, times what divides it.

        Args:
            n: terms of a row.
            lefts: terms of each row, or their left factors.
            rights: right factors, of all rows or of each.
            most: most rows for one call.

        Raises:
            Unobserved: if there are none.
        """
        apart = len(rights) > 1
        room = max(1, min(self.budget.rows, self.budget.elements // max(n, 1)))
        room = min(room, most or room, _MOST_APART if apart else room)
        found: list[tuple[float, ...]] = []
        scale = float(self.adder.divisor(n))
        start = 0
        while start < len(lefts):
            some = lefts[start : start + room]
            own = rights[start : start + room] if apart else rights
            case, room = self.first_case(n, some, own)
            start += room
            made = self.observed(case)
            lines = self.adder.read(made, room, apart=apart and room > 1)
            found += [tuple(v * scale for v in line) for line in lines]
        return found

    def values(
        self,
        n: int,
        lefts: Sequence[Row],
        rights: Sequence[Row] = ONES,
        *,
        most: int | None = None,
    ) -> list[float]:
        """Return the one sum of each row, times what divides it.

        Raises:
            Unobserved: if there are none, or results of one row differ.
        """
        lines = self.results(n, lefts, rights, most=most)
        for line in lines:
            if any(v != line[0] and not (v != v and line[0] != line[0]) for v in line):
                text = f"results of equal terms differ in one call: {line[0]!r}, …"
                raise Unobserved(text)
        return [line[0] for line in lines]

    def reading(
        self, probe: str, found: str, declared: str, outcome: Outcome, **rest: object
    ) -> Reading:
        """Return a reading of this kernel in this format.

        Args:
            probe: the probe's name.
            found: what the arithmetic is, in words.
            declared: what the kernel declares of it.
            outcome: how the two stand to one another.
            rest: further fields; witnesses are kept of what differs alone.
        """
        made = Reading(probe, self.dtype, self.output, found, declared, outcome)
        if outcome is not Outcome.DIFFERS:
            rest.pop("witnesses", None)
        return replace(made, **rest)  # type: ignore[arg-type]

    def undeclared(
        self, probe: str, found: str, reason: str = NOTHING, **rest: object
    ) -> Reading:
        """Return a reading of what the kernel's declaration does not speak of."""
        return self.reading(
            probe, found, "", Outcome.NOT_APPLICABLE, reason=reason, **rest
        )


def shown(values: Sequence[float]) -> str:
    """Return numbers as a raw observation: decimal, powers of two as such."""
    return ", ".join(map(number, values))


def number(value: float) -> str:
    """Return a number in few characters."""
    if value and math.isfinite(value):
        mantissa, exponent = math.frexp(abs(value))
        if mantissa == 0.5 and abs(exponent - 1) > 9:
            return f"{'-' if value < 0 else ''}2^{exponent - 1}"
    return f"{value:.9g}"
