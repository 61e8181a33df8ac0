"""l2_normalize(x, dim, eps): x / max(|x|_2, eps) along a dimension."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded


def reference(x: Any, *, dim: int, eps: float) -> Any:
    """Rows divided by the greater of its Euclidean norm along dim and eps."""
    return x / (x * x).sum(dim, keepdim=True).sqrt().clamp(min=eps)


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return x / D (1 -/+ 10u) for every denominator D that may be computed.

    The sum of squares lies within gamma(n+1) of itself and 2n eta; D is the greater
    of its root and of eps (1 -/+ 2u). 10 u: a square root within 1 ulp (3 u), a
    division within 2 ulp (5 u) and one product; or rsqrt within 2 ulp and a product.
    """
    import torch

    x, dim, eps = problem.tensors["x"], problem.axis(), problem.number("eps")
    n = x.shape[dim]
    if x.numel() == 0:
        return nm.between(problem, x, x, x)
    arithmetic = nm.RowArithmetic.declared(problem)
    acc, unit, eta = arithmetic.acc, arithmetic.unit, arithmetic.eta
    safe = nm.finite_or_zero(x)
    squares = (safe * safe).sum(dim, keepdim=True)
    margin = acc.coefficient(n + 1) + nm.gamma(n + 4, nm.U64) + 2 * arithmetic.coarse
    least = (squares * (1 - margin) - 2 * n * eta).clamp(min=0).sqrt()
    most = (squares * (1 + margin) + 2 * n * eta).sqrt()
    least_eps = eps * (1 - 2 * unit) - (eta if arithmetic.coarse else 0.0)
    narrow = least.clamp(min=max(least_eps, 0.0))
    wide = most.clamp(min=eps * (1 + 2 * unit))
    y = safe / squares.sqrt().clamp(min=eps)
    small, large = safe.abs() / wide, safe.abs() / narrow
    low = torch.where(safe < 0, -large, small)
    high = torch.where(safe < 0, -small, large)
    # Elements that are flushed, quotients and reciprocals that underflow.
    lost = eta * (2 + 1 / narrow + safe.abs())
    widest = 10 * unit * large + lost
    zero = safe == 0
    low = torch.where(zero, torch.zeros_like(y), low - widest)
    high = torch.where(zero, torch.zeros_like(y), high + widest)

    infinite = torch.isinf(x).any(dim, keepdim=True)
    spoiled = x.isnan().any(dim, keepdim=True) | torch.isinf(x)
    nothing = infinite & ~spoiled  # a finite element over an infinite norm
    low, high, y = (
        torch.where(nothing, torch.zeros_like(t), t) for t in (low, high, y)
    )
    y = torch.where(spoiled, torch.full_like(y, float("nan")), y)
    classes = torch.where(spoiled, nm.NAN, nm.classes_of(y)).to(torch.uint8)
    ambiguous = squares * (1 + margin) > acc.limit
    held = arithmetic.held.max_finite
    if arithmetic.coarse:
        ambiguous = ambiguous | (squares * 2 > held)
    # The reciprocal of a small denominator may overflow before it is used.
    ambiguous = ambiguous | (2 / narrow > held)
    return nm.between(
        problem, y, low, high,
        classes=classes,
        ambiguous=ambiguous.expand_as(y) & ~spoiled,
    )  # fmt: skip


l2_normalize = Operator(
    "l2_normalize",
    inputs={
        "x": ks.tensors("*"),
        "dim": ks.dim(of="x"),
        "eps": ks.scalar(1e-12, domain=(1e-12, 1e-6, 1e-3, 0.5, 4.0, 32.0)),
    },
    oracle=reference,
    error_model=accept,
    **bounded("l2_normalize", Structure.INTERVAL),
)
