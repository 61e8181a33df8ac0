"""Recipes become values: the logical elements of an argument, bit for bit."""

import torch
from torch import Tensor

from kfuzz.core.dtypes import DTYPES
from kfuzz.core.errors import KfuzzError, suggestion
from kfuzz.core.families import (
    BOOL_FAMILIES,
    FAMILIES,
    INDEX_FAMILIES,
    INTEGER_FAMILIES,
    Family,
)
from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.execution.values.families import EXACT, ROUNDED, randn
from kfuzz.execution.values.generator import Grid, narrowed
from kfuzz.execution.values.indices import HOSTILE, index_values, spoil
from kfuzz.execution.values.integers import integer_values
from kfuzz.execution.values.patterns import INTEGERS, OVERLAYS, RAW, as_signed
from kfuzz.numerics.formats import FORMATS, Format, round_to


def logical_values(case: Case, name: str, device: torch.device) -> Tensor:
    """Return the logical elements of one argument, the same bits everywhere.

    Pinned values, or the fill and then the plants. Along a dimension with
    stride 0 every index holds what index 0 holds, as a kernel reads it; a plant
    at any index of it is a plant at all of them.

    Args:
        case: the recipe; a fill may copy from another of its arguments.
        name: the argument.
        device: where the values are made.

    Returns:
        A contiguous tensor of the spec's shape and dtype, fresh storage.

    Raises:
        KfuzzError: where the recipe is impossible.
    """
    return _values(case, name, device, ())


def _values(
    case: Case, name: str, device: torch.device, seen: tuple[str, ...]
) -> Tensor:
    spec = checked(case, name, seen)
    if spec.values is not None:
        values = pinned(spec, device)
    else:
        assert spec.fill is not None
        values = _filled(case, name, spec, spec.fill, device, seen)
    repeated = repeated_axes(spec)
    itemsize = DTYPES[spec.dtype].itemsize
    raw = values.view(INTEGERS[itemsize])
    for plant in spec.plants:
        at = tuple(0 if axis in repeated else i for axis, i in enumerate(plant.at))
        raw[at] = as_signed(plant.bits, itemsize)
    for axis in repeated:
        raw = raw.narrow(axis, 0, 1).expand(spec.shape)
    return raw.contiguous().view(values.dtype)


def checked(case: Case, name: str, seen: tuple[str, ...] = ()) -> TensorSpec:
    """Return the spec of an argument whose recipe is possible.

    Args:
        case: the recipe.
        name: the argument.
        seen: arguments that copy from it, one from the other.

    Raises:
        KfuzzError: where the recipe is impossible.
    """
    if name not in case.tensors or name in seen:
        cause = "copies from itself" if name in seen else "is no argument of this case"
        raise KfuzzError(
            f"{name!r} {cause}",
            where=".".join((*seen, name)),
            fix=f"a fill's source is another of: {', '.join(case.tensors)}",
        )
    spec = case.tensors[name]
    if problem := spec.problem():
        raise KfuzzError(problem, where=name)
    if spec.fill is not None:
        check_fill(name, spec, spec.fill)
    return spec


def check_fill(name: str, spec: TensorSpec, fill: Fill) -> None:
    """Raise a KfuzzError if an argument cannot be filled so."""
    kind, known = _families(spec)
    if fill.family not in known:
        raise KfuzzError(
            f"unknown {kind} family {fill.family!r}",
            where=name,
            fix=suggestion(fill.family, known),
        )
    rank = len(spec.shape)
    if not (-rank <= fill.axis < 0 or (rank == 0 and fill.axis == -1)):
        raise KfuzzError(
            f"fill axis {fill.axis} of a rank-{rank} tensor",
            where=name,
            fix="give an axis counted from the end, -1 for the last",
        )
    if spec.numel and fill.family == "transpose_of" and fill.source is None:
        raise KfuzzError("the fill transpose_of names no source", where=name)


def repeated_axes(spec: TensorSpec) -> list[int]:
    """Return the axes along which every index holds what index 0 holds."""
    steps = zip(spec.shape, spec.element_strides, strict=True)
    return [axis for axis, (n, stride) in enumerate(steps) if stride == 0 and n > 1]


def pinned(spec: TensorSpec, device: torch.device) -> Tensor:
    """Return explicit values, contiguous, fresh storage."""
    assert spec.values is not None
    dtype = getattr(torch, spec.dtype)
    if not spec.values:
        return torch.empty(spec.shape, dtype=dtype, device=device)
    raw = torch.frombuffer(
        bytearray(spec.values), dtype=INTEGERS[DTYPES[spec.dtype].itemsize]
    )
    return raw.to(device).reshape(spec.shape).view(dtype)


