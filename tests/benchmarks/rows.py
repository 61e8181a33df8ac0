"""Data of the benchmarks: many cases of one size at once, as members of a problem."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from kfuzz.contracts import operators as ops
from kfuzz.contracts.operator import Operator
from kfuzz.core.declaration import Declaration
from kfuzz.core.recipe import Case, Fill, Scalar, TensorSpec
from kfuzz.core.value_families import FAMILIES
from kfuzz.execution.values.fills import logical_values
from kfuzz.numerics.acceptance import Problem
from kfuzz.numerics.formats import FORMATS

DTYPES: Final = ("float32", "float16", "bfloat16")
OPERATORS: Final[dict[str, Operator]] = {
    "sum": ops.sum,
    "softmax": ops.softmax,
    "layer_norm": ops.layer_norm,
    "matmul": ops.matmul,
}
SCALARS: Final[dict[str, dict[str, Scalar]]] = {
    "sum": {"dim": -1},
    "softmax": {"dim": -1},
    "layer_norm": {"eps": 1e-5},
    "matmul": {},
}
ROWS: Final = 4
SIDE: Final = 8
# Sizes of the reduced axis: small ones, tile edges and both sides of them.
SIZES: Final = (
    1, 2, 3, 7, 31, 32, 33, 64, 127, 128, 129, 257, 1000, 1024, 1025, 2049, 4097,
)  # fmt: skip
MATMUL_SIZES: Final = (1, 2, 3, 7, 31, 32, 33, 64, 127, 128, 257, 1024, 1025, 2049)
# The source of "transpose_of" is another argument, which rows lack.
USED: Final = tuple(name for name in FAMILIES if name != "transpose_of")
CPU: Final = torch.device("cpu")


@dataclass(frozen=True)
class Config:
    """One operator, data type and size, with all its cases.

    Attributes:
        operator: name of the operator.
        dtype: data type of the arguments.
        size: of the reduced axis.
        families: of each case.
        tensors: the arguments, [cases, *shape].
    """

    operator: str
    dtype: str
    size: int
    families: tuple[str, ...]
    tensors: dict[str, Tensor]

    def problem(self, declaration: Declaration) -> Problem:
        """Return all cases as the members of one problem."""
        fmt = FORMATS[self.dtype]
        return Problem(
            tensors={n: t.to(torch.float64) for n, t in self.tensors.items()},
            scalars=SCALARS[self.operator],
            format=fmt,
            output=fmt,
            declaration=declaration,
        )


def configs(
    operator: str, *, seeds: int, largest: int, dtypes: tuple[str, ...] = DTYPES
) -> Iterator[Config]:
    """Yield the configurations of an operator, every family in each.

    Args:
        operator: its name.
        seeds: cases per family.
        largest: sizes beyond are left out.
        dtypes: data types.
    """
    for dtype in dtypes:
        for size in MATMUL_SIZES if operator == "matmul" else SIZES:
            if size > largest:
                continue
            families, found = [], []
            for seed in range(seeds):
                for family in USED:
                    families.append(family)
                    found.append(_values(operator, dtype, size, family, seed))
            tensors = {n: torch.stack([f[n] for f in found]) for n in found[0]}
            yield Config(operator, dtype, size, tuple(families), tensors)


def _values(
    operator: str, dtype: str, size: int, family: str, seed: int
) -> dict[str, Tensor]:
    def spec(shape: tuple[int, ...], name: str, salt: int, axis: int) -> TensorSpec:
        axes = tuple(f"d{i}" for i in range(len(shape)))
        fill = Fill(name, 1009 * seed + 31 * salt + size, axis)
        return TensorSpec(shape, axes, dtype, fill=fill)

    if operator == "matmul":
        # The second factor alternates: normal data, or the family too.
        other = family if seed % 2 else "randn"
        specs = {
            "a": spec((SIDE, size), family, 1, -1),
            "b": spec((size, SIDE), other, 2, -2),
        }
    else:
        specs = {"x": spec((ROWS, size), family, 1, -1)}
    if operator == "layer_norm":
        specs["weight"] = spec((size,), "randn", 3, -1)
        specs["bias"] = spec((size,), "randn", 4, -1)
    case = Case(specs, SCALARS[operator])
    return {name: logical_values(case, name, CPU) for name in specs}
