"""Operators as machines that add: chosen terms go in, their sum comes out.

Each kind lays rows of terms, or of both factors of each, into the arguments of an
operator, and says which results are the sum of which row. Elementwise operators are
functions of chosen numbers.
"""

import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import ClassVar, Final, TypeAlias

from kfuzz.contracts.binding import BoundKernel
from kfuzz.core.budget import SizeBudget
from kfuzz.core.declaration import Accumulator, Declaration
from kfuzz.core.dtypes import DTYPES, number_to_bits, pack_bits, unpack_numbers
from kfuzz.core.recipe import Case, Scalar, TensorSpec
from kfuzz.core.verdict import Observed
from kfuzz.numerics.formats import FORMATS

# What probes see of a kernel's arithmetic, and what they say of it.

Tree: TypeAlias = int | tuple["Tree", ...]
"""An order of additions: the number of a term, or the trees whose sums are added."""

Claim: TypeAlias = bool | str | tuple[str, ...]
"""The value of a declaration."""


class Outcome(StrEnum):
    """How what a kernel is stands to what it declares."""

    AS_DECLARED = "as declared"
    BETTER = "better"
    DIFFERS = "differs"
    NOT_APPLICABLE = "not applicable"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Reading:
    """What one probe says of one kernel and format.

    Attributes:
        probe: the probe's name.
        dtype: format of the data.
        output: format of the results.
        found: what the arithmetic is, in words; "" where that is not known.
        declared: what the kernel declares of it, "" where nothing.
        outcome: how the two stand to one another.
        reason: why, where that does not show.
        terms: how many terms the sums had; 0 where none were made.
        tree: the order of additions, where one was found.
        claims: keywords of `kfuzz.kernel` that declare what was found.
        observed: raw observations, one line each.
        finding: id of the finding that a difference is.
        witnesses: cases that should show the difference to the contracts.
    """

    probe: str
    dtype: str
    output: str
    found: str
    declared: str
    outcome: Outcome
    reason: str = ""
    terms: int = 0
    tree: Tree | None = None
    claims: Mapping[str, Claim] = field(default_factory=dict)
    observed: tuple[str, ...] = ()
    finding: str = ""
    witnesses: tuple[Case, ...] = field(default=(), repr=False)


# Rows of terms as bytes: most elements alike, a few of their own.


@dataclass(frozen=True)
class Row:
    """The terms of one sum, or one factor of each.

    Attributes:
        fill: the value of most.
        at: the others, by position.
        raw: all of them as bytes, in place of both.
    """

    fill: float = 0.0
    at: Mapping[int, float] = field(default_factory=dict)
    raw: bytes = b""

    def packed(self, n: int, dtype: str) -> bytes:
        """Return n elements of a format.

        Raises:
            ValueError: if the format lacks a value, or `raw` has another size.
        """
        width = DTYPES[dtype].itemsize
        if self.raw:
            if len(self.raw) != n * width:
                raise ValueError("a row of another size")
            return self.raw
        data = bytearray(element(self.fill, dtype) * n)
        for place, value in self.at.items():
            data[place * width : (place + 1) * width] = element(value, dtype)
        return bytes(data)


@lru_cache(maxsize=4096)
def element(value: float, dtype: str) -> bytes:
    """Return the bytes of a value that a format holds exactly.

    Raises:
        ValueError: if it does not.
    """
    return pack_bits([number_to_bits(value, dtype)], dtype)


def transposed(rows: Sequence[bytes], n: int, width: int) -> bytes:
    """Return the columns of rows of n elements, one after the other."""
    cuts = range(0, n * width, width)
    return b"".join(row[at : at + width] for at in cuts for row in rows)


