"""Finding what the values of an argument have in common, from several draws of them.

What holds by chance is not taken for a structure: for each the chance is estimated from
the values themselves, as if their elements were drawn independently of one another.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Final

import torch
from torch import Tensor

from kfuzz.judge.kernelbench.structures import (
    Band,
    Constant,
    Definite,
    Pattern,
    Repeated,
    Structure,
    Symmetric,
    Unknown,
)
from kfuzz.judge.kernelbench.structures_of_numbers import (
    Distinct,
    Few,
    OneHot,
    Permutation,
    Simplex,
    Sorted,
    Unit,
    Whole,
)

# Natural logarithm of the chance below which it is none.
_CHANCE: Final = -11.0
# Elements of an argument that are looked at; of a larger one the first rows.
_LOOKED_AT: Final = 1 << 20
_VALUES: Final = 8
# Rows of a matrix that is tried for a Cholesky decomposition, or for orthogonal rows.
_MATRIX: Final = 1024
# Least number of fixed elements, and by how much they exceed what chance would give.
_FIXED, _EXCESS = 8, 8.0


def structures_of(
    draws: Sequence[Tensor], *, varying: bool = True
) -> tuple[Structure, ...]:
    """Return what all draws of one argument have in common.

    Args:
        draws: the argument as it was drawn.
        varying: whether anything differs from one draw to the next; where the file
            seeds itself, that an argument does not says nothing.
    """
    first = draws[0]
    if not first.numel():
        return ()
    looked_at = [_head(x) for x in draws]
    band = _band(looked_at)
    if found := _unvarying(draws, band, varying=varying):
        return (found,)
    chance = _equal_chance(looked_at)
    # Along a dimension of which the rest was left out nothing is complete.
    whole = looked_at[0].shape == first.shape
    alike = [*_alike(looked_at, chance), *_symmetric(draws, chance)]
    ordered = any(isinstance(s, Sorted) for s in alike)
    found_there = [
        *_placed(looked_at, band, chance, ordered=ordered),
        *alike,
        *_valued(looked_at, 0 if whole else 1),
    ]
    kept = tuple(s for s in found_there if all(s.holds(x) for x in draws))
    return kept if _together(kept, first) else (Unknown("of more than one structure"),)


def _unvarying(
    draws: Sequence[Tensor], band: Band | None, *, varying: bool
) -> Structure | None:
    """Return what an argument is that has a pattern, one value, or never changes."""
    first = draws[0]
    if band is not None:
        inside = first[band.mask(first).expand(first.shape)]
        pattern = Pattern(band, float(inside[0]))
        if all(pattern.holds(x) for x in draws):
            return pattern
    same = len(draws) > 1 and all(torch.equal(first, x) for x in draws[1:])
    if not varying or not same:
        return None
    value = first.reshape(-1)[0]
    if bool((first == value).all()):
        # Of few integers all may be equal by chance.
        many = first.numel() * len(draws) >= 12
        fraction = first.is_floating_point() and bool(value != value.round())
        return Constant(float(value)) if many or fraction else None
    some = [_head(first)]
    certain = some[0].numel() * (len(draws) - 1) * math.log(_equal_chance(some))
    return Unknown("the same in every draw") if certain < _CHANCE else None


def _placed(
    draws: Sequence[Tensor], band: Band | None, chance: float, *, ordered: bool
) -> Iterator[Structure]:
    """Yield what is said of places: zeros outside diagonals, elements that stay.

    Args:
        draws: the argument.
        band: the diagonals outside which it is zero.
        chance: how often two elements are equal by chance.
        ordered: whether numbers are sorted, so that some stay by themselves.
    """
    if band is not None:
        yield band
    if len(draws) < 3 or ordered:
        return
    fixed = torch.ones_like(draws[0], dtype=torch.bool)
    for x in draws[1:]:
        fixed &= x == draws[0]
    if band is not None:
        fixed &= band.mask(draws[0])
    expected = fixed.numel() * chance ** (len(draws) - 1)
    seen = int(fixed.sum())
    if seen >= _FIXED and seen > _EXCESS * expected:
        yield Unknown("the same in every draw at some places")


def _band(draws: Sequence[Tensor]) -> Band | None:
    """Return the diagonals outside which every draw is zero, by more than chance."""
    first = draws[0]
    if first.dim() < 2 or min(first.shape[-2:]) < 2:
        return None
    rows, columns = first.shape[-2:]
    filled = torch.zeros((rows, columns), dtype=torch.bool, device=first.device)
    for x in draws:
        filled |= (x != 0).reshape(-1, rows, columns).any(0)
    at = filled.nonzero()
    if not len(at):
        return None
    place = at[:, 1] - at[:, 0]
    least, greatest = int(place.min()), int(place.max())
    band = Band(
        None if least == 1 - rows else least,
        None if greatest == columns - 1 else greatest,
    )
    inside = band.mask(first)
    outside = int((~inside).sum()) * first.numel() // (rows * columns)
    if not outside:
        return None
    kept = [x[..., inside] for x in draws]
    zeros = sum(int((x == 0).sum()) for x in kept)
    chance = (zeros + 1) / (sum(x.numel() for x in kept) + 2)
    return band if outside * len(draws) * math.log(chance) < _CHANCE else None


def _alike(draws: Sequence[Tensor], chance: float) -> Iterator[Structure]:
    """Yield what is said of equal elements: repeated rows, order.

    Args:
        draws: the argument.
        chance: how often two elements are equal by chance.
    """
    first = draws[0]
    equal, equal_along = math.log(chance), set()
    for axis, n in enumerate(first.shape):
        pairs = first.numel() // max(n, 1) * (n - 1) * len(draws)
        if n > 1 and pairs * equal < _CHANCE:
            repeated = Repeated(axis)
            if all(repeated.holds(x) for x in draws):
                equal_along.add(axis)
                yield repeated
    if first.dtype is not torch.bool:
        yield from _ordered(draws, equal_along)
        yield from _once_each(draws)


def _symmetric(draws: Sequence[Tensor], chance: float) -> Iterator[Structure]:
    """Yield that matrices are symmetric, and that they are positive definite.

    Args:
        draws: the argument, whole: no part of a matrix says that it is symmetric.
        chance: how often two elements are equal by chance.
    """
    first = draws[0]
    if first.dim() < 2 or not first.shape[-1] == first.shape[-2] > 1:
        return
    n = first.shape[-1]
    if not all(Symmetric().holds(x) for x in draws):
        return
    diagonal = all(Band(0, 0).holds(x) for x in draws)
    pairs = first.numel() // n * (n - 1) // 2 * len(draws)
    if diagonal or pairs * math.log(chance) >= _CHANCE:
        return
    yield Symmetric()
    real = first.is_floating_point() and 2 < n <= _MATRIX
    if real and all(Definite().holds(x) for x in draws):
        yield Definite()


def _ordered(draws: Sequence[Tensor], left_out: set[int]) -> Iterator[Structure]:
    """Yield that numbers are sorted along a dimension, but those left out."""
    first = draws[0]
    values = _sample(draws)
    shuffled = values[_order(values)]
    for axis, n in enumerate(first.shape):
        pairs = first.numel() // max(n, 1) * (n - 1) * len(draws)
        for falling in (False, True):
            ordered = shuffled <= values if falling else values <= shuffled
            chance = (int(ordered.sum()) + 1) / (len(values) + 2)
            made = Sorted(axis, falling)
            due = axis not in left_out and pairs * math.log(chance) < _CHANCE
            if due and all(map(made.holds, draws)):
                fixed = any(_fixed_end(draws, axis, at) for at in (0, n - 1))
                yield Unknown("sorted between fixed ends") if fixed else made


def _fixed_end(draws: Sequence[Tensor], axis: int, at: int) -> bool:
    """Whether sorted integers have an end that is the same in every draw, and rare."""
    if len(draws) < 3 or draws[0].is_floating_point():
        return False
    ends = [x.select(axis, at) for x in draws]
    if not all(torch.equal(ends[0], x) for x in ends):
        return False
    alike = [(x == x.select(axis, at).unsqueeze(axis)).sum(axis) for x in draws]
    return sum(float(n.to(torch.float64).mean()) for n in alike) < 1.5 * len(draws)


def _once_each(draws: Sequence[Tensor]) -> Iterator[Structure]:
    """Yield that integers are distinct along the last dimension, or a permutation."""
    first = draws[0]
    values = torch.cat([x.reshape(-1) for x in draws])
    whole = not first.is_floating_point() or bool((values == values.round()).all())
    if not whole or not first.dim() or first.shape[-1] < 2:
        return
    n = first.shape[-1]
    rows = first.numel() // n * len(draws)
    permutation = Permutation()
    if rows * (math.lgamma(n + 1) - n * math.log(n)) < _CHANCE and all(
        map(permutation.holds, draws)
    ):
        yield permutation
        return
    least, greatest = int(values.min()), int(values.max())
    distinct = Distinct(least)
    collisions = rows * n * (n - 1) / 2 / (greatest - least + 1)
    if collisions > -_CHANCE and all(map(distinct.holds, draws)):
        yield distinct


def _valued(draws: Sequence[Tensor], first_axis: int) -> Iterator[Structure]:
    """Yield what is said of the numbers themselves.

    Args:
        draws: the argument.
        first_axis: the first dimension that is complete.
    """
    first = draws[0]
    values = torch.cat([x.reshape(-1) for x in draws])
    axes = range(first_axis, first.dim())
    if values.dtype is torch.bool or set_of(values) == {0.0, 1.0}:
        counted = list(_counted(draws, axes))
        yield from counted
        if values.dtype is not torch.bool and not counted:
            yield Few((0.0, 1.0))
        return
    if not first.is_floating_point():
        return
    few = sorted(set_of(values))
    if few and len(values) >= 8 * len(few):
        yield Few(tuple(few))
        return
    if not bool(torch.isfinite(values).all()):
        yield Unknown("not finite everywhere")
        return
    if bool((values == values.round()).all()) and float(values.abs().max()) < 1 << 24:
        if len(values) >= 4:
            yield Whole(int(values.min()), int(values.max()))
        return
    yield from _normalised(draws, axes)


def set_of(values: Tensor) -> set[float]:
    """Return the values where they are few, nothing where they are many or NaN."""
    if bool(values.isnan().any()) if values.is_floating_point() else False:
        return set()
    some = torch.unique(values[: 16 * _VALUES])
    if len(some) > _VALUES:
        return set()
    every = torch.unique(values)
    return set() if len(every) > _VALUES else {float(v) for v in every}


def _counted(draws: Sequence[Tensor], axes: Sequence[int]) -> Iterator[Structure]:
    """Yield that 0 and 1 stand in equal numbers along a dimension."""
    first = draws[0]
    share = sum(float((x != 0).to(torch.float64).mean()) for x in draws) / len(draws)
    for axis in axes:
        n = first.shape[axis]
        if n < 2 or not 0 < share < 1:
            continue
        sums = torch.cat([(x != 0).sum(axis).reshape(-1) for x in draws])
        k = int(sums[0])
        if not bool((sums == k).all()):
            continue
        likely = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
        likely += k * math.log(share) + (n - k) * math.log(1 - share)
        if (len(sums) - 1) * min(likely, -0.05) < _CHANCE:
            equal = Unknown("made with as many ones in each row")
            yield OneHot(axis) if k == 1 and first.dtype is not torch.bool else equal
            return


def _normalised(draws: Sequence[Tensor], axes: Sequence[int]) -> Iterator[Structure]:
    """Yield that rows sum to 1, have length 1, or are orthogonal."""
    first = draws[0]
    tolerance = max(1e-4, 8 * torch.finfo(first.dtype).eps)
    for axis in axes:
        n = first.shape[axis]
        if n < 2:
            continue
        rows = first.numel() // n * len(draws)
        if rows * math.log(min(0.5, 8 * tolerance)) >= _CHANCE:
            continue
        tried: tuple[Structure, ...] = (
            Simplex(axis, tolerance),
            Simplex(axis, tolerance, log=True),
            Unit(axis, tolerance),
        )
        for made in tried:
            if all(map(made.holds, draws)):
                yield made
                square = isinstance(made, Unit) and axis in (
                    first.dim() - 1, first.dim() - 2,
                )  # fmt: skip
                if square and all(_orthogonal(x, axis, tolerance) for x in draws):
                    yield Unknown("made of orthogonal vectors")
                return


def _orthogonal(x: Tensor, axis: int, tolerance: float) -> bool:
    """Whether the vectors along one of the last two dimensions are orthogonal."""
    if x.dim() < 2 or max(x.shape[-2:]) > _MATRIX:
        return False
    wide = x.to(torch.float64)
    wide = wide if axis == x.dim() - 1 else wide.mT
    if wide.shape[-2] < 2:
        return False
    products = wide @ wide.mT
    one = torch.eye(wide.shape[-2], dtype=torch.float64, device=x.device)
    return bool(((products - one).abs() <= tolerance).all())


def _equal_chance(draws: Sequence[Tensor]) -> float:
    """Return how often two elements are equal by chance, never 0 nor 1."""
    values = _sample(draws)
    same = int((values == values[_order(values)]).sum())
    return (same + 1) / (len(values) + 2)


def _sample(draws: Sequence[Tensor]) -> Tensor:
    """Return elements of all draws, at even distances where they are many."""
    every = torch.cat([x.reshape(-1) for x in draws])
    return every[:: len(every) // _LOOKED_AT + 1]


def _order(values: Tensor) -> Tensor:
    """Return a random order, the same every time."""
    chance = torch.Generator().manual_seed(11)
    return torch.randperm(len(values), generator=chance).to(values.device)


def _head(x: Tensor) -> Tensor:
    """Return the first rows of a large tensor."""
    if x.numel() <= _LOOKED_AT or x.dim() < 2:
        return x
    rows = max(1, _LOOKED_AT * x.shape[0] // x.numel())
    return x.narrow(0, 0, rows)


def _together(found: Sequence[Structure], like: Tensor) -> bool:
    """Whether values made for one structure after the other have all of them."""
    if len(found) < 2 or like.numel() > _LOOKED_AT:
        return True
    chance = torch.Generator().manual_seed(13)
    noise = torch.randn(like.shape, generator=chance).to(like.device)
    x = noise.to(like.dtype) if like.is_floating_point() else (8 * noise).to(like.dtype)
    for structure in found:
        x = structure.made(x)
    return all(structure.holds(x) for structure in found)
