"""Codes of rows on a scale of their own: q s ~ x with s = max|x| / peak.

Two kernels may store scales a few units apart, and codes that differ where x/s lies
near the middle between two codes: codes are not unique. So the scale is judged by
itself, and the codes with the scale that the kernel returned.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor

from kfuzz.numerics.acceptance import (
    FINITE,
    NAN,
    POSITIVE_INF,
    Acceptance,
    Arithmetic,
    Interval,
    Problem,
    between,
    product_classes,
)
from kfuzz.numerics.accumulation import U32
from kfuzz.numerics.formats import FORMATS, INTEGERS, Format, round_to

# A quotient within 2 ulp of the correctly rounded one, in half units: the larger of
# CUDA's and HIP's budgets for x / y without -prec-div.
DIVISION: Final = 5
# The scale may be the reciprocal of peak / amax, which multiplies the data.
SCALE: Final = 2 * DIVISION
# From x / s to what is rounded to a code: the scale's own division, that of a
# reciprocal (1 / s, or peak / amax apart from s), and the product with it.
CODE: Final = 2 * DIVISION + 1

# Formats of codes, by name.
CODES: Final = {**FORMATS, **INTEGERS}


@dataclass(frozen=True)
class Rows:
    """The rows of x [members, *, N] with what a kernel may make of their scale.

    Attributes:
        x: the data.
        amax: greatest magnitude of each row, [members, *].
        arithmetic: what it is computed in.
        scale: what the scale may be where amax is finite and not 0.
        codes: format of the codes.
        peak: the greatest code.
        ends: modes in which the least and the greatest quotient become codes; a
            stochastic or truncating store may take either neighbour.
    """

    x: Tensor
    amax: Tensor
    arithmetic: Arithmetic
    scale: Interval
    codes: Format
    peak: float
    ends: tuple[str, str]

    @classmethod
    def of(cls, problem: Problem, codes: Format, peak: float) -> "Rows":
        """Return the rows of a problem; `eps` is the least amax."""
        x, eps = problem.tensors["x"], problem.number("eps")
        arithmetic = Arithmetic.declared(problem)
        amax = x.abs().amax(-1)
        seen = arithmetic.read(amax)
        if eps:
            least = arithmetic.constant(eps, amax)
            seen = Interval(
                torch.maximum(seen.low, least.low), torch.maximum(seen.high, least.high)
            )
            amax = amax.clamp(min=eps)
        scale = arithmetic.rounded(seen.scaled(1 / peak), SCALE)
        ends = ("rne", "rne") if problem.declaration.store == "rne" else ("rd", "ru")
        return cls(x, amax, arithmetic, scale, codes, peak, ends)

    @property
    def usual(self) -> Tensor:
        """Rows with a finite scale that is not 0, [members, *]."""
        return torch.isfinite(self.amax) & (self.amax > 0)

    def code(self, value: Tensor, mode: str = "rne") -> Tensor:
        """Return the code of each value, by default the nearest, saturated."""
        return round_to(value.clamp(-self.peak, self.peak), self.codes, mode)

    def codes_of(self, scale: Interval, *, exact: Tensor | None = None) -> Interval:
        """Return what the codes may be, [members, *, N].

        Args:
            scale: positive scales, [members, *].
            exact: elements whose quotients do not round, [members, *, N].
        """
        seen = self.arithmetic.read(self.x)
        if exact is not None:
            exact = exact & (self.x.abs() >= self.arithmetic.format.min_normal)
            seen = Interval.exact(self.x).where(exact, seen)
        low, high = scale.low.unsqueeze(-1), scale.high.unsqueeze(-1)
        value = Interval(
            torch.where(seen.low < 0, seen.low / low, seen.low / high),
            torch.where(seen.high < 0, seen.high / high, seen.high / low),
        )
        # A scale kept in float64 is stored in float32 all the same.
        wide = value.widened(CODE * max(self.arithmetic.unit, U32))
        if exact is not None:
            wide = value.where(exact, wide)
        least, most = self.ends
        return Interval(self.code(wide.low, least), self.code(wide.high, most))


def quantized(problem: Problem, codes: Format, peak: float) -> dict[str, Acceptance]:
    """Return the acceptances of codes "q" and scales "scale".

    The scale is max|x| / peak, or 1 / (peak / max|x|), each division within 2 ulp: the
    maximum rounds nothing. For a row of zeros any scale will do. The codes are those
    that some allowed scale gives; `consistent` judges them with the kernel's own.

    NaN in a row makes its scale NaN, as a maximum that propagates it does, and leaves
    its codes undecided: an integer has none. A row with an infinity has the scale Inf
    and codes 0, those of the infinities undecided: they are Inf / Inf. Range-limited
    where the reciprocal of the scale overflows, undecided where the scale may vanish.
    """
    rows = Rows.of(problem, codes, peak)
    x, usual, amax = rows.x, rows.usual, rows.amax
    greatest = FORMATS["float32"].max_finite
    zero = torch.zeros_like(amax)
    none, infinite = amax == 0, torch.isinf(amax)
    flushed = usual & (rows.scale.low <= 0)
    scale = rows.scale.where(usual, Interval(zero, torch.where(none, greatest, zero)))
    classes = torch.where(infinite, POSITIVE_INF, FINITE)
    classes = torch.where(amax.isnan(), NAN, classes).to(torch.uint8)
    s = between(
        problem, amax / peak, scale.low, scale.high,
        classes=classes, undecided=flushed, output=FORMATS["float32"],
    )  # fmt: skip

    known = usual & ~flushed
    q = rows.codes_of(rows.scale.where(known, Interval.exact(torch.ones_like(amax))))
    wide = known.unsqueeze(-1)
    q = q.where(wide, Interval.exact(torch.zeros_like(x)))
    exact = torch.where(known, amax / peak, 1.0).unsqueeze(-1)
    reference = torch.where(wide, rows.code(x / exact), 0.0)
    limited = known & (rows.scale.low * rows.arithmetic.format.max_finite < 2)
    lost = (amax.isnan() | flushed).unsqueeze(-1) | torch.isinf(x)
    made = between(
        problem, reference, q.low, q.high,
        undecided=lost.expand_as(x),
        ambiguous=limited.unsqueeze(-1).expand_as(x),
        output=codes,
    )  # fmt: skip
    # No hardware flushes subnormal codes, and no integer is one.
    return {"q": replace(made, flush=False), "scale": s}


def consistent(
    problem: Problem, outputs: Mapping[str, Tensor], codes: Format, peak: float
) -> dict[str, Tensor]:
    """Return where the codes "q" are x / s rounded as declared, s as returned.

    Some value of x / s (1 -/+ 11 u) is rounded to the code. Where s is a power of two,
    max|x| = peak s, and no approximate division is declared, neither reciprocal nor
    quotient round, if the arithmetic holds x: a tie goes to even. A scale that is no
    positive number is for the scale's own acceptance to judge.
    """
    rows = Rows.of(problem, codes, peak)
    stored = outputs["scale"].to(torch.float64)
    known = rows.usual & torch.isfinite(stored) & (stored > 0)
    scale = torch.where(known, stored, 1.0)
    mantissa, _ = torch.frexp(scale)
    exact = (mantissa == 0.5) & (rows.amax == peak * scale)
    held = round_to(rows.x, rows.arithmetic.format) == rows.x
    exact = exact.unsqueeze(-1) & held & (not problem.declaration.approx)
    admitted = rows.codes_of(Interval.exact(scale), exact=exact)
    q = outputs["q"].to(torch.float64)
    inside = (q >= admitted.low) & (q <= admitted.high)
    return {"q": inside | ~known.unsqueeze(-1)}


def dequantized(problem: Problem) -> Acceptance:
    """Return the acceptance of q s, each row of codes q with its scale s.

    Codes of 8 bits times 24 are exact in float64, and rounded once before the store.
    """
    stored = problem.format_of("dtype")
    q = problem.tensors["q"].to(torch.float64)
    scale = problem.tensors["scale"].unsqueeze(-1)
    s = scale.expand_as(q)
    posed = replace(
        problem, tensors={"q": q, "s": s}, format=FORMATS["float32"], output=stored
    )
    arithmetic = Arithmetic.declared(posed)
    seen_q, seen_s = arithmetic.read(q), arithmetic.read(s)
    classes = product_classes(q, seen_q, s, seen_s)
    value = arithmetic.last(seen_q * seen_s)
    return arithmetic.accepted(posed, q * s, value, classes=classes)
