"""Rows divided by their root mean square: bounds shared by RMS norms."""

from dataclasses import dataclass

import torch
from torch import Tensor

from kfuzz.numerics.acceptance import NAN, Acceptance, Problem, between, classes_of
from kfuzz.numerics.accumulation import gamma
from kfuzz.numerics.bounds import U64
from kfuzz.numerics.elements import finite_or_zero
from kfuzz.numerics.models.normalisation import (
    SECOND_ORDER,
    InverseRoot,
    RowArithmetic,
    inverse_root,
)


@dataclass(frozen=True)
class Rows:
    """Rows to be normalised, as a kernel may hold them.

    Attributes:
        exact: float64 [..., n], NaN and infinities included.
        low: float64, finite: the least value held.
        high: float64, finite: the greatest value held.
    """

    exact: Tensor
    low: Tensor
    high: Tensor

    @classmethod
    def of(cls, x: Tensor) -> "Rows":
        """Return rows that are held as they are."""
        safe = finite_or_zero(x)
        return cls(x, safe, safe)

    @property
    def size(self) -> Tensor:
        """Greatest magnitude held."""
        return torch.maximum(self.low.abs(), self.high.abs())


def rms_scaled(
    problem: Problem, rows: Rows, weight: Tensor, *, stored: bool = False
) -> Acceptance:
    """Return the acceptance of x r g, r = (mean x^2 + eps)^-1/2.

    mean x^2 is within gamma(n+5) of itself (n-1 additions, the square, a division
    within 2 ulp) and 2 eta; r as in `inverse_root`; 4 u: two products, or the
    division by the root that takes the place of one. The products may be taken in any
    order.

    Args:
        problem: gives `eps` and the declaration.
        rows: what is normalised.
        weight: g, broadcasts to the rows.
        stored: whether x r may be rounded to the output's format before g.
    """
    x = rows.exact
    if x.numel() == 0:
        return between(problem, x, x, x)
    a = RowArithmetic.declared(problem)
    root = _root(problem, rows, a)
    g = finite_or_zero(weight)
    ends = torch.stack(
        [v * r * g for v in (rows.low, rows.high) for r in (root.low, root.high)]
    )
    low, high = ends.amin(0), ends.amax(0)
    size, gain = rows.size, root.high * g.abs()
    most = size * gain
    relative: float | Tensor = 4 * a.unit
    # Products x r, r g and x g that underflow, factors that are flushed.
    lost = 2 * a.eta * (1 + g.abs() + gain + root.high + size * (1 + root.high))
    if stored:
        # A power of two moves the rounded product as it is.
        exact = (g.abs().frexp().mantissa == 0.5) & (problem.declaration.store == "rne")
        relative = relative + problem.output.unit * ~exact
        least = problem.output.min_normal if a.flush else problem.output.min_subnormal
        lost = lost + least * g.abs()
    error = (relative * most + lost) * SECOND_ORDER
    low, high = low - error, high + error

    has_nan = x.isnan().any(-1, keepdim=True)
    has_inf = torch.isinf(x).any(-1, keepdim=True)
    r = torch.where(has_inf, torch.zeros_like(root.exact), root.exact)
    y = torch.where(has_nan, torch.full_like(x, float("nan")), x * r * weight)
    nothing = has_inf.expand_as(y) | ((rows.low == 0) & (rows.high == 0))
    low, high = (torch.where(nothing, torch.zeros_like(y), t) for t in (low, high))
    classes = torch.where(y.isnan(), NAN, classes_of(y)).to(torch.uint8)

    top = a.acc.limit
    squares = (size * size).sum(-1, keepdim=True)
    ambiguous = (2 * squares > top) | (2 * size * g.abs() > top) | (2 * gain > top)
    if stored or a.coarse:
        limit = problem.output.max_finite
        ambiguous = ambiguous | (2 * size * root.high > limit)
    if a.coarse:
        held = a.held.max_finite
        biggest = size.amax(-1, keepdim=True)
        ambiguous = ambiguous | (2 * biggest * biggest > held)
        ambiguous = ambiguous | (root.high > held) | (2 * size * g.abs() > held)
        ambiguous = ambiguous | (2 * gain > held)
    # An infinite weight meets a product that may have vanished.
    vanishing = (size * root.low < 2 * a.eta) | (size < 2 * a.eta)
    ambiguous = ambiguous | (torch.isinf(weight) & vanishing)
    return between(
        problem, y, low, high,
        classes=classes, ambiguous=ambiguous.expand_as(y) & ~y.isnan(),
    )  # fmt: skip


def _root(problem: Problem, rows: Rows, a: RowArithmetic) -> InverseRoot:
    n = rows.exact.shape[-1]
    crosses = (rows.low < 0) & (rows.high > 0)
    near = torch.minimum(rows.low.abs(), rows.high.abs())
    near = torch.where(crosses, torch.zeros_like(near), near)
    margin = a.acc.coefficient(n + 5) + gamma(n + 5, U64) + 3 * a.coarse
    least = (near * near).mean(-1, keepdim=True) * (1 - margin) - 2 * a.eta
    most = (rows.size * rows.size).mean(-1, keepdim=True) * (1 + margin) + 2 * a.eta
    exact = (finite_or_zero(rows.exact) ** 2).mean(-1, keepdim=True)
    return inverse_root(exact, least, most, problem.number("eps"), a)
