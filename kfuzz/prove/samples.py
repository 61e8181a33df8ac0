"""Cases whose launches are captured: those of a search, and larger ones."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from hypothesis.errors import HypothesisException

from kfuzz.contracts.binding import BoundKernel
from kfuzz.core.budget import SizeBudget
from kfuzz.core.errors import BindingError
from kfuzz.core.recipe import NOWHERE, Case, Fill, TensorSpec
from kfuzz.engine.search.case_drawing import search_round, strategy_of
from kfuzz.strategies.layouts import build, layout_name, layout_options

DRAWN: Final = 96
GROWN: Final = 120

# Around the sizes at which wrappers choose another block, and between them.
_SIZES: Final = (
    1, 2, 3, 5, 7, 8, 9, 13, 15, 16, 17, 24, 31, 32, 33, 47, 63, 64, 65, 96, 100, 127,
    128, 129, 200, 255, 256, 257, 400, 511, 512, 513, 777, 1000, 1023, 1024, 1025, 1500,
    2047, 2048, 2049, 3000, 4095, 4096, 4097, 5000, 8191, 8192, 8193, 10000, 16384,
    20000, 32768, 50000, 65535, 65536, 65537, 100000, 131072, 300000, 1000000,
)  # fmt: skip
_CHANGES: Final[tuple[Callable[[int], int], ...]] = (
    lambda n: n + 1, lambda n: 2 * n, lambda n: n + 7, lambda n: 3 * n + 1,
    lambda n: max(n - 1, 1), lambda n: max(n // 2, 1),
)  # fmt: skip
_MOST: Final = 1 << 36
_TRIES: Final = 12
_FAR: Final = 12
_BUDGET: Final = SizeBudget(elements=1 << 14, rows=1 << 10, span=1 << 36)


def drawn(kernel: BoundKernel, count: int = DRAWN) -> list[Case]:
    """Return cases as a search draws them, the smallest first."""
    found: list[Case] = []
    try:
        strategy = strategy_of(kernel, _BUDGET)
        if strategy is None:
            return []
        search_round(strategy, found.append, cases=count, seed_value=0, climb=False)
    except (BindingError, HypothesisException):
        return found
    plain = [replace(c, edge=NOWHERE, config=None) for c in found]
    return sorted(plain, key=lambda case: case.elements)


def far(kernel: BoundKernel, templates: Sequence[Case]) -> Iterator[Case]:
    """Yield small cases with one argument whose elements lie 2^31 and more apart.

    A search draws such views seldom, and offsets of 32 bits overflow on them alone.

    Args:
        kernel: the kernel, whose declaration they keep.
        templates: cases, the smallest first.
    """
    claims, found = kernel.declaration, 0
    for number, case in enumerate(templates):
        for name, spec in case.tensors.items():
            shape = spec.shape
            if spec.below or "huge" not in layout_options(
                shape, claims, span=_BUDGET.span
            ):
                continue
            strides, offset = build(
                "huge", shape, number, spec.dtype, claims, span=_BUDGET.span
            )
            wide = replace(spec, strides=strides, offset=offset)
            made = case.with_tensor(name, wide)
            if claims.reaches(wide.span) and kernel.operator.admits(made, claims):
                yield made
                found += 1
        if found >= _FAR:
            return


def grown(
    kernel: BoundKernel, templates: Sequence[Case], count: int = GROWN
) -> Iterator[Case]:
    """Yield cases like others, with sizes of any order; no memory could hold some.

    Args:
        kernel: the kernel, whose domain they stay in.
        templates: the others.
        count: how many at most.
    """
    chance = random.Random(0)
    sized = [case for case in templates if case.dims]
    for number in range(count if sized else 0):
        template = sized[number * 7919 % len(sized)]
        for _ in range(_TRIES):
            made = resized(kernel, template, _sizes(template, chance))
            if made is not None:
                yield made
                break


def neighbours(kernel: BoundKernel, case: Case) -> Iterator[Case]:
    """Yield cases like another one of which one or all dimensions differ a little."""
    dims = case.dims
    for change in _CHANGES:
        for axis in dims:
            made = resized(kernel, case, {**dims, axis: change(dims[axis])})
            if made is not None:
                yield made
    for factor in (2, 3, 5):
        made = resized(kernel, case, {axis: factor * n for axis, n in dims.items()})
        if made is not None:
            yield made


def _sizes(template: Case, chance: random.Random) -> dict[str, int]:
    """Return new sizes, some as they were."""
    dims = template.dims
    chosen = {axis: n for axis, n in dims.items() if chance.random() < 0.25}
    for axis in dims:
        if axis not in chosen:
            ceiling = chance.choice((40, 300, 5000, 2000000))
            multiple = dims[axis] * chance.choice((1, 2, 3, 4, 5, 8, 16, 33, 100))
            size = chance.choice([n for n in _SIZES if n <= ceiling])
            chosen[axis] = multiple if chance.random() < 0.3 else size
    return chosen


def resized(kernel: BoundKernel, case: Case, sizes: dict[str, int]) -> Case | None:
    """Return a case with dimensions of other sizes; None if its domain has none."""
    tensors: dict[str, TensorSpec] = {}
    for name, spec in case.tensors.items():
        shape = tuple(
            sizes.get(axis, n) for axis, n in zip(spec.axes, spec.shape, strict=True)
        )
        kind = layout_name(spec)
        strides, offset = None, 0
        if kind in layout_options(shape, kernel.declaration):
            strides, offset = build(kind, shape, 1, spec.dtype, kernel.declaration)
        fill = spec.fill or Fill("randn")
        tensors[name] = replace(
            spec, shape=shape, strides=strides, offset=offset, values=None, fill=fill,
            plants=(),
        )  # fmt: skip
        if not 0 < tensors[name].span <= _MOST:
            return None
    made = replace(case, tensors=tensors)
    return made if kernel.operator.admits(made, kernel.declaration) else None
