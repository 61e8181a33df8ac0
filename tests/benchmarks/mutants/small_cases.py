"""Small cases in a fixed order: every size with every dtype and every value family."""

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Final

from kfuzz.contracts.binding import BoundKernel
from kfuzz.core.recipe import Case, Fill, Scalar, TensorSpec
from kfuzz.core.value_families import BOOL_FAMILIES, INDEX_FAMILIES, INTEGER_FAMILIES
from kfuzz.strategies import layouts, values
from kfuzz.strategies.parameters import IndexParameter, TensorParameter

# Around the tiles of the correct kernels, the longest past the longest tile.
LENGTHS: Final = (1, 2, 3, 5, 16, 17, 33, 64, 65, 129, 257, 1025, 4097, 0)
LEADS: Final = ((1,), (3,), (17,), (2, 3), (), (33,), (0,))
SIDES: Final = (1, 2, 3, 17, 33, 65, 130)
# Of dimensions that only repeat what a kernel does.
FEW: Final = (1, 2, 3)
_REPEATING: Final = frozenset({"B", "H", "G"})
MOST_ELEMENTS: Final = 1 << 15
TAME: Final = ("randn", "ones", "exact_int", "powers", "zeros")
# Odd, and no divisor of a product of the lists above: steps through all combinations.
_STEP: Final = 1_000_003


def small_cases(kernel: BoundKernel, most: int, span: int = 0) -> Iterator[Case]:
    """Yield up to so many of the small cases, spread over all of them.

    Sizes, dtypes and families of the data are combined with each other; layouts,
    scalars, indices and weights take turns.

    Args:
        kernel: the bound kernel.
        most: cases.
        span: elements that a view with unused memory between them may span.
    """
    grid = [
        (sizes, dtype, family)
        for sizes in _frames(kernel)
        for dtype in kernel.declaration.dtypes
        for family in values.allowed_families(kernel.declaration)
    ]
    made = 0
    for number in range(len(grid)):
        if made >= most:
            return
        sizes, dtype, family = grid[number * _STEP % len(grid)]
        case = _case(kernel, sizes, dtype, family, number, span)
        if kernel.operator.admits(case, kernel.declaration):
            made += 1
            yield case


Sizes = tuple[tuple[int, ...], Mapping[str, int]]


def _frames(kernel: BoundKernel) -> list[Sizes]:
    parameters = _parameters(kernel)
    names = tuple(dict.fromkeys(n for p in parameters.values() for n in p.names))
    variadic = any(p.variadic for p in parameters.values())
    if variadic and not names:
        made: list[Sizes] = [((*lead, n), {}) for lead in LEADS for n in LENGTHS]
        return [f for f in made if _elements(parameters, f) <= MOST_ELEMENTS]
    sides = LENGTHS if len(names) <= 2 else SIDES
    each = [FEW if n in _REPEATING else sides for n in names]
    named = [dict(zip(names, s, strict=True)) for s in itertools.product(*each)]
    leads = LEADS if variadic else ((),)
    made = [(lead, sizes) for lead in leads for sizes in named]
    return [f for f in made if _elements(parameters, f) <= MOST_ELEMENTS]


def _parameters(kernel: BoundKernel) -> dict[str, TensorParameter]:
    taken = kernel.arguments.tensors
    return {n: p for n, p in kernel.operator.tensors.items() if n in taken}


def _elements(parameters: Mapping[str, TensorParameter], sizes: Sizes) -> int:
    return max(math.prod(_shape(p, sizes)[0]) for p in parameters.values())


def _shape(
    parameter: TensorParameter, sizes: Sizes
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return the sizes of an argument and the names of its axes."""
    lead = sizes[0] if parameter.variadic else ()
    axes = (*(f"d{i}" for i in range(len(lead))), *parameter.names)
    return (*lead, *(sizes[1][n] for n in parameter.names)), axes


def _case(
    kernel: BoundKernel,
    sizes: Sizes,
    dtype: str,
    family: str,
    number: int,
    span: int,
) -> Case:
    operator, claims = kernel.operator, kernel.declaration
    tensors = {}
    for place, (name, p) in enumerate(_parameters(kernel).items()):
        shape, axes = _shape(p, sizes)
        seed = number + (place << values.SEED_BITS)
        inplace = name in claims.inplace
        options = layouts.layout_options(shape, claims, span=span, inplace=inplace)
        kinds = tuple(dict.fromkeys(options))
        kind = kinds[(number + place) % len(kinds)]
        own = claims.index_dtypes[0] if isinstance(p, IndexParameter) else p.dtype
        strides, offset = layouts.build(
            kind, shape, seed, own or dtype, claims, span=span
        )
        tensors[name] = TensorSpec(
            shape, axes, own or dtype, strides, offset,
            fill=Fill(_family(p, family, number), seed),
            below=p.below if isinstance(p, IndexParameter) else "",
        )  # fmt: skip
    scalars: dict[str, Scalar] = {}
    rank = len(next(iter(tensors.values())).shape)
    for turn, (name, scalar) in enumerate(operator.scalars.items()):
        if name not in kernel.arguments.scalars:
            continue
        if name == operator.dim:
            scalars[name] = -1 - number % max(rank, 1)
        else:
            domain = tuple(dict.fromkeys((scalar.default, *scalar.domain)))
            scalars[name] = domain[(number >> turn) % len(domain)]
    return Case(tensors, scalars)


def _family(parameter: TensorParameter, family: str, number: int) -> str:
    """Return the family of an argument: that of the case if it is data."""
    if isinstance(parameter, IndexParameter):
        listed = tuple(INDEX_FAMILIES)
    elif parameter.kind == "bool":
        listed = tuple(BOOL_FAMILIES)
    elif parameter.kind != "float":
        listed = tuple(INTEGER_FAMILIES)
    elif parameter.role == "mask":
        listed = values.MASK_OPTIONS
    elif parameter.role != "data":
        listed = TAME
    else:
        return family if family != "transpose_of" else "randn"
    return listed[number % len(listed)]
