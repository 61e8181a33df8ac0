"""Products of codes with scales: 8 bits by rows or blocks, MX, 4 bits by groups.

Notation: groups g of K, codes a and b, scales s and t; y = sum_g s_g t_g sum_k a b.
Sums of products are kept as declared, of integers exactly; each scaled sum meets at
most five roundings, two scales in any grouping and conversions of an integer sum and of
a scale included, and the sum over the groups gamma(G):

    E = (R(K) + gamma(G + 5, u)) sum |a| |b| |s t|.
"""

import math
from dataclasses import replace
from itertools import combinations

import torch
from torch import Tensor

from kfuzz.numerics.acceptance import Acceptance, Problem, around, classes_of
from kfuzz.numerics.accumulation import U32, finite_or_zero, gamma
from kfuzz.numerics.formats import FORMATS, Format
from kfuzz.numerics.models.dots import dots

# The code of E8M0 that is no power of two, and what is taken from the others.
_NO_SCALE = 255
_BIAS = 127
# What products of scales may vanish in, or leave: the arithmetic of every epilogue.
_SINGLE = FORMATS["float32"]


def by_groups(problem: Problem, codes: Format | None) -> Acceptance:
    """Return the acceptance of scaled sums of products of "a" [M, K] and "b" [K, N].

    Args:
        problem: with "a", "b", "scale_a" [M] or [M, G], "scale_b" [N] or [G, J], and
            maybe "bias" [N]; "dtype" is the format of the result.
        codes: format of the codes; None for integers, whose sums are exact.
    """
    t = problem.tensors
    # No GPU multiplies matrices of int64.
    a, b = (t[name].to(torch.float64) for name in ("a", "b"))
    return _scaled(problem, a, b, t["scale_a"], t["scale_b"], codes)


def microscaled(problem: Problem, codes: Format) -> Acceptance:
    """Return the same of MX operands, the scales being codes of powers of two."""
    t = problem.tensors
    scales = (powers(t["scale_a"]), powers(t["scale_b"]))
    return _scaled(problem, t["a"], t["b"], *scales, codes)


def powers(codes: Tensor) -> Tensor:
    """Return 2**(c - 127) of codes E8M0, NaN of 255."""
    made = torch.ldexp(torch.ones_like(codes), (codes - _BIAS).to(torch.int64))
    return torch.where(codes == _NO_SCALE, math.nan, made)


