"""What the values of an argument have in common besides their type.

A triangular matrix, rows that sum to 1, sorted numbers: whoever writes a kernel for
such arguments may rely on it.
"""

from collections.abc import Callable
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
