"""What indices select, and sums of as many terms as indices name their place."""

import math

import torch
from torch import Tensor

from kfuzz.numerics.acceptance import Acceptance, Problem, moved
from kfuzz.numerics.accumulation import Accumulation, gamma
from kfuzz.numerics.bounds import U64, can_overflow, fits_exactly
from kfuzz.numerics.elements import finite_or_zero
from kfuzz.numerics.formats import lowest_bit_exponent
from kfuzz.numerics.specials import sum_classes


def out_of_bounds(index: Tensor, bound: int) -> Tensor:
    """Return where an integer index is not in [0, bound), bool."""
    return (index < 0) | (index >= bound)


def resolved(problem: Problem, name: str, bound: int) -> tuple[Tensor, Tensor]:
    """Return valid indices in place of an argument's, and where the result is 0.

    Args:
        problem: the inputs and the declaration.
        name: the index argument.
        bound: valid indices lie in [0, bound).

    Returns:
        int64 indices, clamped, and a bool mask: the elements out of bounds
        where out_of_bounds="zero" is declared, else none.
    """
    index = problem.tensors[name]
    zero = torch.zeros_like(index, dtype=torch.bool)
    if problem.declaration.out_of_bounds == "zero":
        zero = out_of_bounds(index, bound)
    return index.clamp(0, max(bound - 1, 0)), zero


def selected(problem: Problem, values: Tensor, zero: Tensor) -> Acceptance:
    """Return the acceptance of copied elements, 0 where a mask, see `resolved`, holds.

    Args:
        problem: the inputs and the declaration.
        values: what the indices name.
        zero: bool, broadcastable to it.
    """
    return moved(problem, torch.where(zero, torch.zeros_like(values), values))


def accumulation(problem: Problem) -> Accumulation:
    """Return how the sums of a problem are kept, as declared.

    Intermediate results in the output's format are partial sums in the memory that
    holds the result: atomic additions there.
    """
    claims, output = problem.declaration, problem.output
    acc = problem.accumulation
    if claims.intermediates == "output" and output.precision < acc.format.precision:
        return Accumulation(output, attribution=problem.attribution, stored=output)
    return acc


def scattered_sums(
    problem: Problem,
    x: Tensor,
    index: Tensor,
    src: Tensor,
    *,
    dim: int = -1,
    scale: float = 1.0,
) -> Acceptance:
    """Return the acceptance of x[i] plus scale times every src whose index is i.

    With c sources a place sums c + 1 terms in any order, as gamma(c) (|x| +
    sum|scale src|); besides the scale's own rounding and that of the product with
    it, of each source or of their sum, unless it is a power of two. What no index
    names keeps its value.

    Args:
        problem: the inputs and the declaration.
        x: float64, n along `dim`.
        index: int64, k along `dim`, in [0, n).
        src: float64, as the index.
        dim: the dimension along which indices select.
        scale: factor of the sources; not 0.
    """
    acc, data = accumulation(problem), problem.format
    flush = problem.flushes
    exact_scale = math.frexp(abs(scale))[0] == 0.5
    terms = src * scale

    def total(base: Tensor, scattered: Tensor) -> Tensor:
        return base.scatter_add(dim, index, scattered)

    def either(base: Tensor, scattered: Tensor) -> Tensor:
        return total(base.to(torch.float64), scattered.to(torch.float64)) > 0

    finite, added = finite_or_zero(x), finite_or_zero(terms)
    count = total(torch.zeros_like(x), torch.ones_like(src))
    magnitude = total(finite.abs(), added.abs())
    narrow = data.precision > acc.format.precision
    extra = int(narrow) + (0 if exact_scale else 2)
    coarse = acc.operand_error(data, operands=1)
    error = (_coefficients(acc, count, extra) + coarse) * magnitude
    floor = acc.operand_floor(data, flush=False)
    if flush:
        floor = max(floor, acc.format.min_normal)
    if floor or scale != 1 or acc.stored is not None:
        vanish = (added.abs() < floor) | (src.abs() < floor)
        error = error + total(
            torch.where(finite.abs() < floor, finite.abs(), 0.0),
            torch.where(vanish, added.abs(), 0.0),
        )
        # Each result of an addition, and of the product, which may come after it.
        results = (count + 1) * (1 if scale == 1 else 1 + max(1.0, abs(scale)))
        error = error + results * acc.lost(1, flush=flush)
    unscaled = finite_or_zero(src)
    lowest = torch.minimum(lowest_bit_exponent(added), lowest_bit_exponent(unscaled))
    lowest = lowest_bit_exponent(finite).scatter_reduce(dim, index, lowest, "amin")
    exact = fits_exactly(magnitude, lowest, acc, flush=flush)
    if coarse or not exact_scale:
        exact = torch.zeros_like(exact)
    untouched = (count == 0) & (not (coarse or narrow))
    error = torch.where(exact | untouched, torch.zeros_like(error), error)

    def overflow(base: Tensor, scattered: Tensor) -> Tensor:
        positive = total(base.clamp(min=0), scattered.clamp(min=0))
        negative = total((-base).clamp(min=0), (-scattered).clamp(min=0))
        return can_overflow(positive, negative, src.shape[dim] + 1, acc)

    overflows = overflow(finite, added)
    if abs(scale) < 1:
        # The sources may be summed before they are scaled.
        overflows = overflows | overflow(torch.zeros_like(finite), unscaled)
    classes = sum_classes(
        either(x.isnan(), terms.isnan()),
        either(x == float("inf"), terms == float("inf")),
        either(x == float("-inf"), terms == float("-inf")),
        overflows & ~untouched,
    )
    return classes.accepted(problem, total(finite, added), error)


def _coefficients(acc: Accumulation, count: Tensor, extra: int) -> Tensor:
    """Return the relative error of a sum of count + 1 terms, element by element."""
    values, inverse = torch.unique(count, return_inverse=True)
    found = [
        acc.summation(int(c) + 1, extra=extra) + gamma(int(c) + 2, U64)
        for c in values.tolist()
    ]
    table = torch.tensor(found, dtype=torch.float64, device=count.device)
    return table[inverse]
