"""A-priori error bounds of floating-point arithmetic: gamma, sums, products.

All bounds are deterministic worst cases of a declared arithmetic, never
statistics and never fitted to a kernel (README.md here; Higham,
Accuracy and Stability of Numerical Algorithms, 2nd ed., chapters 3 and 4).
"""

import math
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from kfuzz.core.declaration import Declaration
from kfuzz.numerics.formats import FORMATS, Format, lowest_bit_exponent

U32: Final = FORMATS["float32"].unit
U64: Final = FORMATS["float64"].unit
# Relative error of exp: 2 ulp from correctly rounded, the larger of CUDA's and
# HIP's documented budgets, is 2.5 ulp = 5 u.
EXP_ERROR: Final = 5
# Rounding of the argument of exp per unit of its magnitude: subtraction 1,
# multiplication by log2(e) and the constant's error 2; `__expf` fits in 4.
EXP_ARGUMENT: Final = 4
# Tensor cores truncate: 2.5 (K + 4) u covers Volta to Blackwell and CDNA
# (README.md here, accumulation).
TENSOR_CORE: Final = 2.5


def gamma(n: int, unit: float) -> float:
    """Return n u / (1 - n u), infinite (vacuous) where n u >= 1/2."""
    product = max(n, 0) * unit
    return product / (1 - product) if product < 0.5 else math.inf


def growth(n: int, unit: float) -> float:
    """Return gamma, or n u where gamma is vacuous: for attribution only."""
    bound = gamma(n, unit)
    return bound if math.isfinite(bound) else n * unit


@dataclass(frozen=True)
class Accumulation:
    """How long sums are kept, as declared.

    Attributes:
        format: format of the accumulator.
        tf32: whether float32 operands may lose their low 13 bits first.
        attribution: use `growth` in place of `gamma`, so that a narrower
            format's interval stays finite when a miss is attributed to it.
    """

    format: Format
    tf32: bool = False
    attribution: bool = False

    @classmethod
    def declared(
        cls, declaration: Declaration, *, attribution: bool = False
    ) -> "Accumulation":
        """Return the accumulation that a declaration names."""
        name = declaration.accumulator
        fmt = FORMATS["float32" if name == "tf32" else name]
        return cls(fmt, tf32=name == "tf32", attribution=attribution)

    def coefficient(self, n: int) -> float:
        """Return c such that n terms are summed with an error of c sum|t|."""
        bound = growth if self.attribution else gamma
        return bound(n, self.format.unit)

    @property
    def exact_bits(self) -> int:
        """Integers up to 2**exact_bits are held exactly."""
        return self.format.precision


def sum_error(terms: Tensor, dim: int, acc: Accumulation, *, flush: bool) -> Tensor:
    """Return the bound on |computed - exact| of a sum in any order.

    Args:
        terms: float64, finite, exact terms.
        dim: the summed dimension (negative).
        acc: the declared accumulation.
        flush: whether subnormal terms or partial sums may become 0.

    Returns:
        float64 without `dim`: gamma(n-1) sum|t| (Higham eq. 4.6), 0 where the
        exactness test holds (`exactly_summable`).
    """
    n = terms.shape[dim]
    magnitude = terms.abs()
    total = magnitude.sum(dim)
    error = acc.coefficient(n - 1) * total if n > 1 else torch.zeros_like(total)
    # Summing the reference itself in float64, and the flushes.
    reference = gamma(max(n - 1, 0), U64) * total
    if flush:
        lost = torch.where(magnitude < acc.format.min_normal, magnitude, 0.0)
        error = error + lost.sum(dim) + n * acc.format.min_normal
    exact = exactly_summable(terms, dim, acc, flush=flush)
    return torch.where(exact, torch.zeros_like(error), error + reference)


def exactly_summable(
    terms: Tensor, dim: int, acc: Accumulation, *, flush: bool
) -> Tensor:
    """Return where every order of summation is free of rounding.

    All terms are multiples of 2**q and sum|t| <= 2**p 2**q, so that each
    partial sum is a multiple of 2**q below 2**p. Where
    subnormals may be flushed, also 2**q >= lambda.
    """
    if terms.shape[dim] == 0:
        shape = terms.sum(dim).shape
        return torch.ones(shape, dtype=torch.bool, device=terms.device)
    lowest = lowest_bit_exponent(terms).amin(dim)
    return fits_exactly(terms.abs().sum(dim), lowest, acc, flush=flush)


def fits_exactly(
    total: Tensor, lowest: Tensor, acc: Accumulation, *, flush: bool
) -> Tensor:
    """Return where sums of multiples of 2**lowest with sum|t| = total are exact.

    Args:
        total: float64, sum of magnitudes.
        lowest: int64, exponent of the lowest bit of any term.
        acc: the accumulation.
        flush: whether subnormals may be flushed.
    """
    fmt = acc.format
    least = fmt.emin if flush else fmt.emin - fmt.precision + 1
    # 2**(p + q) as float64; q is clamped so that the power exists.
    reach = torch.clamp(lowest + acc.exact_bits, -1022, 1023)
    limit = ((reach + 1023) << 52).view(torch.float64)
    in_range = (lowest >= least) & (total <= fmt.max_finite)
    return (total == 0) | (in_range & (total <= limit))


def overflow_in_some_order(terms: Tensor, dim: int, acc: Accumulation) -> Tensor:
    """Return where some order of summation can overflow the accumulator.

    With P and N the sums of the positive and negative magnitudes, every partial
    sum lies in [-N, P].
    """
    positive = terms.clamp(min=0).sum(dim)
    negative = (-terms).clamp(min=0).sum(dim)
    return can_overflow(positive, negative, terms.shape[dim], acc)


def can_overflow(
    positive: Tensor, negative: Tensor, n: int, acc: Accumulation
) -> Tensor:
    """Return where partial sums in [-negative, positive] may overflow."""
    margin = 1 + growth(n + 1, acc.format.unit)
    return torch.maximum(positive, negative) * margin > acc.format.max_finite
