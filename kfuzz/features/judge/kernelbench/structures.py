"""What the values of an argument have in common besides their type.

A triangular matrix, rows that sum to 1, sorted numbers: whoever writes a kernel for
such arguments may rely on it.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from kfuzz.numerics.domains import distinct_below, mirrored

# What rounding may leave between an element and its mirror image, times the largest.
_NEARLY: Final = 1e-5


@dataclass(frozen=True)
class Structure:
    """One property of all values that an argument ever has.

    Attributes:
        text: what it says of an argument, after "is".
        made: returns values that have it, of finite ones: same shape and dtype.
        has: whether values have it; None where those do that `made` leaves alone.
        square: whether it speaks of square matrices, the last two dimensions.
        zeros: whether it says where zeros are: a product with one may be left out, so
            that NaN and infinities elsewhere need not reach the result.
        discrete: whether there are few values: none are drawn but the file's own.
        fixed: whether no values can be made for it: the file's own are all there are.
        bounded: whether it bounds the numbers.
        needed: whether it holds because the reference does not take others.
        nan: whether NaN may stand where it holds.
    """

    text: str
    made: Callable[[Tensor], Tensor]
    has: Callable[[Tensor], bool] | None = None
    square: bool = False
    zeros: bool = False
    discrete: bool = False
    fixed: bool = False
    bounded: bool = False
    needed: bool = False
    nan: bool = False

    def holds(self, x: Tensor) -> bool:
        """Whether values have it."""
        return torch.equal(self.made(x), x) if self.has is None else self.has(x)


def unknown(why: str, has: Callable[[Tensor], bool] = lambda x: True) -> Structure:
    """Return a property that no values can be made for, seen as "is" and why."""
    text = f"{why}: only what get_inputs gives is tried"
    return Structure(text, lambda x: x, has, zeros=True, discrete=True, fixed=True)


# Places ---------------------------------------------------------------------------

_BANDS: Final = {
    (None, 0): "lower triangular",
    (None, -1): "strictly lower triangular",
    (0, None): "upper triangular",
    (1, None): "strictly upper triangular",
    (0, 0): "diagonal",
}


def inside(x: Tensor, lower: int | None, upper: int | None) -> Tensor:
    """Return which elements of matrices lie between diagonals, at the size of x."""
    rows = torch.arange(x.shape[-2], device=x.device)
    columns = torch.arange(x.shape[-1], device=x.device)
    place = columns[None, :] - rows[:, None]
    found = torch.ones_like(place, dtype=torch.bool)
    if lower is not None:
        found &= place >= lower
    if upper is not None:
        found &= place <= upper
    return found.expand(x.shape)


def band(lower: int | None, upper: int | None) -> Structure:
    """Return zeros outside diagonals of the last two dimensions.

    Args:
        lower: the least column minus row that is not zero; None for no limit.
        upper: the greatest, likewise.
    """
    first = "the first" if lower is None else f"row {lower:+}"
    last = "the last" if upper is None else f"row {upper:+}"
    text = _BANDS.get((lower, upper), f"zero but for columns {first} to {last}")

    def made(x: Tensor) -> Tensor:
        return torch.where(inside(x, lower, upper), x, torch.zeros_like(x))

    return Structure(text, made, square=True, zeros=True)


def pattern(lower: int | None, upper: int | None, value: float) -> Structure:
    """Return one value on some diagonals and zeros elsewhere, such as a causal mask."""
    zero_outside = band(lower, upper)
    return Structure(
        f"{zero_outside.text}, {value:g} where it is not 0",
        lambda x: zero_outside.made(torch.full_like(x, value)),
        square=True, zeros=True, discrete=True,
    )  # fmt: skip


def _is_symmetric(x: Tensor) -> bool:
    """Whether it equals its transpose, up to the rounding of a product."""
    if not x.is_floating_point() or torch.equal(x, x.mT):
        return torch.equal(x, x.mT)
    far = (x.to(torch.float64) - x.mT.to(torch.float64)).abs()
    return bool((far <= _NEARLY * x.abs().max()).all())


SYMMETRIC: Final = Structure(
    "symmetric",
    lambda x: torch.where(inside(x, None, 0), x, x.mT),
    _is_symmetric, square=True,
)  # fmt: skip


def _is_definite(x: Tensor) -> bool:
    """Whether a Cholesky decomposition in float64 exists."""
    wide = x.to(torch.float64)
    finite = bool(torch.isfinite(wide).all())
    return finite and not bool(torch.linalg.cholesky_ex(wide).info.any())


def _made_definite(x: Tensor) -> Tensor:
    """Return the values with a diagonal that outweighs its rows."""
    top = torch.finfo(x.dtype).max / (8 * x.shape[-1])
    wide = SYMMETRIC.made(x.clamp(-top, top)).to(torch.float64)
    diagonal = wide.diagonal(dim1=-2, dim2=-1)
    beside = wide.abs().sum(-1) - diagonal.abs()
    floor = torch.where(beside > 0, 2 * beside, torch.ones_like(beside))
    heavy = torch.where(diagonal.abs() > 1.5 * beside, diagonal.abs(), floor)
    heavy = torch.where(heavy > 0, heavy, torch.ones_like(heavy))
    apart = wide - torch.diag_embed(diagonal) + torch.diag_embed(heavy)
    return apart.to(x.dtype)


DEFINITE: Final = Structure(
    "positive definite", _made_definite, _is_definite, square=True
)


def repeated(axis: int) -> Structure:
    """Return the same values at every index of one dimension."""
    return Structure(
        f"the same at every index of dimension {axis}",
        lambda x: x.narrow(axis, 0, min(x.shape[axis], 1)).expand(x.shape).contiguous(),
    )


def in_order(axis: int, *, falling: bool = False) -> Structure:
    """Return numbers in order along one dimension."""
    return Structure(
        f"sorted along dimension {axis}, {'falling' if falling else 'rising'}",
        lambda x: x.sort(dim=axis, descending=falling).values,
    )


def one_hot(axis: int) -> Structure:
    """Return a single 1 among zeros along one dimension."""

    def made(x: Tensor) -> Tensor:
        at = x.to(torch.float64).argmax(axis, keepdim=True)
        return torch.zeros_like(x).scatter(axis, at, torch.ones_like(x))

    return Structure(f"one-hot along dimension {axis}", made, zeros=True, discrete=True)


# Numbers --------------------------------------------------------------------------


def constant(value: float) -> Structure:
    """Return one value everywhere, in every draw."""
    return Structure(
        f"{value:g} everywhere", lambda x: torch.full_like(x, value),
        zeros=value == 0, discrete=True,
    )  # fmt: skip


def shares(axis: int, tolerance: float, *, log: bool = False) -> Structure:
    """Return numbers that are not negative and sum to 1 along one dimension.

    Args:
        axis: the dimension.
        tolerance: how far a sum may be from 1.
        log: whether the values are logarithms of such numbers.
    """

    def has(x: Tensor) -> bool:
        wide = x.to(torch.float64)
        wide = wide.exp() if log else wide
        near = (wide.sum(axis) - 1).abs() <= tolerance
        return bool((wide >= 0).all()) and bool(near.all())

    def made(x: Tensor) -> Tensor:
        wide = x.to(torch.float64)
        if log:
            return torch.log_softmax(wide, axis).to(x.dtype)
        # No share is 0: its logarithm may be asked for.
        most = 4.0 if x.dtype is torch.float16 else 30.0
        wide = (wide - wide.amax(axis, keepdim=True)).clamp_min(-most)
        return torch.softmax(wide, axis).to(x.dtype)

    what = "of logarithms of numbers" if log else "of numbers"
    text = f"made {what} that sum to 1 along dimension {axis}"
    return Structure(text, made, has, bounded=True)


def unit(axis: int, tolerance: float) -> Structure:
    """Return vectors of length 1 along one dimension.

    Args:
        axis: the dimension.
        tolerance: how far a square of a length may be from 1.
    """

    def has(x: Tensor) -> bool:
        squares = x.to(torch.float64).square().sum(axis)
        return bool(((squares - 1).abs() <= tolerance).all())

    def made(x: Tensor) -> Tensor:
        wide = x.to(torch.float64)
        peak = wide.abs().amax(axis, keepdim=True)
        first = torch.zeros_like(wide)
        first.narrow(axis, 0, 1).fill_(1.0)  # stands for a vector of zeros
        wide = torch.where(peak > 0, wide / peak.clamp_min(1e-300), first)
        lengths = wide.square().sum(axis, keepdim=True).sqrt()
        return (wide / lengths).to(x.dtype)

    text = f"made of vectors of length 1 along dimension {axis}"
    return Structure(text, made, has, bounded=True)


def _is_permutation(x: Tensor) -> bool:
    every = torch.arange(x.shape[-1], device=x.device, dtype=x.dtype)
    return torch.equal(x.sort(dim=-1).values, every.expand(x.shape))


PERMUTATION: Final = Structure(
    "a permutation of 0 to n-1 along its last dimension",
    lambda x: distinct_below(x, x.shape[-1]),
    _is_permutation, discrete=True,
)  # fmt: skip


def distinct(least: int) -> Structure:
    """Return integers, from the least on, of which none stands twice in a row."""

    def has(x: Tensor) -> bool:
        ordered = x.sort(dim=-1).values
        return not bool((ordered[..., 1:] == ordered[..., :-1]).any())

    return Structure(
        "without a number that stands twice along its last dimension",
        lambda x: (x.argsort(dim=-1, stable=True) + least).to(x.dtype),
        has, discrete=True,
    )  # fmt: skip


def few(*values: float) -> Structure:
    """Return numbers out of a short list, rising; with 0 among them they are a mask."""

    def made(x: Tensor) -> Tensor:
        every = torch.tensor(values, dtype=x.dtype, device=x.device)
        nearest = every[(x.abs().unsqueeze(-1) - every).abs().argmin(-1)]
        return torch.where(torch.isin(x, every), x, nearest)

    text = f"made of {', '.join(f'{v:g}' for v in values)} alone"
    return Structure(text, made, zeros=0.0 in values, discrete=True)


def whole(least: int, greatest: int) -> Structure:
    """Return floating numbers that are integers within a range, such as classes."""

    def made(x: Tensor) -> Tensor:
        inside = (x >= least) & (x <= greatest) & (x == x.round())
        return torch.where(inside, x, x.abs().round().clamp(least, greatest))

    return Structure(
        f"made of integers from {least} to {greatest}", made, discrete=True
    )


def interval(least: float | None, greatest: float | None, *, nan: bool) -> Structure:
    """Return numbers on that side of a bound on which the reference is defined.

    Args:
        least: the least, None for no bound.
        greatest: the greatest, likewise.
        nan: whether the reference takes NaN.
    """
    low = "" if least is None else f" from {least:.3g}"
    high = "" if greatest is None else f" to {greatest:.3g}"

    def has(x: Tensor) -> bool:
        if not nan and bool(x.isnan().any()):
            return False
        below = least is not None and bool((x < least).any())
        return not below and not (greatest is not None and bool((x > greatest).any()))

    return Structure(
        f"kept{low}{high}, since the reference does not take others",
        lambda x: mirrored(x, least, greatest), has, needed=True, nan=nan,
    )  # fmt: skip


# Finding what the values of an argument have in common, from several draws of them.
#
# What holds by chance is no structure: the same numbers in other orders must not have
# it.

# Natural logarithm of the chance below which it is none.
_CHANCE: Final = -11.0
# Orders in which the numbers are looked at: so many elements in all, and the bounds.
_SHUFFLED: Final = 1 << 20
_LEAST_ORDERS, _MOST_ORDERS = 32, 256
# Elements of an argument that are put in another order; of a larger one a part.
_PART: Final = 1 << 14
# Elements of an argument that are looked at; of a larger one the first rows.
_LOOKED_AT: Final = 1 << 20
_VALUES: Final = 8
# Rows of a matrix that is tried for a Cholesky decomposition, or for orthogonal rows.
_MATRIX: Final = 1024
# Least number of fixed elements, and by how much they exceed what chance would give.
_FIXED, _EXCESS = 8, 8


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
    search = _Search(draws)
    lines = search.diagonals()
    if found := search.unvarying(lines, varying=varying):
        return (found,)
    alike = [*search.order(), *search.symmetry()]
    placed = [] if lines is None else [band(*lines)]
    ordered = any(s.text.startswith("sorted") for s in alike)
    # Where numbers are sorted some stay by themselves.
    if not ordered and search.has_fixed_places(lines):
        placed.append(unknown("the same in every draw at some places"))
    made = (*placed, *alike, *search.numbers())
    kept = tuple(s for s in made if all(map(s.holds, draws)))
    return (
        kept
        if are_compatible(kept, first)
        else (unknown("of more than one structure"),)
    )


class _Search:
    """Looks at several draws of one argument, and at their numbers in other orders."""

    def __init__(self, draws: Sequence[Tensor]) -> None:
        self._draws = draws
        self._first = draws[0]
        many = self._first.dim() > 1
        self._looked_at = [_head(x, _LOOKED_AT) if many else x for x in draws]
        self._values = torch.cat([x.reshape(-1) for x in self._looked_at])

    def shows(self, made: Structure) -> bool:
        """Whether what is looked at has a structure, and not by chance."""
        seen = self._draws if made.square else self._looked_at
        if not all(map(made.holds, seen)):
            return False
        orders = [made.holds(x) for x in self._shuffled(square=made.square)]
        chance = (sum(orders) + 1) / (len(orders) + 1)
        return not any(orders) or len(self._draws) * math.log(chance) < _CHANCE

    def _shuffled(self, *, square: bool) -> Iterator[Tensor]:
        """Yield tensors of the numbers of all draws, each in another random order."""
        parts = [_corner(x) if square else _head(x, _PART) for x in self._draws]
        pool = torch.cat([x.reshape(-1) for x in parts])
        chance = torch.Generator().manual_seed(11)
        count = min(max(_SHUFFLED // len(pool), _LEAST_ORDERS), _MOST_ORDERS)
        for _ in range(count):
            at = torch.randperm(len(pool), generator=chance)[: parts[0].numel()]
            yield pool[at.to(pool.device)].reshape(parts[0].shape)

    def diagonals(self) -> tuple[int | None, int | None] | None:
        """Return the diagonals outside which all is zero, by more than chance."""
        first = self._looked_at[0]
        if first.dim() < 2 or min(first.shape[-2:]) < 2:
            return None
        rows, columns = first.shape[-2:]
        filled = torch.zeros((rows, columns), dtype=torch.bool, device=first.device)
        for x in self._looked_at:
            filled |= (x != 0).reshape(-1, rows, columns).any(0)
        at = filled.nonzero()
        if not len(at):
            return None
        place = at[:, 1] - at[:, 0]
        least, greatest = int(place.min()), int(place.max())
        found = (
            None if least == 1 - rows else least,
            None if greatest == columns - 1 else greatest,
        )
        there = inside(first, *found)
        outside = int((~there).sum()) * len(self._looked_at)
        kept = torch.cat([x[there] for x in self._looked_at])
        chance = (int((kept == 0).sum()) + 1) / (len(kept) + 2)
        return found if outside * math.log(chance) < _CHANCE else None

    def unvarying(
        self, lines: tuple[int | None, int | None] | None, *, varying: bool
    ) -> Structure | None:
        """Return what it is that has a pattern, one value, or never changes."""
        first, draws = self._first, self._draws
        if lines is not None:
            value = float(first[inside(first, *lines)][0])
            if all(map((made := pattern(*lines, value)).holds, draws)):
                return made
        same = len(draws) > 1 and all(torch.equal(first, x) for x in draws[1:])
        if not varying or not same:
            return None
        if bool((first == first.reshape(-1)[0]).all()):
            value = float(first.reshape(-1)[0])
            # Of few integers all may be equal by chance.
            many = first.numel() * len(draws) >= 12
            fraction = math.isfinite(value) and not value.is_integer()
            return constant(value) if many or fraction else None
        what, seen = "the same in every draw", self._looked_at[0]
        return unknown(what) if self.shows(unknown(what, seen.equal)) else None

    def has_fixed_places(self, lines: tuple[int | None, int | None] | None) -> bool:
        """Whether elements stay the same in all draws at more places than by chance."""

        def fixed(draws: Sequence[Tensor]) -> Tensor:
            return torch.stack([x == draws[0] for x in draws]).all(0)

        if len(self._draws) < 3:
            return False
        found = fixed(self._looked_at)
        if lines is not None:
            found &= inside(found, *lines)
        seen = int(found.sum())
        if seen < _FIXED:
            return False
        chance = torch.Generator().manual_seed(13)
        orders = [torch.randperm(len(self._values), generator=chance) for _ in range(8)]
        split = [
            self._values[at.to(found.device)].chunk(len(self._draws)) for at in orders
        ]
        expected = sum(int(fixed(x).sum()) for x in split) / len(split)
        return seen > _EXCESS * expected

    def order(self) -> Iterator[Structure]:
        """Yield what is repeated, sorted, or stands once in the last dimension."""
        first, values = self._first, self._values
        ways = () if first.dtype is torch.bool else (False, True)
        for axis, n in enumerate(first.shape):
            if n < 2:
                continue
            alternatives = [repeated(axis)]
            fixed = any(self._has_fixed_end(axis, at) for at in (0, n - 1))
            for falling in ways:
                made = in_order(axis, falling=falling)
                between = unknown("sorted between fixed ends", made.holds)
                alternatives.append(between if fixed else made)
            yield from self._first_shown(alternatives)
        integers = not values.is_floating_point() or torch.equal(values, values.round())
        if ways and integers and first.dim() and first.shape[-1] > 1:
            yield from self._first_shown([PERMUTATION, distinct(int(values.min()))])

    def _first_shown(self, alternatives: Sequence[Structure]) -> list[Structure]:
        """Return the first of several that shows, nothing where none does."""
        found = next(filter(self.shows, alternatives), None)
        return [] if found is None else [found]

    def _has_fixed_end(self, axis: int, at: int) -> bool:
        """Whether integers end with a rare number that is always the same."""
        draws = self._looked_at
        if len(draws) < 3 or self._first.is_floating_point():
            return False
        ends = [x.narrow(axis, at, 1) for x in draws]
        if not all(torch.equal(ends[0], x) for x in ends):
            return False
        alike = [(x == end).sum(axis) for x, end in zip(draws, ends, strict=True)]
        return sum(float(n.to(torch.float64).mean()) for n in alike) < 1.5 * len(draws)

    def symmetry(self) -> Iterator[Structure]:
        """Yield that matrices are symmetric, and that they are positive definite."""
        first, draws = self._first, self._draws
        if first.dim() < 2 or not first.shape[-1] == first.shape[-2] > 1:
            return
        if all(map(band(0, 0).holds, draws)) or not self.shows(SYMMETRIC):
            return
        yield SYMMETRIC
        real = first.is_floating_point() and 2 < first.shape[-1] <= _MATRIX
        if real and all(map(DEFINITE.holds, draws)):
            yield DEFINITE

    def numbers(self) -> Iterator[Structure]:
        """Yield what is said of the numbers themselves."""
        first, values = self._first, self._values
        # Along a dimension of which the rest was left out nothing is complete.
        cut = self._looked_at[0].shape != first.shape
        axes = [a for a in range(int(cut), first.dim()) if first.shape[a] > 1]
        known = set_of(values)
        if values.dtype is torch.bool or known == {0.0, 1.0}:
            counted = self._first_shown(list(map(self._counted, axes)))
            other = [] if values.dtype is torch.bool else [few(0.0, 1.0)]
            yield from counted or other
        elif not first.is_floating_point():
            return
        elif known and len(values) >= 8 * len(known):
            yield few(*sorted(known))
        elif not bool(torch.isfinite(values).all()):
            yield unknown("not finite everywhere")
        elif (
            torch.equal(values, values.round()) and float(values.abs().max()) < 1 << 24
        ):
            if len(values) >= 4:
                yield whole(int(values.min()), int(values.max()))
        else:
            yield from self._normalised(axes)

    def _counted(self, axis: int) -> Structure:
        """Return that 0 and 1 stand in the same numbers all along a dimension."""
        size = self._first.shape[axis]
        ones = int((self._first != 0).sum(axis).reshape(-1)[0])
        if ones == 1 and self._first.dtype is not torch.bool:
            return one_hot(axis)

        def has(x: Tensor) -> bool:
            return 0 < ones < size and bool(((x != 0).sum(axis) == ones).all())

        return unknown("made with as many ones in each row", has)

    def _normalised(self, axes: Sequence[int]) -> Iterator[Structure]:
        """Yield that rows sum to 1, have length 1, or are orthogonal."""
        tolerance = max(1e-4, 8 * torch.finfo(self._first.dtype).eps)
        sums = [shares(a, tolerance, log=log) for a in axes for log in (False, True)]
        if found := self._first_shown(sums):
            yield from found
            return
        for axis in axes:
            if not self.shows(made := unit(axis, tolerance)):
                continue
            yield made
            rows = axis - self._first.dim()
            if rows >= -2 and all(
                _is_orthogonal(x, rows, tolerance) for x in self._draws
            ):
                yield unknown("made of orthogonal vectors")
            return


def set_of(values: Tensor) -> set[float]:
    """Return the values where they are few, nothing where they are many or NaN."""
    if bool(values.isnan().any()) if values.is_floating_point() else False:
        return set()
    some = torch.unique(values[: 16 * _VALUES])
    if len(some) > _VALUES:
        return set()
    every = torch.unique(values)
    return set() if len(every) > _VALUES else {float(v) for v in every}


def _is_orthogonal(x: Tensor, axis: int, tolerance: float) -> bool:
    """Whether the vectors along one of the last two dimensions are orthogonal."""
    if x.dim() < 2 or max(x.shape[-2:]) > _MATRIX:
        return False
    wide = x.to(torch.float64)
    wide = wide if axis == -1 else wide.mT
    if wide.shape[-2] < 2:
        return False
    one = torch.eye(wide.shape[-2], dtype=torch.float64, device=x.device)
    return bool(((wide @ wide.mT - one).abs() <= tolerance).all())


def _head(x: Tensor, most: int) -> Tensor:
    """Return the first rows of a large tensor."""
    if x.numel() <= most or not x.dim():
        return x
    return x.narrow(0, 0, max(1, most * x.shape[0] // x.numel()))


def _corner(x: Tensor) -> Tensor:
    """Return the first rows and columns of the first of large matrices."""
    if x.numel() <= _PART:
        return x
    side = math.isqrt(_PART)
    return x.reshape(-1, *x.shape[-2:])[0, :side, :side]


def are_compatible(found: Sequence[Structure], like: Tensor) -> bool:
    """Whether values made for one structure after the other have all of them."""
    if len(found) < 2 or like.numel() > _LOOKED_AT:
        return True
    chance = torch.Generator().manual_seed(13)
    noise = torch.randn(like.shape, generator=chance).to(like.device)
    x = noise.to(like.dtype) if like.is_floating_point() else (8 * noise).to(like.dtype)
    for structure in found:
        x = structure.made(x)
    return all(structure.holds(x) for structure in found)
