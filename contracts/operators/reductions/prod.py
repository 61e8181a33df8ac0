"""prod(x, dim): the product along a dimension."""

import math
from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded


def reference(x: Any, *, dim: int) -> Any:
    """torch.prod(x, dim)."""
    import torch

    return torch.prod(x, dim)


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return ref +- gamma(n-1) |ref|, plus n lost products where some underflow.

    A product that underflows loses eta, or lambda where it is flushed, which later
    factors enlarge by prod max(1, |x|) at most. 0 where no order rounds: the odd
    parts of all factors multiply to 2**p at most and no partial product leaves the
    range.
    """
    import torch

    x, dim = problem.tensors["x"], problem.axis()
    n = x.shape[dim]
    arithmetic = nm.RowArithmetic.declared(problem)
    acc, fmt = arithmetic.acc, arithmetic.acc.format
    made = nm.product(torch.where(torch.isfinite(x), x, torch.ones_like(x)), dim)
    zero, infinite = (x == 0).any(dim), torch.isinf(x).any(dim)
    size = made.value.abs()

    # Logarithms are summed to far better than this.
    slack = 2.0**-20
    leaves_top = made.grow > math.log2(fmt.max_finite) - slack
    leaves_bottom = made.shrink < fmt.emin + slack
    least = fmt.min_normal if arithmetic.flush else fmt.min_subnormal
    lost = n * least * torch.exp2(made.grow.clamp(max=1000.0))
    # Factors that the accumulator cannot hold are rounded too.
    narrow = problem.format.precision > fmt.precision
    roundings = n - 1 + (n if narrow else 0)
    error = (acc.coefficient(roundings) + nm.gamma(2 * n, nm.U64)) * size
    error = error + torch.where(leaves_bottom, lost, 0.0)
    exact = (made.odd <= 2.0**acc.exact_bits) & ~leaves_bottom & ~leaves_top
    error = torch.where(exact | zero, torch.zeros_like(error), error)

    # Where partial products can both overflow and vanish anything may come out.
    unclear = leaves_top & leaves_bottom & ~zero & ~infinite
    # Large factors overflow in every order where no partial product vanishes and
    # the result itself lies beyond the range.
    surely = (size > 2 * fmt.max_finite) & ~leaves_bottom & ~zero
    ambiguous = torch.where(infinite, leaves_bottom, leaves_top & ~surely)
    odd_signs = (torch.signbit(x).sum(dim) % 2) == 1
    infinity = torch.where(odd_signs, -math.inf, math.inf).to(torch.float64)
    spoiled = x.isnan().any(dim) | (infinite & zero)
    value = torch.where(infinite, infinity, made.value)
    value = torch.where(spoiled, torch.full_like(value, math.nan), value)
    classes = torch.where(spoiled, nm.NAN, nm.classes_of(value)).to(torch.uint8)
    return nm.around(
        problem, value, error,
        classes=classes,
        ambiguous=ambiguous & ~spoiled,
        undecidable=unclear & ~spoiled,
    )  # fmt: skip


prod = Operator(
    "prod",
    inputs={"x": ks.tensors("*"), "dim": ks.dim(of="x")},
    oracle=reference,
    error_model=accept,
    **bounded("prod", Structure.INTERVAL),
)
