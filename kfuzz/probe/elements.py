"""Elementwise operators as functions of chosen numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kfuzz.contracts.binding import BoundKernel
from kfuzz.core.dtypes import unpack_numbers
from kfuzz.core.probed import Observed
from kfuzz.core.recipe import Case, TensorSpec
from kfuzz.probe.rows import element

_SHAPES: Final = ((1, ""), (1, "d0"), (8, "d0"), (16, "d0"))


@dataclass(frozen=True)
class Elements:
    """A kernel that computes each element from those in its place.

    Attributes:
        kernel: the kernel.
        dtype: format of its data.
        arguments: names of what it takes.
    """

    kernel: BoundKernel
    dtype: str
    arguments: tuple[str, ...]

    @property
    def name(self) -> str:
        """The operator's name."""
        return self.kernel.operator.name

    def case(self, *columns: Sequence[float] | bytes) -> Case | None:
        """Return the case with the values of each argument; None where none is valid.

        Raises:
            ValueError: if the format lacks one.
        """
        takes, operator = self.kernel.arguments, self.kernel.operator
        packed = [
            c if isinstance(c, bytes) else b"".join(element(v, self.dtype) for v in c)
            for c in columns
        ]
        one = len(element(0.0, self.dtype))
        n = len(packed[0]) // one
        for rows, axis in _SHAPES:
            shape = (rows, n) if axis else (n,)
            axes = ("d0", "d1") if axis else ("d0",)
            tensors = {
                name: TensorSpec(shape, axes, self.dtype, values=data * rows)
                for name, data in zip(self.arguments, packed, strict=True)
            }
            scalars = {s: operator.default_of(s) for s in takes.scalars}
            case = Case(tensors, scalars, poison="nan", config=0)
            if operator.admits(case, self.kernel.declaration):
                return case
        return None

    def read(self, observed: Observed, n: int) -> list[float]:
        """Return the first n results."""
        [name, *_] = self.kernel.operator.outputs
        spec = observed.outputs[name]
        assert spec.values is not None
        return unpack_numbers(spec.values, spec.dtype)[:n]


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