def grouped(a: Tensor, b: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    """Return [..., M, K] and [..., K, N] as [..., G, M, K/G] and [..., G, K/G, N]."""
    width = a.shape[-1] // max(groups, 1)
    left = a.unflatten(-1, (groups, width)).movedim(-2, -3)  # type: ignore[no-untyped-call]
    return left, b.unflatten(-2, (groups, width))  # type: ignore[no-untyped-call]


def spread(scale: Tensor, columns: int) -> Tensor:
    """Return the scales [..., G, J] of blocks of columns for each, [..., G, N]."""
    return scale.repeat_interleave(columns // max(scale.shape[-1], 1), -1)


def _scaled(
    problem: Problem,
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    codes: Format | None,
) -> Acceptance:
    stored = problem.format_of("dtype")
    if scale_a.dim() == 2:
        scale_a, scale_b = scale_a.unsqueeze(-1), scale_b.unsqueeze(-2)
    groups, n = scale_a.shape[-1], b.shape[-1]
    left, right = grouped(a, b, groups)
    posed = replace(problem, format=codes or _SINGLE, output=stored)
    row = scale_a.mT.unsqueeze(-1)
    column = spread(scale_b, n).unsqueeze(-2)
    held = finite_or_zero(row) * finite_or_zero(column)
    # As of any one group: a sum may pass through all of them.
    made = dots(posed, left, right)
    terms = made.value * held
    value, size = terms.sum(-3), (made.magnitude * held.abs()).sum(-3)
    relative = gamma(groups + 5, U32)
    if codes is not None:
        relative += problem.accumulation.products(a.shape[-1], codes)
    least = _SINGLE.min_normal if problem.flushes else _SINGLE.min_subnormal
    factors = [finite_or_zero(f) for f in (made.magnitude, row.abs(), column.abs())]
    ab, ac, bc = (x * y > _SINGLE.max_finite / 2 for x, y in combinations(factors, 2))
    # What partial products lose to underflow.
    lost = ((factors[0] + factors[1] + factors[2] + 1) * least).sum(-3)
    # Operands may be scaled before they are multiplied.
    of_a = finite_or_zero(left.abs() * row.abs()).sum(-1, keepdim=True)
    of_b = finite_or_zero(right.abs() * column.abs()).sum(-2, keepdim=True)
    error = relative * size + lost + least * (of_a + of_b).sum(-3)
    reference = made.reference * row * column
    bias = problem.tensors.get("bias")
    total = reference.sum(-3)
    over = (
        (ab | ac | bc).any(-3)
        | (torch.maximum(of_a, of_b) > _SINGLE.max_finite / 2).any(-3)
        | made.classes.ambiguous.any(-3)
        | (size > _SINGLE.max_finite / 2)
    )
    if bias is not None:
        bias = bias.unsqueeze(-2)
        total, value = total + bias, value + finite_or_zero(bias)
        error = error + 2 * U32 * (size + finite_or_zero(bias).abs())
        over = over | (value.abs() > _SINGLE.max_finite / 2)
    odd = ~torch.isfinite(total)
    # Which grouping of factors meets an infinity first is free.
    nan = (made.reference.isnan() & (made.admitted == made.classes.admitted)).any(-3)
    nan = nan | (row.isnan() | column.isnan()).any(-3)
    unsure = odd & ~(nan if bias is None else nan | bias.isnan())
    if groups == 0:
        total, value = torch.zeros_like(value), torch.zeros_like(value)
    return around(
        posed,
        torch.where(odd, total, value),
        error,
        classes=classes_of(total),
        ambiguous=over & ~odd,
        undecided=unsure,
    )


def nibbles(packed: Tensor, count: int, dim: int) -> Tensor:
    """Return the numbers of 4 bits in integers, the lowest first, along a dimension.

    Args:
        packed: float64, any sign; 4 count bits each.
        count: of them in each integer.
        dim: where they lie, negative.
    """
    whole = packed.to(torch.int64) & ((1 << 4 * count) - 1)
    parts = [(whole >> 4 * i) & 15 for i in range(count)]
    return torch.stack(parts, dim).flatten(dim - 1, dim).to(torch.float64)


def of_nibbles(problem: Problem, codes: Tensor, zero: Tensor) -> Acceptance:
    """Return the acceptance of x w, w = scale (codes - zero), x as data.

    A weight (n - z) s, or n s - z s, is rounded three times, to the data's format where
    the output's holds intermediates, off by W = 3 u_w (|n| + |z|) |s|; so

        E = R(K) |x| |w| + (1 + R(K)) |x| W.

    Args:
        problem: with "x" [M, K] and "scale" [G, N].
        codes: float64 [members, K, N], 0 to 15.
        zero: float64 [members, G, N].
    """
    x, scale = problem.tensors["x"], problem.tensors["scale"]
    width = codes.shape[-2] // max(scale.shape[-2], 1)
    s, z = (t.repeat_interleave(width, -2) for t in (scale, zero))
    w = (codes - z) * s
    out = problem.output
    unit = max(out.unit, U32)
    if problem.declaration.intermediates != "output":
        unit = U32
    size = (codes + finite_or_zero(z).abs()) * finite_or_zero(s).abs()
    made = dots(problem, x, w)
    c = problem.accumulation.products(x.shape[-1], problem.format)
    held = finite_or_zero(x).abs()
    least = out.min_normal if problem.flushes else out.min_subnormal
    more = held @ (3 * unit * size + 3 * least) * (1 + c) + c * (held @ size)
    far = out.max_finite if unit > U32 else _SINGLE.max_finite
    beyond = (size > far / 2).any(-2, keepdim=True)
    # Codes may be multiplied as such, and their sum scaled.
    bare = held @ (codes + finite_or_zero(z).abs())
    beyond = beyond | (bare > _SINGLE.max_finite / 2)
    odd = ~torch.isfinite(made.reference)
    unsure = odd & ~(x.isnan().any(-1, keepdim=True) | w.isnan().any(-2, keepdim=True))
    return around(
        problem,
        made.reference,
        made.error + more,
        classes=made.admitted,
        ambiguous=made.classes.ambiguous | beyond,
        undecided=unsure,
    )
