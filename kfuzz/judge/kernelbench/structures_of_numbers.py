"""What the numbers of an argument have in common, wherever they stand."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from kfuzz.judge.kernelbench.structures import Structure


@dataclass(frozen=True)
class Simplex(Structure):
    """Numbers that are not negative and sum to 1 along one dimension.

    Attributes:
        axis: the dimension.
        tolerance: how far a sum may be from 1.
        log: whether the values are logarithms of such numbers.
    """

    axis: int
    tolerance: float
    log: bool = False

    @property
    def text(self) -> str:
        """What it says."""
        what = "of logarithms of numbers" if self.log else "of numbers"
        return f"made {what} that sum to 1 along dimension {self.axis}"

    def holds(self, x: Tensor) -> bool:
        """Whether every sum is 1."""
        wide = x.to(torch.float64)
        shares = wide.exp() if self.log else wide
        if bool((shares < 0).any()):
            return False
        return bool(((shares.sum(self.axis) - 1).abs() <= self.tolerance).all())

    def made(self, x: Tensor) -> Tensor:
        """Return their softmax, in which no share is 0."""
        wide = x.to(torch.float64)
        if self.log:
            return torch.log_softmax(wide, self.axis).to(x.dtype)
        most = 4.0 if x.dtype is torch.float16 else 30.0
        wide = (wide - wide.amax(self.axis, keepdim=True)).clamp_min(-most)
        return torch.softmax(wide, self.axis).to(x.dtype)


@dataclass(frozen=True)
class Unit(Structure):
    """Vectors of length 1 along one dimension.

    Attributes:
        axis: the dimension.
        tolerance: how far a square of a length may be from 1.
    """

    axis: int
    tolerance: float

    @property
    def text(self) -> str:
        """What it says."""
        return f"made of vectors of length 1 along dimension {self.axis}"

    def holds(self, x: Tensor) -> bool:
        """Whether every length is 1."""
        squares = x.to(torch.float64).square().sum(self.axis)
        return bool(((squares - 1).abs() <= self.tolerance).all())

    def made(self, x: Tensor) -> Tensor:
        """Return the vectors divided by their lengths; the first axis for a zero."""
        wide = x.to(torch.float64)
        peak = wide.abs().amax(self.axis, keepdim=True)
        first = torch.zeros_like(wide)
        first.narrow(self.axis, 0, 1).fill_(1.0)
        wide = torch.where(peak > 0, wide / peak.clamp_min(1e-300), first)
        lengths = wide.square().sum(self.axis, keepdim=True).sqrt()
        return (wide / lengths).to(x.dtype)


@dataclass(frozen=True)
class Sorted(Structure):
    """Numbers in order along one dimension.

    Attributes:
        axis: the dimension.
        descending: whether they fall.
    """

    axis: int
    descending: bool = False

    @property
    def text(self) -> str:
        """What it says."""
        how = "falling" if self.descending else "rising"
        return f"sorted along dimension {self.axis}, {how}"

    def holds(self, x: Tensor) -> bool:
        """Whether no number is out of order."""
        n = x.shape[self.axis]
        if n < 2:
            return True
        one, other = x.narrow(self.axis, 0, n - 1), x.narrow(self.axis, 1, n - 1)
        return bool((one >= other if self.descending else one <= other).all())

    def made(self, x: Tensor) -> Tensor:
        """Return the numbers in order."""
        return x.sort(dim=self.axis, descending=self.descending).values


@dataclass(frozen=True)
class Permutation(Structure):
    """Each of 0 to n-1 once along the last dimension."""

    discrete: ClassVar[bool] = True

    @property
    def text(self) -> str:
        """What it says."""
        return "a permutation of 0 to n-1 along its last dimension"

    def holds(self, x: Tensor) -> bool:
        """Whether every number is there once."""
        every = torch.arange(x.shape[-1], device=x.device, dtype=x.dtype)
        return torch.equal(x.sort(dim=-1).values, every.expand(x.shape))

    def made(self, x: Tensor) -> Tensor:
        """Return the order of the values."""
        return x.argsort(dim=-1, stable=True).to(x.dtype)


@dataclass(frozen=True)
class Distinct(Structure):
    """Integers of which none stands twice along the last dimension.

    Attributes:
        least: the least that is seen.
    """

    least: int
    discrete: ClassVar[bool] = True

    @property
    def text(self) -> str:
        """What it says."""
        return "without a number that stands twice along its last dimension"

    def holds(self, x: Tensor) -> bool:
        """Whether none does."""
        ordered = x.sort(dim=-1).values
        return not bool((ordered[..., 1:] == ordered[..., :-1]).any())

    def made(self, x: Tensor) -> Tensor:
        """Return the order of the values, from the least on."""
        return (x.argsort(dim=-1, stable=True) + self.least).to(x.dtype)


@dataclass(frozen=True)
class OneHot(Structure):
    """A single 1 among zeros along one dimension.

    Attributes:
        axis: the dimension.
    """

    axis: int
    zeros: ClassVar[bool] = True
    discrete: ClassVar[bool] = True

    @property
    def text(self) -> str:
        """What it says."""
        return f"one-hot along dimension {self.axis}"

    def holds(self, x: Tensor) -> bool:
        """Whether there is one 1 in each place, and nothing else."""
        plain = bool(((x == 0) | (x == 1)).all())
        return plain and bool(((x != 0).sum(self.axis) == 1).all())

    def made(self, x: Tensor) -> Tensor:
        """Return 1 at the greatest value, 0 elsewhere."""
        at = x.to(torch.float64).argmax(self.axis, keepdim=True)
        return torch.zeros_like(x).scatter(self.axis, at, torch.ones_like(x))


@dataclass(frozen=True)
class Few(Structure):
    """Numbers out of a short list.

    Attributes:
        values: the list, rising.
    """

    values: tuple[float, ...]
    discrete: ClassVar[bool] = True

    @property
    def zeros(self) -> bool:  # type: ignore[override]
        """Whether 0 is among them: a mask."""
        return 0.0 in self.values

    @property
    def text(self) -> str:
        """What it says."""
        return f"made of {', '.join(f'{v:g}' for v in self.values)} alone"

    def holds(self, x: Tensor) -> bool:
        """Whether nothing else stands there."""
        return bool(torch.isin(x, self._list(x)).all())

    def made(self, x: Tensor) -> Tensor:
        """Return the next of the list, to the number or its magnitude."""
        every = self._list(x)
        far = (x.abs().unsqueeze(-1) - every).abs()
        nearest = every[far.argmin(-1)]
        return torch.where(torch.isin(x, every), x, nearest)

    def _list(self, x: Tensor) -> Tensor:
        return torch.tensor(self.values, dtype=x.dtype, device=x.device)


@dataclass(frozen=True)
class Whole(Structure):
    """Floating numbers that are integers, such as classes.

    Attributes:
        least: the least that is seen.
        greatest: the greatest.
    """

    least: int
    greatest: int
    discrete: ClassVar[bool] = True

    @property
    def text(self) -> str:
        """What it says."""
        return f"made of integers from {self.least} to {self.greatest}"

    def holds(self, x: Tensor) -> bool:
        """Whether all are, within their range."""
        inside = (x >= self.least) & (x <= self.greatest)
        return bool((inside & (x == x.round())).all())

    def made(self, x: Tensor) -> Tensor:
        """Return the next integer to the magnitude, within the range."""
        inside = (x >= self.least) & (x <= self.greatest) & (x == x.round())
        return torch.where(inside, x, x.abs().round().clamp(self.least, self.greatest))


@dataclass(frozen=True)
class Interval(Structure):
    """Numbers on that side of a bound on which the reference is defined.

    Attributes:
        least: the least, None for no bound.
        greatest: the greatest, likewise.
        nan: whether the reference takes NaN.
    """

    least: float | None
    greatest: float | None
    nan: bool

    @property
    def text(self) -> str:
        """What it says."""
        low = "" if self.least is None else f" from {self.least:.3g}"
        high = "" if self.greatest is None else f" to {self.greatest:.3g}"
        return f"kept{low}{high}, since the reference does not take others"

    def holds(self, x: Tensor) -> bool:
        """Whether none is beyond."""
        if not self.nan and bool(x.isnan().any()):
            return False
        below = self.least is not None and bool((x < self.least).any())
        return not (
            below or (self.greatest is not None and bool((x > self.greatest).any()))
        )

    def made(self, x: Tensor) -> Tensor:
        """Return the numbers, those beyond at the bound."""
        return x.clamp(self.least, self.greatest)
