"""A-priori error bounds of floating-point arithmetic: gamma, sums, products.

All bounds are deterministic worst cases of a declared arithmetic, never
statistics and never fitted to a kernel (README.md here; Higham,
Accuracy and Stability of Numerical Algorithms, 2nd ed., chapters 3 and 4).
"""

from typing import Final

import torch
from torch import Tensor

from kfuzz.numerics.accumulation import Accumulation, gamma, growth
from kfuzz.numerics.elements import zero
from kfuzz.numerics.formats import FORMATS, Format, lowest_bit_exponent, power_of_two

U32: Final = FORMATS["float32"].unit
U64: Final = FORMATS["float64"].unit
# Relative error of exp: 2 ulp from correctly rounded, the larger of CUDA's and
# HIP's documented budgets, is 2.5 ulp = 5 u.
EXP_ERROR: Final = 5
# Rounding of the argument of exp per unit of its magnitude: subtraction 1,
# multiplication by log2(e) and the constant's error 2; `__expf` fits in 4.
EXP_ARGUMENT: Final = 4
# Above the exponent of any term: of zeros, multiples of every power.
_NO_BIT: Final = 1 << 20
# Terms of sums of products that are asked for their lowest bits before all are.
_FEW: Final = 16
# Of normal numbers of float64 whose reciprocals are normal: 2^-1022 to 2^1022.
_SCALE: Final = 1022


def sum_error(
    terms: Tensor,
    dim: int,
    acc: Accumulation,
    *,
    flush: bool,
    data: Format | None = None,
) -> Tensor:
    """Return the bound on |computed - exact| of a sum in any order.

    Args:
        terms: float64, finite, exact terms.
        dim: the summed dimension (negative).
        acc: the declared accumulation.
        flush: whether subnormal terms or partial sums may become 0.
        data: format of the terms where they are a kernel's input, which an
            accumulator may be too narrow to hold; None where it holds them.

    Returns:
        float64 without `dim`: gamma(n-1) sum|t| (Higham eq. 4.6), 0 where the
        exactness test holds (`exactly_summable`).
    """
    n = terms.shape[dim]
    magnitude = terms.abs()
    total = magnitude.sum(dim)
    narrow = data is not None and data.precision > acc.format.precision
    coefficient = acc.summation(n, extra=int(narrow))
    coarse = 0.0 if data is None else acc.operand_error(data, operands=1)
    error = (coefficient + coarse) * total
    floor = 0.0 if data is None else acc.operand_floor(data, flush=False)
    if floor or acc.stored is not None:
        below = _sum_below(magnitude, floor, dim)
        error = error + below + acc.lost(n, flush=flush)
    # Summing the reference itself in float64, and the flushes.
    reference = gamma(max(n - 1, 0), U64) * total
    if flush:
        lost = _sum_below(magnitude, acc.format.min_normal, dim)
        error = error + lost + n * acc.format.min_normal
    exact = exactly_summable(terms, dim, acc, flush=flush, total=total)
    if coarse:
        exact = torch.zeros_like(exact)
    return torch.where(exact, zero(error), error + reference)


def _sum_below(magnitude: Tensor, least: float, dim: int) -> Tensor:
    """Return the sums of what is less than a number; 0 where a minimum shows it."""
    if _is_at_hand(magnitude) and float(magnitude.min()) >= least:
        return zero(magnitude)
    return torch.where(magnitude < least, magnitude, 0.0).sum(dim)


def _is_at_hand(x: Tensor) -> bool:
    """Whether there are elements that the host can look at without a wait."""
    return x.device.type == "cpu" and x.numel() > 0


def exactly_summable(
    terms: Tensor,
    dim: int,
    acc: Accumulation,
    *,
    flush: bool,
    total: Tensor | None = None,
) -> Tensor:
    """Return where every order of summation is free of rounding.

    All terms are multiples of 2**q and sum|t| <= 2**p 2**q, so that each
    partial sum is a multiple of 2**q below 2**p. Where
    subnormals may be flushed, also 2**q >= lambda.

    Args:
        terms: float64, finite.
        dim: the summed dimension (negative).
        acc: the accumulation.
        flush: whether subnormals may be flushed.
        total: the sums of the terms' magnitudes, where they are known.
    """
    total = (terms.abs().sum(dim) if total is None else total).unsqueeze(dim)
    least = acc.least_exponent(flush=flush)
    if least < -_SCALE and total.numel() and terms.shape[dim]:
        lowest = lowest_bit_exponent(terms).amin(dim)
        return fits_exactly(total.squeeze(dim), lowest, acc, flush=flush)
    # The lowest bit for which the sum leaves room: of a power of two one lower.
    mantissa, exponent = torch.frexp(total)
    lowest = exponent.to(torch.int64) - (mantissa == 0.5).to(torch.int64)
    lowest = (lowest - acc.exact_bits).clamp(least, _SCALE)
    up, down = power_of_two(-lowest), power_of_two(lowest)

    def fit(some: Tensor) -> Tensor:
        whole = (some * up).round_().mul_(down)
        return (whole == some).all(dim, keepdim=True)

    # Most sums do not fit for a few of their terms alone.
    fits, at_hand = (total == 0), _is_at_hand(terms)
    if at_hand and terms.shape[dim] >= 4 * _FEW:
        few = fits | fit(terms.narrow(dim, 0, _FEW))
        if not bool(few.any()):
            return few.squeeze(dim)
    return (fits | (fit(terms) & (total <= acc.limit))).squeeze(dim)