def spread(
    n: int, dtype: str, *, seed: int, octaves: int, cancelling: bool = False
) -> bytes:
    """Return n values of either sign whose exponents are spread around 0.

    Every order of adding them rounds otherwise. With `cancelling` each comes with its
    negative, so that roundings are all that is left: narrow results show them too.
    """
    made, generator = DTYPES[dtype], random.Random(seed)
    bias = (1 << (made.exponent_bits - 1)) - 1
    low, high = max(1, bias - octaves), min(2 * bias, bias + octaves)
    patterns = [
        generator.getrandbits(1) << (made.exponent_bits + made.mantissa_bits)
        | generator.randint(low, high) << made.mantissa_bits
        | generator.getrandbits(made.mantissa_bits)
        for _ in range(n // 2 if cancelling else n)
    ]
    if not made.has_inf:  # the greatest pattern is NaN there
        patterns = [p & ~1 for p in patterns]
    if cancelling:
        sign = 1 << (made.exponent_bits + made.mantissa_bits)
        patterns += [p ^ sign for p in patterns]
        generator.shuffle(patterns)
    return pack_bits(patterns, dtype)


_Laid = tuple[tuple[int, ...], tuple[str, ...], bytes]
"""A tensor as its shape, the names of its axes and its elements."""


@dataclass(frozen=True)
class Machine:
    """A kernel whose results for chosen data are known in exact arithmetic.

    Attributes:
        kernel: the kernel.
        dtype: format of its data.
        output: format of its results.
        arguments: names of the arguments that data is chosen for, of elements alone.
    """

    kernel: BoundKernel
    dtype: str
    output: str = ""
    arguments: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The operator's name."""
        return self.kernel.operator.name

    def _first(self, cases: Iterable[Case]) -> Case | None:
        """Return the first case in the kernel's domain."""
        operator, claims = self.kernel.operator, self.kernel.declaration
        return next((c for c in cases if operator.accepts(c, claims)), None)

    def _case(self, tensors: Mapping[str, TensorSpec], **scalars: Scalar) -> Case:
        """Return a case with the tensors and scalars that the kernel takes."""
        takes, operator = self.kernel.arguments, self.kernel.operator
        given = {n: operator.default_of(n) for n in takes.scalars} | scalars
        return Case(
            {n: s for n, s in tensors.items() if n in takes.tensors},
            {n: v for n, v in given.items() if n in takes.scalars},
            poison="nan",
            config=0,
        )

    def _numbers(self, observed: Observed) -> tuple[Sequence[float], tuple[int, ...]]:
        """Return the first output's elements and its shape."""
        [name, *_] = self.kernel.operator.outputs
        spec = observed.outputs[name]
        assert spec.values is not None
        return unpack_numbers(spec.values, spec.dtype), spec.shape


class Elements(Machine):
    """A kernel that computes each element from those in its place."""

    def case(self, *columns: Sequence[float]) -> Case | None:
        """Return the case with the values of each argument; None where none is valid.

        Raises:
            ValueError: if the format lacks one.
        """
        packed = [b"".join(element(v, self.dtype) for v in c) for c in columns]
        return self._first(
            self._case({
                name: TensorSpec(
                    (rows, len(columns[0]))[-rank:], ("d0", "d1")[:rank], self.dtype,
                    values=data * rows,
                )
                for name, data in zip(self.arguments, packed, strict=True)
            })
            for rows, rank in ((1, 1), (1, 2), (8, 2), (16, 2))
        )  # fmt: skip

    def read(self, observed: Observed, n: int) -> Sequence[float]:
        """Return the first n results."""
        return self._numbers(observed)[0][:n]


def elements_of(kernel: BoundKernel, dtype: str) -> Elements | str:
    """Return a kernel as a function of elements, or why it is none."""
    operator = kernel.operator
    if operator.forward is not None:
        return "probes read forward kernels"
    tensors: Mapping[str, object] = operator.tensors
    names = tuple(n for n in kernel.arguments.tensors if n in tensors)
    taken = [operator.tensors[name] for name in names]
    plain = operator.dim is None and operator.reduced is None
    plain = plain and len(operator.outputs) == 1
    if not plain or not all(
        p.dims == "*" and p.kind == "float" and not p.dtype for p in taken
    ):
        return f"{operator.name} is no function of single elements"
    return Elements(kernel, dtype, arguments=names)


# Sizes tried where a kernel takes only some: its own restriction decides.
_WIDTHS: Final = (16, 8, 1, 32, 64, 128, 256)
_GRAINS: Final = (1, 8, 16, 32, 64, 128)


class Sums(Machine):
    """A kernel whose results are sums of chosen terms.

    Attributes:
        products: whether terms are products of two factors that can be chosen.
    """

    products: ClassVar[bool] = False

    def divisor(self, n: int) -> int:
        """Return what a sum of n terms is divided by."""
        return 1

    def case(
        self, n: int, lefts: Sequence[bytes], rights: Sequence[bytes]
    ) -> Case | None:
        """Return the case that sums rows of n terms; None where none is allowed.

        Args:
            n: terms of a row.
            lefts: each row's terms, or their left factors.
            rights: the right factors: of all rows, or of each.
        """
        return self._first(self._cases(n, lefts, rights))

    def read(
        self, observed: Observed, rows: int, *, apart: bool
    ) -> list[tuple[float, ...]]:
        """Return the results of each row: as many as the operator makes of it.

        Args:
            observed: what a call gave.
            rows: how many rows it was given.
            apart: whether each row has right factors of its own.
        """
        values, shape = self._numbers(observed)
        found = [self._row(values, shape, row) for row in range(rows)]
        return [(line[r],) for r, line in enumerate(found)] if apart else found

    def _cases(
        self, n: int, lefts: Sequence[bytes], rights: Sequence[bytes]
    ) -> Iterator[Case]:
        raise NotImplementedError

    def _row(
        self, values: Sequence[float], shape: tuple[int, ...], row: int
    ) -> tuple[float, ...]:
        """Return the results of one row: all of a row of a matrix."""
        columns = shape[-1] if len(shape) > 1 else 1
        return tuple(values[row * columns : (row + 1) * columns])

    def _made(self, tensors: Mapping[str, _Laid], **scalars: Scalar) -> Case:
        """Return a case with the tensors and scalars that the kernel takes."""
        specs = {
            name: TensorSpec(shape, axes, self.dtype, values=values)
            for name, (shape, axes, values) in tensors.items()
        }
        return self._case(specs, **{**scalars, "dtype": self.output})

    def _zero(self, n: int) -> bytes:
        return element(0.0, self.dtype) * n


class Reduction(Sums):
    """sum and mean along a dimension of a matrix."""

    def divisor(self, n: int) -> int:
        """Return n for means."""
        return n if self.name == "mean" else 1

    def _cases(
        self, n: int, lefts: Sequence[bytes], rights: Sequence[bytes]
    ) -> Iterator[Case]:
        operator, claims = self.kernel.operator, self.kernel.declaration
        taken = "dim" in self.kernel.arguments.scalars
        dims = (-1, 1, 0, -2) if taken else (int(operator.default_of("dim")),)
        for dim in (d for d in dims if claims.dims is None or d in claims.dims):
            for rows in _padded(len(lefts)):
                filled = [*lefts, *[self._zero(n)] * (rows - len(lefts))]
                if dim in (-1, 1):
                    shape, data = (rows, n), b"".join(filled)
                else:
                    width = DTYPES[self.dtype].itemsize
                    shape, data = (n, rows), transposed(filled, n, width)
                yield self._made({"x": (shape, ("d0", "d1"), data)}, dim=dim)

    def _row(
        self, values: Sequence[float], shape: tuple[int, ...], row: int
    ) -> tuple[float, ...]:
        return (values[row],)


class Products(Sums):
    """Matrix products: rows of the left operand, columns of the right one."""

    products = True

    def _cases(
        self, n: int, lefts: Sequence[bytes], rights: Sequence[bytes]
    ) -> Iterator[Case]:
        apart = len(rights) > 1
        widths = tuple(_padded(len(rights))) if apart else _WIDTHS
        for rows in _padded(len(lefts)):
            left = b"".join([*lefts, *[self._zero(n)] * (rows - len(lefts))])
            for columns in widths:
                # Where one right side serves all rows, so does each column.
                other = [self._zero(n)] if apart else [rights[0]]
                filled = [*rights, *other * (columns - len(rights))]
                yield self._operands(rows, n, columns, left, filled)

    def _operands(
        self, rows: int, n: int, columns: int, left: bytes, rights: Sequence[bytes]
    ) -> Case:
        tensors: dict[str, _Laid]
        if self.name == "linear":
            tensors = {
                "x": ((rows, n), ("d0", "K"), left),
                "weight": ((columns, n), ("N", "K"), b"".join(rights)),
                "bias": ((columns,), ("N",), self._zero(columns)),
            }
            return self._made(tensors)
        right = transposed(rights, n, DTYPES[self.dtype].itemsize)
        lead, axes = ((1,), ("B",)) if self.name == "bmm" else ((), ())
        tensors = {
            "a": ((*lead, rows, n), (*axes, "M", "K"), left),
            "b": ((*lead, n, columns), (*axes, "K", "N"), right),
        }
        return self._made(tensors)


_KINDS: Final[Mapping[str, type[Sums]]] = {
    "sum": Reduction, "mean": Reduction,
    "matmul": Products, "bmm": Products, "linear": Products,
    "scaled_matmul": Products,
}  # fmt: skip


def sums_of(kernel: BoundKernel, dtype: str, output: str) -> Sums | str:
    """Return a kernel as a machine that adds, or why it is none."""
    if kernel.operator.forward is not None:
        return "probes read forward kernels"
    name = kernel.operator.name
    kind = _KINDS.get(name)
    return kind(kernel, dtype, output) if kind else f"no probe chooses what {name} adds"


def data_format(kernel: BoundKernel, declared: str) -> str:
    """Return the format of the data where a kernel takes a declared dtype.

    It is another one where the operator's arguments have formats of their own, and the
    declared one is that of results.
    """
    first = next(iter(kernel.operator.tensors.values()))
    return first.dtype or declared


def _padded(rows: int) -> Iterator[int]:
    """Yield numbers of rows, the given one first, that restrictions may ask for."""
    made = [-(-rows // grain) * grain for grain in _GRAINS]
    yield from dict.fromkeys([*made, 1 << max(rows - 1, 0).bit_length()])


# What probes need to know of formats, in exact arithmetic of Python's.

SHORT: Final = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
"""Formats whose products a float32 accumulator holds exactly."""


def rounded(value: float, dtype: str) -> float:
    """Return a number rounded to a format, to nearest and ties to even."""
    if not math.isfinite(value) or value == 0 or dtype == "float64":
        return value
    made = FORMATS[dtype]
    exponent = max(math.frexp(value)[1], made.emin + 1) - made.precision
    near = math.ldexp(round(math.ldexp(value, -exponent)), exponent)
    if made.has_inf and abs(near) > made.max_finite:
        near = math.inf
    return math.copysign(near, value)


def ulps(value: float, reference: float, dtype: str) -> float:
    """Return the distance of two numbers in units of the last place of the second."""
    if value == reference or (math.isnan(value) and math.isnan(reference)):
        return 0.0
    if not math.isfinite(value) or not math.isfinite(reference):
        return math.inf
    least = FORMATS[dtype].emin + 1
    exponent = max(math.frexp(reference)[1], least) if reference else least
    return abs(value - reference) / math.ldexp(1.0, exponent - FORMATS[dtype].precision)


# What probes ask: a kernel in one format, and what calls of it gave.

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
        packed = []
        try:
            for rows in (lefts, rights):
                packed.append([row.packed(n, self.dtype) for row in rows])
            made = self.adder.case(n, *packed)
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
        count = len(lefts)
        while True:
            own = rights[:count] if len(rights) > 1 else rights
            try:
                return self.case(n, lefts[:count], own), count
            except Unobserved:
                if count == 1:
                    raise
            count = (count + 1) // 2

    def accepts(self, n: int) -> bool:
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
            if self.accepts(n):
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

    def values(
        self, n: int, lefts: Sequence[Row], rights: Sequence[Row] = ONES, *,
        most: int | None = None,
    ) -> list[float]:  # fmt: skip
        """Return the one sum of each row, times what divides it.

        Args:
            n: terms of a row.
            lefts: terms of each row, or their left factors.
            rights: right factors, of all rows or of each.
            most: most rows for one call.

        Raises:
            Unobserved: if there are none, or results of one row differ.
        """
        apart = len(rights) > 1
        room = max(1, min(self.budget.rows, self.budget.elements // max(n, 1)))
        room = min(room, most or room, _MOST_APART if apart else room)
        found: list[float] = []
        start = 0
        while start < len(lefts):
            own = rights[start : start + room] if apart else rights
            case, room = self.first_case(n, lefts[start : start + room], own)
            start += room
            made = self.observed(case)
            for line in self.adder.read(made, room, apart=apart and room > 1):
                first = line[0]
                if any(v != first and not (v != v and first != first) for v in line):
                    text = f"results of equal terms differ in one call: {line!r}"
                    raise Unobserved(text)
                found.append(first * float(self.adder.divisor(n)))
        return found

    def reading(
        self, probe: str, found: str, declared: str, outcome: Outcome, **rest: object
    ) -> Reading:
        """Return a reading of this kernel in this format.

        Args:
            probe: the probe's name.
            found: what the arithmetic is, in words.
            declared: what the kernel declares of it.
            outcome: how the two stand to one another.
            rest: further fields; `witnesses` and `claims` count where it differs, and
                `adopts`, which are claims too, elsewhere.
        """
        made = Reading(probe, self.dtype, self.output, found, declared, outcome)
        adopts = rest.pop("adopts", {})
        if outcome is not Outcome.DIFFERS:
            rest.pop("witnesses", None)
            rest["claims"] = adopts
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
