"""What the values of an argument have in common besides their type.

A triangular matrix, rows that sum to 1, sorted numbers: whoever writes a kernel for
such arguments may rely on it. A structure says whether values have it, and makes values
that have it of any finite ones.
"""

from dataclasses import dataclass
from typing import ClassVar, Final

import torch
from torch import Tensor

# What rounding may leave between an element and its mirror image, times the largest.
_NEARLY: Final = 1e-5


@dataclass(frozen=True)
class Structure:
    """One property of all values that an argument ever has.

    Attributes:
        square: whether it speaks of square matrices, the last two dimensions.
        zeros: whether it says where zeros are: a product with one may be left out, so
            that NaN and infinities elsewhere need not reach the result.
        discrete: whether there are few values: none are drawn but the file's own.
    """

    square: ClassVar[bool] = False
    zeros: ClassVar[bool] = False
    discrete: ClassVar[bool] = False

    @property
    def text(self) -> str:
        """What it says of an argument, after "is"."""
        raise NotImplementedError

    def holds(self, x: Tensor) -> bool:
        """Whether values have it."""
        raise NotImplementedError

    def made(self, x: Tensor) -> Tensor:
        """Return values that have it, of finite ones: same shape and dtype."""
        raise NotImplementedError


@dataclass(frozen=True)
class Band(Structure):
    """Zeros outside diagonals of the last two dimensions.

    Attributes:
        lower: the least column minus row that is not zero; None for no limit.
        upper: the greatest, likewise.
    """

    lower: int | None
    upper: int | None
    zeros: ClassVar[bool] = True
    square: ClassVar[bool] = True

    @property
    def text(self) -> str:
        """What it says."""
        names = {
            (None, 0): "lower triangular",
            (0, None): "upper triangular",
            (None, -1): "strictly lower triangular",
            (1, None): "strictly upper triangular",
            (0, 0): "diagonal",
        }
        first = "the first" if self.lower is None else f"row {self.lower:+}"
        last = "the last" if self.upper is None else f"row {self.upper:+}"
        plain = f"zero but for columns {first} to {last}"
        return names.get((self.lower, self.upper), plain)

    def mask(self, x: Tensor) -> Tensor:
        """Return which elements of a matrix may differ from zero."""
        rows = torch.arange(x.shape[-2], device=x.device)
        columns = torch.arange(x.shape[-1], device=x.device)
        place = columns[None, :] - rows[:, None]
        inside = torch.ones_like(place, dtype=torch.bool)
        if self.lower is not None:
            inside &= place >= self.lower
        if self.upper is not None:
            inside &= place <= self.upper
        return inside

    def holds(self, x: Tensor) -> bool:
        """Whether all else is zero."""
        return not bool(((x != 0) & ~self.mask(x)).any())

    def made(self, x: Tensor) -> Tensor:
        """Return the values with zeros outside."""
        return torch.where(self.mask(x), x, torch.zeros_like(x))


@dataclass(frozen=True)
class Pattern(Structure):
    """One value on some diagonals and zeros elsewhere, such as a causal mask.

    Attributes:
        band: the diagonals.
        value: what they hold.
    """

    band: Band
    value: float
    zeros: ClassVar[bool] = True
    square: ClassVar[bool] = True
    discrete: ClassVar[bool] = True

    @property
    def text(self) -> str:
        """What it says."""
        return f"{self.band.text}, {self.value:g} where it is not 0"

    def holds(self, x: Tensor) -> bool:
        """Whether it is that very pattern."""
        return torch.equal(x, self.made(x))

    def made(self, x: Tensor) -> Tensor:
        """Return the pattern at the size of the values."""
        inside = self.band.mask(x).expand(x.shape)
        return torch.where(inside, torch.full_like(x, self.value), torch.zeros_like(x))