def products_exactly(
    magnitude: Tensor,
    a: Tensor,
    b: Tensor,
    addend: Tensor,
    acc: Accumulation,
    *,
    flush: bool,
    bits: int,
) -> Tensor:
    """Return where no order of sums of products rounds.

    Args:
        magnitude: the sums of the terms' magnitudes.
        a: float64 [..., M, K], finite.
        b: float64 [..., K, N], finite.
        addend: one more term of each sum; 0 where there is none.
        acc: the accumulation.
        flush: whether subnormals may be flushed.
        bits: bits that sums of products hold exactly.
    """

    def lowest(x: Tensor, dim: int) -> Tensor:
        return lowest_bit_exponent(x).amin(dim).unsqueeze(dim)

    # The lowest bit of all terms is no higher than that of a few: most products of
    # numbers do not fit for these alone. A device would be waited for.
    if a.shape[-1] >= 4 * _FEW and magnitude.numel() and not magnitude.is_cuda:
        few = lowest(a[..., :_FEW], -1).max() + lowest(b[..., :_FEW, :], -2).max()
        most = int(few) + bits
        if most < 1024 and float(magnitude.min()) > 2.0**most:
            return torch.zeros_like(magnitude, dtype=torch.bool)
    least = torch.minimum(lowest(a, -1) + lowest(b, -2), lowest_bit_exponent(addend))
    least = least.clamp(max=_NO_BIT)
    return fits_exactly(magnitude, least, acc, flush=flush, bits=bits)


def fits_exactly(
    total: Tensor,
    lowest: Tensor,
    acc: Accumulation,
    *,
    flush: bool,
    bits: int | None = None,
) -> Tensor:
    """Return where sums of multiples of 2**lowest with sum|t| = total are exact.

    Args:
        total: float64, sum of magnitudes.
        lowest: int64, exponent of the lowest bit of any term.
        acc: the accumulation.
        flush: whether subnormals may be flushed.
        bits: bits that are held exactly; those of the accumulation by default.
    """
    held = acc.exact_bits if bits is None else bits
    # 2**(p + q) as float64; q is clamped so that the power exists.
    reach = torch.clamp(lowest + held, -1022, 1023)
    limit = ((reach + 1023) << 52).view(torch.float64)
    least = acc.least_exponent(flush=flush)
    in_range = (lowest >= least) & (total <= acc.limit)
    return (total == 0) | (in_range & (total <= limit))


def overflow_in_some_order(terms: Tensor, dim: int, acc: Accumulation) -> Tensor:
    """Return where some order of summation can overflow the accumulator.

    With P and N the sums of the positive and negative magnitudes, every partial
    sum lies in [-N, P].
    """
    n = terms.shape[dim]
    if _is_at_hand(terms):
        # Twice as much as the rounding of these sums can add.
        least, most = (float(end) for end in torch.aminmax(terms))
        ends = torch.tensor([2 * n * most, -2 * n * least], dtype=torch.float64)
        if not bool(can_overflow(ends[0], ends[1], n, acc)):
            return torch.zeros_like(terms.select(dim, 0), dtype=torch.bool)
    positive = terms.clamp(min=0).sum(dim)
    negative = (-terms).clamp(min=0).sum(dim)
    return can_overflow(positive, negative, n, acc)


def can_overflow(
    positive: Tensor, negative: Tensor, n: int, acc: Accumulation
) -> Tensor:
    """Return where partial sums in [-negative, positive] may overflow."""
    margin = 1 + growth(n + 1, acc.format.unit)
    if acc.parts and acc.stored is not None:
        margin *= 1 + growth(acc.parts, acc.stored.unit)
    return torch.maximum(positive, negative) * margin > acc.limit
