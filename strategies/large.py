"""Cases of the profile large: where 31 bits, a grid, or a stride run out.

Each is an ordinary small case of which one thing is made huge: the elements of an
argument, the number of rows, or the stride of a view of few elements.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from hypothesis import reject
from hypothesis import strategies as st

from kfuzz.core.budget import SizeBudget
from kfuzz.core.declaration import INT32_ELEMENTS, Declaration
from kfuzz.core.dtypes import DTYPES
from kfuzz.core.errors import BindingError
from kfuzz.core.recipe import NOWHERE, Case, TensorSpec
from kfuzz.core.value_families import STRETCHED
from kfuzz.strategies import layouts

GRID_BLOCKS: Final = 65_535
"""The greatest size of a CUDA grid in y and z (CUDA C++ programming guide, table of
technical specifications)."""

SPAN_BYTES: Final = 1 << 35
"""The most that one view may span, counted in elements of 8 bytes."""

# Just beyond a grid, where 16 bits wrap, and well beyond.
_ROWS: Final = (GRID_BLOCKS + 1, GRID_BLOCKS + 2, 70_001, (1 << 17) + 1)
# Elements over all dimensions together, results and workspaces too, of a case whose
# rows are many.
_GRID_ELEMENTS: Final = 1 << 24
# Elements of the small cases: as few as the declaration allows.
_BASE: Final = tuple(
    SizeBudget(elements=1 << e, rows=1 << r, span=SPAN_BYTES)
    for e, r in ((6, 6), (11, 8), (16, 12))
)
_WIDER: Final = _BASE[1:]
# Indices along an axis of huge stride: the last lies beyond 2^31 elements.
_FAR_APART: Final = 3
# Multiples that declarations ask sizes to be of.
_MULTIPLES: Final = (1, 8, 128, 4096)
_KINDS: Final = ("elements", "elements", "grid", "grid", "span")


def large_cases(
    within: Callable[[SizeBudget], st.SearchStrategy[Case]],
    declaration: Declaration,
    *,
    admits: Callable[[Case], bool],
    sliceable: Callable[[Case], bool],
) -> st.SearchStrategy[Case]:
    """Return a strategy for the large cases of a kernel, as recipes.

    Args:
        within: the kernel's ordinary cases within a budget.
        declaration: the kernel's.
        admits: whether a case lies in the kernel's domain.
        sliceable: whether a case of billions of elements can be judged.

    Raises:
        BindingError: if the declaration leaves no small shape.
    """
    narrow, wide = _least(within, _BASE), _least(within, _WIDER)

    @st.composite
    def draw_case(draw: st.DrawFn) -> Case:
        kind = draw(st.sampled_from(_KINDS))
        case = draw(wide if kind == "elements" else narrow)
        turn = draw(st.integers(0, (1 << 16) - 1))
        made = _made(kind, case, turn, declaration, admits, sliceable)
        # Not every operator can be judged in slices, nor every view be huge.
        if made is None and kind != "grid":
            made = _made("grid", case, turn, declaration, admits, sliceable)
        return reject() if made is None else made

    return draw_case()


def _least(
    within: Callable[[SizeBudget], st.SearchStrategy[Case]],
    budgets: tuple[SizeBudget, ...],
) -> st.SearchStrategy[Case]:
    """Return the strategy of the first budget that leaves a shape."""
    for budget in budgets[:-1]:
        try:
            return within(budget)
        except BindingError:
            continue
    return within(budgets[-1])


def _made(
    kind: str,
    case: Case,
    turn: int,
    declaration: Declaration,
    admits: Callable[[Case], bool],
    sliceable: Callable[[Case], bool],
) -> Case | None:
    """Return the case with one thing made huge; None if nothing can be."""
    if not all(case.dims.values()):
        return None
    if kind == "span":
        return _spread(case, turn, declaration, admits)
    axes, sizes = list(case.dims), _sizes if kind == "elements" else _rows
    for step in range(len(axes)):
        axis = axes[(turn + step) % len(axes)]
        for size in sizes(case, axis, turn):
            made = grown(case, axis, size, tame=kind == "elements")
            if admits(made) and (kind == "grid" or sliceable(made)):
                return made
    return None


def _sizes(case: Case, axis: str, turn: int) -> list[int]:
    """Return sizes of an axis that give some argument more than 2^31 elements."""
    rows = [s.numel // case.dims[axis] for s in case.tensors.values() if axis in s.axes]
    least = INT32_ELEMENTS // max(rows) + 1 + turn % 3
    return [-(-least // m) * m for m in _MULTIPLES]


def _rows(case: Case, axis: str, turn: int) -> list[int]:
    """Return sizes of an axis beyond what a grid has in y and z."""
    rest = math.prod(n for name, n in case.dims.items() if name != axis)
    wanted = [_ROWS[(turn + i) % len(_ROWS)] for i in range(len(_ROWS))]
    sizes = [-(-n // m) * m for n in wanted for m in _MULTIPLES]
    return [n for n in sizes if n * rest <= _GRID_ELEMENTS]


def grown(case: Case, axis: str, size: int, *, tame: bool = False) -> Case:
    """Return the contiguous case with another size of an axis.

    Args:
        case: a small case.
        axis: the name of the dimension.
        size: its size.
        tame: whether values are to be such that can be made in parts.
    """
    tensors = {}
    for name, spec in case.tensors.items():
        shape = tuple(
            size if a == axis else n for a, n in zip(spec.axes, spec.shape, strict=True)
        )
        made = replace(spec, shape=shape, strides=None, offset=0, plants=())
        tensors[name] = _tamed(made) if tame else made
    return replace(case, tensors=tensors, edge=NOWHERE)


def _tamed(spec: TensorSpec) -> TensorSpec:
    fill = spec.fill
    if fill is None or DTYPES[spec.dtype].kind != "float":
        return spec
    family = fill.family if fill.family in STRETCHED else STRETCHED[0]
    return replace(spec, fill=replace(fill, family=family, axis=-1, source=None))


def _spread(
    case: Case, turn: int, declaration: Declaration, admits: Callable[[Case], bool]
) -> Case | None:
    """Return the case with one argument's elements 2^31 apart."""
    if declaration.layouts == "contiguous" or declaration.offsets == "int32":
        return None
    span = SPAN_BYTES // max(d.itemsize for d in DTYPES.values())
    axes = [
        (name, axis)
        for name, spec in case.tensors.items()
        for axis in spec.axes
        if name not in declaration.inplace
    ]
    for step in range(len(axes)):
        name, axis = axes[(turn + step) % len(axes)]
        made = grown(case, axis, _FAR_APART, tame=False)
        spec = made.tensors[name]
        if admits(made) and layouts.can_be_huge(spec.shape, declaration, span):
            strides, offset = layouts.build(
                "huge", spec.shape, turn, spec.dtype, declaration, span=span
            )
            return made.with_tensor(name, replace(spec, strides=strides, offset=offset))
    return None
