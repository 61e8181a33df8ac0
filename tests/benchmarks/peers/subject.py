"""A kernel as any test of it sees it: arguments in, results to compare with torch's."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from kfuzz.contracts.binding import BoundKernel
from kfuzz.core.declaration import ShapeClass
from kfuzz.evaluation.calling import as_argument
from kfuzz.strategies.parameters import IndexParameter, TensorParameter

# numpy has no bfloat16, and Triton's interpreter as it is installed rounds it
# otherwise than compiled Triton does.
DTYPES: Final = ("float32", "float16")


@dataclass(frozen=True)
class Budget:
    """What one search may take.

    Attributes:
        seconds: of wall time, after which no further input is tried.
        cases: most inputs on which the kernel is called; None for no limit.
    """

    seconds: float
    cases: int | None = None


@dataclass(frozen=True)
class Found:
    """What one search came to.

    Attributes:
        found: whether some input showed the kernel to be wrong.
        cases: inputs tried, the showing one included.
        seconds: until it was seen, or until the search ended.
        message: what was seen, in one line.
    """

    found: bool
    cases: int
    seconds: float
    message: str = ""


@dataclass(frozen=True)
class Sizes:
    """Sizes of the dimensions of one input.

    Attributes:
        lead: what "*" stands for.
        named: the size of each named dimension.
    """

    lead: tuple[int, ...]
    named: Mapping[str, int]


class Subject:
    """One kernel under test.

    Attributes:
        kernel: the bound kernel.
        parameters: the tensors that it takes, by name, in order.
        names: named dimensions, in order.
        variadic: whether "*" stands in some parameter.
        dtypes: floating dtypes that are tried.
        usual_dtype: that of the plain functional test.
        device: where it runs.
    """

    def __init__(
        self,
        kernel: BoundKernel,
        friendly: Sequence[tuple[int, ...]] = (),
        dtype: str = DTYPES[0],
        device: str = "cpu",
    ) -> None:
        """Take a kernel.

        Args:
            kernel: the bound kernel.
            friendly: shapes of the plain functional test.
            dtype: that of the plain functional test.
            device: torch's name.
        """
        self.kernel = kernel
        self.device = torch.device(device)
        self._friendly = friendly
        self.usual_dtype: torch.dtype = getattr(torch, dtype)
        operator, takes = self.kernel.operator, self.kernel.arguments
        self.parameters = {name: operator.tensors[name] for name in takes.tensors}
        of = self.parameters.values()
        self.names = tuple(dict.fromkeys(n for p in of for n in p.names))
        self.variadic = any(p.variadic for p in of)
        declared = self.kernel.declaration.dtypes
        self.dtypes = tuple(getattr(torch, n) for n in DTYPES if n in declared)

    def shape(self, parameter: TensorParameter, sizes: Sizes) -> tuple[int, ...]:
        """Return the shape of an argument."""
        lead = sizes.lead if parameter.variadic else ()
        return (*lead, *(sizes.named[n] for n in parameter.names))

    def dims(self, sizes: Sizes) -> tuple[int, ...]:
        """Return the values that `dim` may have, negative; (0,) where there is none."""
        operator = self.kernel.operator
        if operator.dim is None:
            return (0,)
        if operator.dim not in self.kernel.arguments.scalars:
            return (int(operator.default_of(operator.dim)),)
        lead = next(iter(self.parameters.values()))
        rank = len(self.shape(lead, sizes))
        declared = self.kernel.declaration.dims
        every = range(-rank, 0)
        if declared is None:
            return tuple(every)
        return tuple(d for d in every if {d, d + rank} & set(declared))

    def accepts(self, sizes: Sizes) -> bool:
        """Whether the operator is defined for sizes, of which some may be 0."""
        operator = self.kernel.operator
        if not self.dims(sizes):
            return False
        known = {n: v for n, v in self._scalars(0).items() if type(v) is int}
        known |= sizes.named
        if not all(c.accepts(known) for c in self._classes if c.names <= known.keys()):
            return False
        if 0 not in (*sizes.lead, *sizes.named.values()):
            return True
        indices = (p for p in self.parameters.values() if isinstance(p, IndexParameter))
        return operator.empty_reduction and all(sizes.named[p.below] for p in indices)

    @property
    def _classes(self) -> list[ShapeClass]:
        """Return what sizes must satisfy together."""
        operator, declared = self.kernel.operator, self.kernel.declaration.shape_class
        own = [ShapeClass(operator.shape_class)] if operator.shape_class else []
        return own + ([declared] if declared else [])

    def most(self, name: str) -> int | None:
        """Return the greatest size of a dimension that is declared, None if none is."""
        found = (c.bounds(name)[1] for c in self._classes)
        return min((n for n in found if n is not None), default=None)

    def expected(self, tensors: Sequence[Tensor], dim: int) -> tuple[Tensor, ...]:
        """Return the results in float64, rounded once to the inputs' dtype.

        Args:
            tensors: the arguments, which are left as they are.
            dim: see `dims`.
        """
        operator = self.kernel.operator
        pairs = list(zip(self.parameters.values(), tensors, strict=True))
        exact = [x.double() if x.is_floating_point() else x for _, x in pairs]
        made = operator.oracle(*exact, **self._scalars(dim))
        free = (x for p, x in pairs if x.is_floating_point() and not p.dtype)
        dtype = next(free, exact[0]).dtype
        results = (made,) if isinstance(made, Tensor) else tuple(made)
        return tuple(y.to(dtype) if y.is_floating_point() else y for y in results)

    def call(
        self, tensors: Sequence[Tensor], dim: int, number: int
    ) -> tuple[Tensor, ...]:
        """Call the kernel as its users do.

        Args:
            tensors: the arguments.
            dim: see `dims`.
            number: of the case; kernels with several configurations take turns.
        """
        scalars = self._scalars(dim)
        taken = {n: as_argument(scalars[n]) for n in self.kernel.arguments.scalars}
        own = self.kernel.declaration.config(number)
        made = self.kernel(*tensors, **taken, **own)
        return (made,) if isinstance(made, Tensor) else tuple(made)

    def _scalars(self, dim: int) -> dict[str, object]:
        operator = self.kernel.operator
        scalars: dict[str, object] = {n: p.default for n, p in operator.scalars.items()}
        if operator.dim is not None:
            scalars[operator.dim] = dim
        return scalars

    def friendly(self) -> Sizes:
        """Return the sizes of the plain functional test."""
        lead: tuple[int, ...] = ()
        named: dict[str, int] = {}
        for p, shape in zip(self.parameters.values(), self._friendly, strict=True):
            split = len(shape) - len(p.names)
            lead = shape[:split] if p.variadic else lead
            named |= zip(p.names, shape[split:], strict=True)
        return Sizes(lead, named)

    def ordinary(
        self, sizes: Sizes, dtype: torch.dtype, random: torch.Generator
    ) -> Iterator[Tensor]:
        """Yield normally distributed arguments; integers are uniform."""
        for p in self.parameters.values():
            shape = self.shape(p, sizes)
            if isinstance(p, IndexParameter):
                yield torch.randint(sizes.named[p.below], shape, generator=random)
            else:
                yield torch.randn(shape, generator=random).to(dtype)
