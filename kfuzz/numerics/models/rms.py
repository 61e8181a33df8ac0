"""Rows divided by their root mean square: bounds shared by RMS norms."""

import torch
from torch import Tensor

from kfuzz.numerics.acceptance import NAN, Acceptance, Problem, between, classes_of
from kfuzz.numerics.accumulation import U64, finite_or_zero, gamma
from kfuzz.numerics.intervals import Interval
from kfuzz.numerics.models.norms import (
    SECOND_ORDER,
    InverseRoot,
    RowArithmetic,
    inverse_root,
)


def rms_scaled(
    problem: Problem, x: Tensor, held: Interval, weight: Tensor, *, stored: bool = False
) -> Acceptance:
    """Return the acceptance of x r g, r = (mean x^2 + eps)^-1/2.

    mean x^2 is within gamma(n+5) of itself (n-1 additions, the square, a division
    within 2 ulp) and 2 eta; r as in `inverse_root`; 4 u: two products, or the
    division by the root that takes the place of one. The products may be taken in any
    order.

    Args:
        problem: gives `eps` and the declaration.
        x: float64 rows [..., n], NaN and infinities included.
        held: what a kernel may hold for them, finite.
        weight: g, broadcasts to the rows.
        stored: whether x r may be rounded to the output's format before g.
    """
    if x.numel() == 0:
        return between(problem, x, x, x)
    a = RowArithmetic.declared(problem)
    root = _root(problem, x, held, a)
    g = finite_or_zero(weight)
    ends = torch.stack(
        [v * r * g for v in (held.low, held.high) for r in (root.low, root.high)]
    )
    low, high = ends.amin(0), ends.amax(0)
    size = torch.maximum(held.low.abs(), held.high.abs())
    gain = root.high * g.abs()
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
    nothing = has_inf.expand_as(y) | ((held.low == 0) & (held.high == 0))
    low, high = (torch.where(nothing, torch.zeros_like(y), t) for t in (low, high))
    classes = torch.where(y.isnan(), NAN, classes_of(y)).to(torch.uint8)

    top = a.acc.limit
    squares = (size * size).sum(-1, keepdim=True)
    ambiguous = (2 * squares > top) | (2 * size * g.abs() > top) | (2 * gain > top)
    if stored or a.coarse:
        limit = problem.output.max_finite
        ambiguous = ambiguous | (2 * size * root.high > limit)
    if a.coarse:
        top = a.held.max_finite
        biggest = size.amax(-1, keepdim=True)
        ambiguous = ambiguous | (2 * biggest * biggest > top)
        ambiguous = ambiguous | (root.high > top) | (2 * size * g.abs() > top)
        ambiguous = ambiguous | (2 * gain > top)
    # An infinite weight meets a product that may have vanished.
    vanishing = (size * root.low < 2 * a.eta) | (size < 2 * a.eta)
    ambiguous = ambiguous | (torch.isinf(weight) & vanishing)
    return between(
        problem, y, low, high,
        classes=classes, ambiguous=ambiguous.expand_as(y) & ~y.isnan(),
    )  # fmt: skip


def _root(problem: Problem, x: Tensor, held: Interval, a: RowArithmetic) -> InverseRoot:
    n = x.shape[-1]
    crosses = (held.low < 0) & (held.high > 0)
    near = torch.minimum(held.low.abs(), held.high.abs())
    far = torch.maximum(held.low.abs(), held.high.abs())
    near = torch.where(crosses, torch.zeros_like(near), near)
    margin = a.acc.coefficient(n + 5) + gamma(n + 5, U64) + 3 * a.coarse
    least = (near * near).mean(-1, keepdim=True) * (1 - margin) - 2 * a.eta
    most = (far * far).mean(-1, keepdim=True) * (1 + margin) + 2 * a.eta
    exact = (finite_or_zero(x) ** 2).mean(-1, keepdim=True)
    return inverse_root(exact, least, most, problem.number("eps"), a)
