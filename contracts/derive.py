"""Cases derived from a failing one, to find out what the failure depends on."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor

from kfuzz.contracts.operator import Operator
from kfuzz.core.budget import SizeBudget
from kfuzz.core.case_surroundings import CONTIGUOUS
from kfuzz.core.declaration import Declaration
from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.strategies.parameters import IndexParameter, widest

# (sizes outside the reduced axis, size of the reduced axis): what benchmarks and
# functional tests use, within the budget of every backend.
LADDER: Final = (
    (4, 4), (16, 16), (32, 32), (64, 64), (128, 128), (256, 256),
    (4, 16), (4, 64), (4, 128), (4, 256), (4, 512), (4, 1024), (4, 4096),
)  # fmt: skip
# Recentred data keeps to this magnitude: far from overflow of exp and of squares.
MODERATE: Final = 4.0


@dataclass(frozen=True)
class Derived:
    """A case with its logical values at hand.

    Attributes:
        case: a recipe, contiguous.
        values: logical elements by argument, contiguous, in the case's dtypes.
    """

    case: Case
    values: Mapping[str, Tensor]


def friendly_shapes(
    operator: Operator, case: Case, declaration: Declaration, budget: SizeBudget
) -> Iterator[Case]:
    """Yield contiguous cases of normal data, uniform indices, at friendly shapes.

    The usual rank or the nearest, of indices 1 (the operator's own where it is fixed),
    the reduced axis last, dimensions with a usual size at that, scalars as in `case`;
    only shapes within the declaration and the budget.
    """
    rank = _friendly_rank(operator, declaration)
    for rows, n in LADDER:
        tensors = {}
        chosen = {
            name: _friendly(operator, name, rank, rows, n) for name in case.tensors
        }
        every = {
            axis: size for sizes in chosen.values() for axis, size in sizes.items()
        }
        every = operator.settled(every, case)
        for seed, (name, spec) in enumerate(case.tensors.items()):
            axes = tuple(chosen[name])
            shape = tuple(every[axis] for axis in axes)
            family = _ordinary(operator, name, "randn")
            fill = Fill(family, seed=0xF00D + 31 * seed + n)
            tensors[name] = TensorSpec(
                shape, axes, spec.dtype, fill=fill, below=spec.below,
                domain=spec.domain,
            )  # fmt: skip
        scalars = dict(case.scalars)
        if operator.dim is not None and operator.dim in scalars:
            scalars[operator.dim] = _last_dim(declaration)
        made = Case(tensors, scalars, layout=CONTIGUOUS)
        spaces = operator.spaces(made)
        sizes = [math.prod(made.dims[axis] for axis in axes) for axes in spaces]
        sizes += [s.numel for s in tensors.values()]
        large = max(sizes) > budget.elements
        if not large and rows <= budget.rows and operator.admits(made, declaration):
            yield made


def ordinary_cases(operator: Operator, case: Case) -> Iterator[Case]:
    """Yield the case's shapes and layouts with ordinary data of three kinds."""
    for family in ("randn", "negative", "uniform01"):
        tensors = {}
        for seed, (name, spec) in enumerate(case.tensors.items()):
            drawn = _ordinary(operator, name, family)
            fill = Fill(drawn, seed=0xBEAD + 31 * seed)
            tensors[name] = replace(spec, fill=fill, values=None, plants=())
        yield replace(case, tensors=tensors)


def sized(
    operator: Operator, case: Case, sizes: Mapping[str, int], family: str = "randn"
) -> Case:
    """Return a contiguous case of ordinary data with other sizes of some dimensions."""
    every = operator.settled({**case.dims, **sizes}, case)
    tensors = {}
    for seed, (name, spec) in enumerate(case.tensors.items()):
        shape = tuple(every[axis] for axis in spec.axes)
        fill = Fill(_ordinary(operator, name, family), seed=0x512E + 31 * seed)
        tensors[name] = TensorSpec(
            shape, spec.axes, spec.dtype, fill=fill, below=spec.below,
            domain=spec.domain,
        )  # fmt: skip
    layout = None if case.layout is None else CONTIGUOUS
    return replace(case, tensors=tensors, layout=layout, edge=None)


def with_ordinary_values(
    operator: Operator, case: Case, dtype: str, *, plain: bool
) -> Case:
    """Return a case with normal numbers in a dtype; indices and masks are its own.

    Args:
        operator: what is to be computed.
        case: with shapes, layouts, indices and masks.
        dtype: of the floats that have that of the case's data.
        plain: whether weights are 1 and biases 0.
    """
    tensors = {}
    for seed, (name, spec) in enumerate(case.tensors.items()):
        parameter = operator.tensors[name]
        tensors[name] = spec
        if parameter.kind != "float" or parameter.role == "mask":
            continue
        family = _ordinary(operator, name, "randn")
        if plain and parameter.role in ("weight", "bias"):
            family = "ones" if parameter.role == "weight" else "zeros"
        fill = Fill(family, seed=0xC0DE + 31 * seed)
        own = spec.dtype if parameter.dtype or spec.dtype != case.data.dtype else dtype
        tensors[name] = replace(spec, dtype=own, fill=fill, values=None, plants=())
    return replace(case, tensors=tensors)


def holds(operator: Operator, failing: Case, friendly: Case) -> bool:
    """Whether a friendly case has room for the failing values along the reduced axis.

    Where it has not, tiling cuts them off, and passing there shows little: such
    shapes count only for cases larger than all friendly ones.
    """
    wanted = operator.reduced_size(failing)
    if wanted is None:
        return True
    have = operator.reduced_size(friendly)
    assert have is not None
    return have >= wanted or wanted > max(n for _, n in LADDER)


def tiled(operator: Operator, failing: Derived, friendly: Case) -> Derived:
    """Return the friendly case filled with the failing values, repeated.

    Indices that are not below their new bound are taken modulo it.
    """
    values = {}
    for name, spec in friendly.tensors.items():
        given, rank = failing.values[name], len(spec.shape)
        grid = _as_grid(operator, failing.case, name, given, rank)
        # Cut first: nothing on the way is larger than the friendly tensor.
        grid = grid[tuple(slice(n) for n in spec.shape)]
        for axis, n in enumerate(spec.shape):
            have = grid.shape[axis]
            index = torch.arange(n, device=grid.device) % max(have, 1)
            grid = (
                grid.index_select(axis, index) if have else grid.new_zeros(spec.shape)
            )
        if spec.below:
            bound = max(friendly.bound(spec), 1)
            grid = torch.where(grid < bound, grid, grid % bound)
        values[name] = grid.contiguous()
    return Derived(friendly, operator.fitted(friendly, values))


def as_contiguous(failing: Derived) -> Derived | None:
    """Return the case with contiguous tensors; None if they are so already."""
    specs, layout = failing.case.tensors, failing.case.layout
    plain_layout = layout in (None, CONTIGUOUS)
    if plain_layout and all(s.is_contiguous and not s.offset for s in specs.values()):
        return None
    plain = {n: replace(s, strides=None, offset=0) for n, s in specs.items()}
    layout = None if layout is None else CONTIGUOUS
    made = replace(failing.case, tensors=plain, layout=layout)
    return Derived(made, failing.values)


def recentred(operator: Operator, failing: Derived) -> Derived | None:
    """Return the case with its first data shifted to mean 0 and scaled down.

    Rows along the reduced axis, or of a whole group; None where that cannot be done
    (nothing is reduced, the values are not finite), or where neither their magnitude
    nor their mean stands out.
    """
    axis = operator.reduced_axis(failing.case)
    name = next(n for n, s in failing.case.tensors.items() if s is failing.case.data)
    x = failing.values[name].to(torch.float64)
    if axis is None or x.numel() == 0 or not bool(torch.isfinite(x).all()):
        return None
    centred = x - _row_means(operator, failing.case, x, axis)
    top, greatest = float(centred.abs().max()), float(x.abs().max())
    if greatest <= MODERATE * top and greatest <= 2 * MODERATE:
        return None
    scale = 1.0
    while top * scale > MODERATE:
        scale /= 2
    moderate = (centred * scale).to(failing.values[name].dtype)
    made = {**failing.values, name: moderate.contiguous()}
    return replace(failing, values=operator.fitted(failing.case, made))


def moderated(operator: Operator, failing: Derived) -> Derived | None:
    """Return the case with no number of great magnitude.

    Arguments that have one are scaled down by a power of two, the first data recentred
    too where the operator lets it be; masks and indices stay. None where nothing would
    change.
    """
    made = dict((recentred(operator, failing) or failing).values)
    for name, x in made.items():
        parameter = operator.tensors[name]
        if parameter.kind != "float" or parameter.role == "mask" or not x.numel():
            continue
        wide = x.to(torch.float64)
        top = float(wide.abs().max())
        if MODERATE < top < math.inf:
            made[name] = (wide * 2.0 ** -math.frexp(top)[1]).to(x.dtype)
    made = operator.fitted(failing.case, made)
    same = all(_equal(made[n], failing.values[n]) for n in made)
    return None if same else replace(failing, values=made)


def _equal(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors hold equal numbers; torch compares none of 8 bits."""
    if a.is_floating_point() and a.element_size() == 1:
        a, b = a.float(), b.float()
    return torch.equal(a, b)


def _row_means(operator: Operator, case: Case, x: Tensor, axis: int) -> Tensor:
    """Return the mean of each element's row, in a shape that fits the data."""
    if not operator.groups:
        return x.mean(axis, keepdim=True)
    default = operator.default_of(operator.groups)
    count = int(case.scalars.get(operator.groups, default))
    grouped = torch.unflatten(x, axis - 1, (count, -1))
    means = grouped.mean((axis - 1, axis), keepdim=True)
    return means.expand_as(grouped).flatten(axis - 2, axis - 1)


def _ordinary(operator: Operator, name: str, family: str) -> str:
    """Return the family of ordinary values that an argument gets among others'."""
    parameter = operator.tensors[name]
    if isinstance(parameter, IndexParameter):
        return "index_uniform"
    if parameter.kind != "float":
        return "bool_random" if parameter.kind == "bool" else "int_uniform"
    return "uniform01" if parameter.role == "variance" else family


def _friendly(
    operator: Operator, name: str, rank: int, rows: int, n: int
) -> dict[str, int]:
    """Return the sizes of a tensor's dimensions, in order.

    Args:
        operator: what is to be computed.
        name: of the parameter.
        rank: of the "*" tensors of most names; one of indices is flat.
        rows: the size of the others.
        n: the size of the reduced one.
    """
    parameter = operator.tensors[name]
    count = rank - widest(operator.tensors.values()) if parameter.variadic else 0
    long = {operator.reduced if isinstance(operator.reduced, str) else f"d{rank - 1}"}
    if operator.indices and operator.reduced is None:
        # Nothing is reduced: the last dimension of every tensor.
        long = {p.names[-1] for p in operator.tensors.values() if p.names}
    if name in operator.indices or parameter.without:
        count = 1 - len(parameter.names)
    axes = parameter.axes([f"d{i}" for i in range(count)])
    sizes = {axis: n if axis in long else rows for axis in axes}
    return sizes | {a: size for a, size in operator.usual.items() if a in sizes}


def _friendly_rank(operator: Operator, declaration: Declaration) -> int:
    """Return the rank nearest to the usual one that the kernel takes."""
    ranks = operator.ranks if declaration.ranks is None else declaration.ranks
    least, usual = widest(operator.tensors.values()), operator.usual_rank
    valid = (rank for rank in ranks if rank >= least)
    return min(valid, key=lambda rank: abs(rank - usual), default=usual)


def _as_grid(
    operator: Operator, case: Case, name: str, values: Tensor, rank: int
) -> Tensor:
    """Return a "*" tensor in a rank: what "*" stands for as one dimension, or merged.

    One of no names is [rows, reduced axis] where the rank allows, one of indices flat.
    Others are unchanged.
    """
    parameter = operator.tensors[name]
    if not parameter.variadic:
        return values
    if name in operator.indices or parameter.without:
        return values.reshape(-1)
    axes, names = case.tensors[name].axes, parameter.names
    count = rank - len(names)
    if not names and count > 1:
        axis = operator.reduced_axis(case)
        moved = values.reshape(values.shape or (1,)).movedim(axis or -1, -1)
        n = moved.shape[-1]
        rows = moved.numel() // n if n else 0
        return moved.reshape(*(1,) * (count - 2), rows, n)
    if not names and not count:
        return values.reshape(-1)[:1].sum().to(values.dtype)
    places = [i for i, axis in enumerate(axes) if axis not in names]
    named = [axes.index(axis) for axis in names]
    sizes = [values.shape[i] for i in named]
    grouped = values.permute(*places, *named)
    rows = math.prod(values.shape[i] for i in places)
    if not count:  # with the first of those named
        return grouped.reshape(rows * sizes[0], *sizes[1:])
    grid = grouped.reshape(*(1,) * (count - 1), rows, *sizes)
    others = [f"_{i}" for i in range(count)]
    have = (*others, *names)
    return grid.permute([have.index(axis) for axis in parameter.axes(others)])


def _last_dim(declaration: Declaration) -> int:
    return -1 if declaration.dims is None or -1 in declaration.dims else 1
