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
from kfuzz.execution.families import EXACT, ROUNDED, randn
from kfuzz.execution.generator import Grid, narrow
from kfuzz.execution.indices import index_rows
from kfuzz.execution.integers import integer_rows
from kfuzz.execution.patterns import INTEGERS, OVERLAYS, RAW, as_signed
from kfuzz.numerics.formats import FORMATS, round_to


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
    if spec.values is not None:
        values = _pinned(spec, device)
    else:
        assert spec.fill is not None
        values = _filled(case, name, spec, spec.fill, device, seen)
    repeated = [
        axis
        for axis, (n, stride) in enumerate(
            zip(spec.shape, spec.element_strides, strict=True)
        )
        if stride == 0 and n > 1
    ]
    itemsize = DTYPES[spec.dtype].itemsize
    raw = values.view(INTEGERS[itemsize])
    for plant in spec.plants:
        at = tuple(0 if axis in repeated else i for axis, i in enumerate(plant.at))
        raw[at] = as_signed(plant.bits, itemsize)
    for axis in repeated:
        raw = raw.narrow(axis, 0, 1).expand(spec.shape)
    return raw.contiguous().view(values.dtype)


def _pinned(spec: TensorSpec, device: torch.device) -> Tensor:
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
    dtype: torch.dtype = getattr(torch, spec.dtype)
    if spec.numel == 0:
        return torch.empty(spec.shape, dtype=dtype, device=device)
    family = fill.family
    n = spec.shape[fill.axis] if rank else 1
    if family == "transpose_of":
        if fill.source is None:
            raise KfuzzError("the fill transpose_of names no source", where=name)
        copied = _transposed(
            _values(case, fill.source, device, (*seen, name)), spec, dtype
        )
        if copied is not None:
            return copied
        family = "randn"
    if spec.below:
        rows = index_rows(
            family, spec.numel // n, n,
            bound=_bound(case, name, spec), seed=fill.seed, dtype=dtype, device=device,
        )  # fmt: skip
    elif spec.dtype not in FORMATS:
        rows = integer_rows(
            family, spec.numel // n, n, seed=fill.seed, dtype=dtype, device=device
        )
    else:
        grid = Grid(spec.numel // n, n, FORMATS[spec.dtype], fill.seed, device)
        rows = _rows(grid, family)
    if rank == 0 or fill.axis == -1:
        return rows.reshape(spec.shape)
    outer = list(spec.shape)
    del outer[fill.axis]
    return rows.reshape(*outer, n).movedim(-1, fill.axis).contiguous()


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


def _bound(case: Case, name: str, spec: TensorSpec) -> int:
    """Return the size that the indices of an argument stay below."""
    bound = case.dims.get(spec.below, 0)
    if bound < 1:
        raise KfuzzError(
            f"no index lies below dimension {spec.below!r} of size {bound}", where=name
        )
    return bound


def _rows(grid: Grid, family: str) -> Tensor:
    """Return the values of a family, (rows, n), contiguous."""
    dtype = grid.fmt.dtype
    shape = (grid.rows, grid.n)
    if family in RAW:
        return RAW[family](grid).expand(shape).contiguous().view(dtype)
    if family in EXACT:
        return EXACT[family](grid).to(dtype).expand(shape).contiguous()
    values = ROUNDED.get(family, randn)(grid)
    rounded = narrow(values, grid.fmt).expand(shape).contiguous()
    if family in OVERLAYS:
        OVERLAYS[family](grid, rounded.view(INTEGERS[rounded.element_size()]))
    return rounded


def _transposed(source: Tensor, spec: TensorSpec, dtype: torch.dtype) -> Tensor | None:
    """Return the source with its last two axes swapped, tiled to the shape.

    None if the source is empty. Missing leading axes repeat, superfluous ones
    keep their first index.
    """
    if source.numel() == 0:
        return None
    rank = len(spec.shape)
    if source.dim() >= 2:
        source = source.transpose(-1, -2)
    while source.dim() > rank:
        source = source[0]
    source = source.reshape((1,) * (rank - source.dim()) + tuple(source.shape))
    # Axes that shrink first: what lies between is never larger than both ends.
    sizes = source.shape
    for axis, n in sorted(enumerate(spec.shape), key=lambda a: a[1] > sizes[a[0]]):
        if source.shape[axis] != n:
            index = torch.arange(n, device=source.device) % source.shape[axis]
            source = source.index_select(axis, index)
    if source.dtype != dtype:
        exact = source.to(torch.float64)
        source = round_to(exact, FORMATS[spec.dtype]).to(dtype)
    # A copy: the plants of this argument must not reach the source.
    return source.clone(memory_format=torch.contiguous_format)