def _filled(
    case: Case,
    name: str,
    spec: TensorSpec,
    fill: Fill,
    device: torch.device,
    seen: tuple[str, ...],
) -> Tensor:
    dtype: torch.dtype = getattr(torch, spec.dtype)
    if spec.numel == 0:
        return torch.empty(spec.shape, dtype=dtype, device=device)
    family = fill.family
    rank = len(spec.shape)
    n = spec.shape[fill.axis] if rank else 1
    if family == "transpose_of":
        assert fill.source is not None
        source = _values(case, fill.source, device, (*seen, name))
        copied = transposed(source, spec, dtype)
        if copied is not None:
            return copied
        family = "randn"
    grid = Grid(spec.numel // n, n, format_of_grid(spec), fill.seed, device)
    rows = torch.empty(grid.shape, dtype=dtype, device=device)
    fill_rows(rows, grid, family, bound=bound_of(case, name, spec))
    if rank == 0 or fill.axis == -1:
        return rows.view(spec.shape)
    outer = list(spec.shape)
    del outer[fill.axis]
    return rows.view(*outer, n).movedim(-1, fill.axis).contiguous()


def _families(spec: TensorSpec) -> tuple[str, dict[str, Family]]:
    """Return what kind of values an argument holds, and the families of it."""
    if spec.below:
        return "index", INDEX_FAMILIES
    match DTYPES[spec.dtype].kind:
        case "bool":
            return "bool", BOOL_FAMILIES
        case "int" | "uint":
            return "integer", INTEGER_FAMILIES
        case _:
            return "value", FAMILIES


def bound_of(case: Case, name: str, spec: TensorSpec) -> int:
    """Return the size that the indices of an argument stay below; 0 for no indices.

    Raises:
        KfuzzError: if there is no index below it.
    """
    if not spec.below:
        return 0
    bound = case.dims.get(spec.below, 0)
    if bound < 1:
        raise KfuzzError(
            f"no index lies below dimension {spec.below!r} of size {bound}", where=name
        )
    return bound


def format_of_grid(spec: TensorSpec) -> Format:
    """Return the format of an argument's grid: of integers any, they do not ask."""
    return FORMATS.get(spec.dtype, FORMATS["float64"])


def fill_rows(rows: Tensor, grid: Grid, family: str, *, bound: int = 0) -> None:
    """Write the values of a family.

    Args:
        rows: of the shape of the grid, contiguous; it is overwritten.
        grid: of one tensor or, but for the hostile families of indices, of many.
        family: any but transpose_of, of the kind that the dtype and the bound say.
        bound: of indices, what they stay below.
    """
    if bound:
        rows.copy_(index_values(grid, family, bound))
        if family in HOSTILE:
            spoil(grid, family, bound, rows)
    elif not rows.is_floating_point():
        rows.copy_(integer_values(grid, family, rows.dtype))
    elif family in RAW:
        rows.view(INTEGERS[rows.element_size()]).copy_(RAW[family](grid))
    elif family in EXACT:
        rows.copy_(EXACT[family](grid))
    else:
        rows.copy_(narrowed(ROUNDED.get(family, randn)(grid), grid.fmt))
        if family in OVERLAYS:
            OVERLAYS[family](grid, rows.view(INTEGERS[rows.element_size()]))


def transposed(
    source: Tensor, spec: TensorSpec, dtype: torch.dtype, *, stacked: int = 0
) -> Tensor | None:
    """Return the source with its last two axes swapped, tiled to the shape.

    Args:
        source: logical elements, of one argument or of several, stacked.
        spec: what is to be filled; its shape and the name of its dtype.
        dtype: its dtype.
        stacked: how many leading axes of the source number the stacked ones: they
            stay as they are.

    Returns:
        Contiguous, fresh storage; missing leading axes repeat, superfluous ones keep
        their first index. None if the source is empty.
    """
    if source.numel() == 0:
        return None
    rank = stacked + len(spec.shape)
    if source.dim() - stacked >= 2:
        source = source.transpose(-1, -2)
    while source.dim() > rank:
        source = source.select(stacked, 0)
    lead, inner = source.shape[:stacked], source.shape[stacked:]
    source = source.reshape((*lead, *(1,) * (rank - source.dim()), *inner))
    # Axes that shrink first: what lies between is never larger than both ends.
    sizes = source.shape
    wanted = enumerate(spec.shape, start=stacked)
    for axis, n in sorted(wanted, key=lambda a: a[1] > sizes[a[0]]):
        if source.shape[axis] != n:
            index = torch.arange(n, device=source.device) % source.shape[axis]
            source = source.index_select(axis, index)
    if source.dtype != dtype:
        exact = source.to(torch.float64)
        source = round_to(exact, FORMATS[spec.dtype]).to(dtype)
    # A copy: the plants of this argument must not reach the source.
    return source.clone(memory_format=torch.contiguous_format)
