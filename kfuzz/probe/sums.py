"""Operators as machines that add: chosen terms go in, their sum comes out.

Each kind lays rows of terms, or of both factors of each, into the arguments of an
operator, and says which results are the sum of which row. Elementwise operators are
functions of chosen numbers.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from kfuzz.contracts.binding import BoundKernel
from kfuzz.core.arithmetic_facts import Observed
from kfuzz.core.dtypes import DTYPES, unpack_numbers
from kfuzz.core.recipe import Case, Scalar, TensorSpec
from kfuzz.probe.rows import element, transposed

_SHAPES: Final = ((1, ""), (1, "d0"), (8, "d0"), (16, "d0"))


_Laid = tuple[tuple[int, ...], tuple[str, ...], bytes]
"""A tensor as its shape, the names of its axes and its elements."""


@dataclass(frozen=True)
class Machine:
    """A kernel whose results for chosen data are known in exact arithmetic.

    Attributes:
        kernel: the kernel.
        dtype: format of its data.
    """

    kernel: BoundKernel
    dtype: str

    @property
    def name(self) -> str:
        """The operator's name."""
        return self.kernel.operator.name

    def _first(self, cases: Iterable[Case]) -> Case | None:
        """Return the first case in the kernel's domain."""
        operator, claims = self.kernel.operator, self.kernel.declaration
        return next((c for c in cases if operator.admits(c, claims)), None)

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

    def _numbers(
        self, observed: Observed, *, other: bool = False
    ) -> tuple[Sequence[float], tuple[int, ...]]:
        """Return the first output's elements and its shape.

        Args:
            observed: what a call gave.
            other: whether to read the results that had other bits.
        """
        [name, *_] = self.kernel.operator.outputs
        spec = (observed.other if other else observed.outputs)[name]
        assert spec.values is not None
        return unpack_numbers(spec.values, spec.dtype), spec.shape


@dataclass(frozen=True)
class Elements(Machine):
    """A kernel that computes each element from those in its place."""

    arguments: tuple[str, ...]

    def case(self, *columns: Sequence[float]) -> Case | None:
        """Return the case with the values of each argument; None where none is valid.

        Raises:
            ValueError: if the format lacks one.
        """
        packed = [b"".join(element(v, self.dtype) for v in c) for c in columns]
        return self._first(self._cases(packed, len(columns[0])))

    def _cases(self, columns: Sequence[bytes], n: int) -> Iterator[Case]:
        for rows, axis in _SHAPES:
            shape = (rows, n) if axis else (n,)
            axes = ("d0", "d1") if axis else ("d0",)
            tensors = {
                name: TensorSpec(shape, axes, self.dtype, values=data * rows)
                for name, data in zip(self.arguments, columns, strict=True)
            }
            yield self._case(tensors)

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
    plain = operator.dim is None and operator.reduced is None
    for name in names:
        parameter = operator.tensors[name]
        plain = plain and parameter.dims == "*" and parameter.kind == "float"
        plain = plain and not parameter.dtype
    if not plain or len(operator.outputs) > 1:
        return f"{operator.name} is no function of single elements"
    return Elements(kernel, dtype, names)


# Sizes tried where a kernel takes only some: its own restriction decides.
_WIDTHS: Final = (16, 8, 1, 32, 64, 128, 256)
_HEADS: Final = (16, 64, 32, 128, 8)
_QUERIES: Final = (16, 1, 64, 128)
_GRAINS: Final = (1, 8, 16, 32, 64, 128)


@dataclass(frozen=True)
class Sums(Machine):
    """A kernel whose results are sums of chosen terms.

    Attributes:
        output: format of its results.
        products: whether terms are products of two factors that can be chosen.
        exact: whether nothing but the additions and the store may round.
    """

    output: str
    products: ClassVar[bool] = False
    exact: ClassVar[bool] = True

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
        self, observed: Observed, rows: int, *, apart: bool, other: bool = False
    ) -> list[tuple[float, ...]]:
        """Return the results of each row: as many as the operator makes of it.

        Args:
            observed: what a call gave.
            rows: how many rows it was given.
            apart: whether each row has right factors of its own.
            other: whether to read the results that had other bits.
        """
        values, shape = self._numbers(observed, other=other)
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


class Weighted(Sums):
    """Attention with equal keys: the mean of the values, each of weight 1 / n.

    Kernels may be off by some units in the last place of the weights.
    """

    exact = False

    def divisor(self, n: int) -> int:
        """Return n."""
        return n

    def _cases(
        self, n: int, lefts: Sequence[bytes], rights: Sequence[bytes]
    ) -> Iterator[Case]:
        if n & (n - 1):
            return  # 1 / n would be rounded
        width = DTYPES[self.dtype].itemsize
        for head in _HEADS:
            batch = -(-len(lefts) // head)
            filled = [*lefts, *[self._zero(n)] * (batch * head - len(lefts))]
            values = b"".join(
                transposed(filled[b * head : (b + 1) * head], n, width)
                for b in range(batch)
            )
            for queries in _QUERIES:
                q, kv = (batch, 1, queries, head), (batch, 1, n, head)
                axes, zero = ("B", "G", "T", "D"), self._zero
                tensors: dict[str, _Laid] = {
                    "q": (q, ("B", "H", "S", "D"), zero(batch * queries * head)),
                    "k": (kv, axes, zero(batch * n * head)),
                    "v": (kv, axes, values),
                    "mask": ((queries, n), ("S", "T"), zero(queries * n)),
                }
                yield self._made(tensors, causal=False)

    def _row(
        self, values: Sequence[float], shape: tuple[int, ...], row: int
    ) -> tuple[float, ...]:
        _, _, queries, head = shape
        start = row // head * queries * head + row % head
        return tuple(values[start + s * head] for s in range(queries))


_KINDS: Final[Mapping[str, type[Sums]]] = {
    "sum": Reduction, "mean": Reduction,
    "matmul": Products, "bmm": Products, "linear": Products,
    "scaled_matmul": Products,
    "attention": Weighted,
}  # fmt: skip


def sums_of(kernel: BoundKernel, dtype: str, output: str) -> Sums | str:
    """Return a kernel as a machine that adds, or why it is none."""
    operator = kernel.operator
    if operator.forward is not None:
        return "probes read forward kernels"
    kind = _KINDS.get(operator.name)
    if kind is None:
        return f"no probe chooses what {operator.name} adds"
    return kind(kernel, dtype, output)


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