@dataclass(frozen=True)
class Symmetric(Structure):
    """Matrices in the last two dimensions that equal their transpose."""

    square: ClassVar[bool] = True

    @property
    def text(self) -> str:
        """What it says."""
        return "symmetric"

    def holds(self, x: Tensor) -> bool:
        """Whether it equals its transpose, up to the rounding of a product."""
        if not x.is_floating_point() or torch.equal(x, x.mT):
            return torch.equal(x, x.mT)
        far = (x.to(torch.float64) - x.mT.to(torch.float64)).abs()
        return bool((far <= _NEARLY * x.abs().max()).all())

    def made(self, x: Tensor) -> Tensor:
        """Return the lower triangle and its mirror image."""
        return torch.where(Band(None, 0).mask(x), x, x.mT)


@dataclass(frozen=True)
class Definite(Structure):
    """Symmetric matrices that are positive definite."""

    square: ClassVar[bool] = True

    @property
    def text(self) -> str:
        """What it says."""
        return "positive definite"

    def holds(self, x: Tensor) -> bool:
        """Whether a Cholesky decomposition in float64 exists."""
        wide = x.to(torch.float64)
        finite = bool(torch.isfinite(wide).all())
        return finite and not bool(torch.linalg.cholesky_ex(wide).info.any())

    def made(self, x: Tensor) -> Tensor:
        """Return the values with a diagonal that outweighs its rows."""
        top = torch.finfo(x.dtype).max / (8 * x.shape[-1])
        wide = Symmetric().made(x.clamp(-top, top)).to(torch.float64)
        diagonal = wide.diagonal(dim1=-2, dim2=-1)
        beside = wide.abs().sum(-1) - diagonal.abs()
        floor = torch.where(beside > 0, 2 * beside, torch.ones_like(beside))
        heavy = torch.where(diagonal.abs() > 1.5 * beside, diagonal.abs(), floor)
        heavy = torch.where(heavy > 0, heavy, torch.ones_like(heavy))
        apart = wide - torch.diag_embed(diagonal) + torch.diag_embed(heavy)
        return apart.to(x.dtype)


@dataclass(frozen=True)
class Repeated(Structure):
    """The same values at every index of one dimension.

    Attributes:
        axis: the dimension.
    """

    axis: int

    @property
    def text(self) -> str:
        """What it says."""
        return f"the same at every index of dimension {self.axis}"

    def holds(self, x: Tensor) -> bool:
        """Whether every index holds what the first holds."""
        return not x.shape[self.axis] or torch.equal(x, self.made(x))

    def made(self, x: Tensor) -> Tensor:
        """Return what index 0 holds, everywhere."""
        if not x.numel():
            return x
        return x.narrow(self.axis, 0, 1).expand(x.shape).contiguous()


@dataclass(frozen=True)
class Constant(Structure):
    """One value everywhere, in every draw.

    Attributes:
        value: the value.
    """

    value: float
    discrete: ClassVar[bool] = True

    @property
    def zeros(self) -> bool:  # type: ignore[override]
        """Whether it is 0."""
        return self.value == 0

    @property
    def text(self) -> str:
        """What it says."""
        return f"{self.value:g} everywhere"

    def holds(self, x: Tensor) -> bool:
        """Whether it is the value everywhere."""
        return bool((x == self.value).all())

    def made(self, x: Tensor) -> Tensor:
        """Return the value everywhere."""
        return torch.full_like(x, self.value)


@dataclass(frozen=True)
class Unknown(Structure):
    """A property that no values can be made for: the file's own are all there are.

    Attributes:
        why: what was seen, after "is".
    """

    why: str
    zeros: ClassVar[bool] = True
    discrete: ClassVar[bool] = True

    @property
    def text(self) -> str:
        """What it says."""
        return f"{self.why}: only what get_inputs gives is tried"

    def holds(self, x: Tensor) -> bool:
        """Return True: whoever draws values keeps to the file's own."""
        return True

    def made(self, x: Tensor) -> Tensor:
        """Return the values."""
        return x
