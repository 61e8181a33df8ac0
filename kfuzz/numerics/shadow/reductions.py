"""Error rules of sums and products of many elements, in any order."""

import math
from typing import Any

import torch
from torch import Tensor

from kfuzz.numerics.bounds import can_overflow, exactly_summable
from kfuzz.numerics.elements import finite_or_zero
from kfuzz.numerics.formats import FORMATS
from kfuzz.numerics.shadow.elementwise import finished, known
from kfuzz.numerics.shadow.shade import Call, Operand, Outcome, any_of, rule


def _dims(call: Call, x: Tensor) -> tuple[tuple[int, ...], bool]:
    """Return the summed dimensions, and whether they are kept."""
    dim = call.get("dim")
    if dim is None or (isinstance(dim, list | tuple) and not dim):
        dim = tuple(range(x.dim()))
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    return dims, bool(call.get("keepdim", False))


def _total(x: Tensor, dims: tuple[int, ...], keep: bool) -> Tensor:
    return x.sum(dims, keepdim=keep) if x.dim() else x


def _most(x: Tensor, dims: tuple[int, ...], keep: bool) -> Tensor:
    if not x.dim():
        return x
    counted = [x.shape[d] for d in dims]
    if 0 in counted:
        return _total(x, dims, keep)
    return x.amax(dims, keepdim=keep)


def _added(
    call: Call, a: Operand, dims: tuple[int, ...], keep: bool, *, extra: int = 0
) -> tuple[Tensor, Tensor, int]:
    """Return error and range of a sum, and the number of its terms.

    c (sum |a| + sum e) + sum e, c the coefficient of the declared accumulation.
    """
    steps = call.steps
    n = math.prod(a.value.shape[d] for d in dims) if a.value.dim() else 1
    terms = finite_or_zero(a.value)
    c = steps.acc.summation(n, extra=extra) + n * FORMATS["float64"].unit
    c += steps.acc.operand_error(steps.compute, operands=1)
    size = _total(terms.abs() + a.error, dims, keep)
    carried = _total(a.error, dims, keep)
    # A vacuous coefficient of nothing is nothing.
    rounding = torch.where(size == 0, torch.zeros_like(size), c * size)
    if n > 1:
        rounding = rounding + steps.acc.lost(n, flush=steps.flush)
    if steps.own and not extra and len(dims) == 1 and a.value.dim():
        exact = exactly_summable(terms, dims[0], steps.acc, flush=steps.flush)
        exact = exact.reshape(rounding.shape) & (carried == 0)
        rounding = torch.where(exact, torch.zeros_like(rounding), rounding)
    positive = _total((terms + a.error).clamp(min=0), dims, keep)
    negative = _total((a.error - terms).clamp(min=0), dims, keep)
    beyond = can_overflow(positive, negative, n, steps.acc).to(torch.float64)
    limited = any_of(_most(a.read(steps), dims, keep), beyond)
    return carried + rounding, limited, n


@rule("sum")
def _sum(call: Call) -> Outcome:
    a = call.operand("self")
    dims, keep = _dims(call, a.value)
    error, limited, n = _added(call, a, dims, keep)
    out = call.out
    made = call.steps.kept(out, error)
    certain = torch.isfinite(error)
    return finished(
        out, made, certain, limited, nonnegative=a.shade.nonnegative, terms=n
    )


@rule("mean")
def _mean(call: Call) -> Outcome:
    """A sum of n terms, each divided before or all of them after: gamma(n + 1)."""
    a = call.operand("self")
    dims, keep = _dims(call, a.value)
    error, limited, n = _added(call, a, dims, keep, extra=2)
    # Each quotient may vanish that is formed before the sum.
    lost = n * call.steps.lost(call.steps.compute)
    made = call.steps.rounded(call.out, error / max(n, 1), 2.0, absolute=lost)
    certain = torch.isfinite(error)
    return finished(call.out, made, certain, limited, nonnegative=a.shade.nonnegative)


def _of_prefixes(call: Call, terms: Tensor, dim: int) -> Tensor:
    """Return the coefficient of each prefix along a dimension, the others 1."""
    unit, n = FORMATS["float64"].unit, terms.shape[dim]
    acc = call.steps.acc
    held = [acc.summation(i + 1) + (i + 1) * unit for i in range(n)]
    shape = [1] * terms.dim()
    shape[dim] = n
    return torch.tensor(held, dtype=torch.float64, device=terms.device).reshape(shape)


@rule("cumsum")
def _cumsum(call: Call) -> Outcome:
    """The sum of each prefix, in any order of its own."""
    a, steps = call.operand("self"), call.steps
    if not a.value.dim():
        return call.out, (a.shade,)
    dim = int(call.get("dim"))
    n = a.value.shape[dim]
    terms = finite_or_zero(a.value)
    c = _of_prefixes(call, terms, dim)
    carried = a.error.cumsum(dim)
    size = terms.abs().cumsum(dim) + carried
    rounding = torch.where(size == 0, torch.zeros_like(size), c * size)
    error = carried + rounding + steps.acc.lost(n, flush=steps.flush)
    positive = (terms + a.error).clamp(min=0).cumsum(dim)
    negative = (a.error - terms).clamp(min=0).cumsum(dim)
    beyond = can_overflow(positive, negative, n, steps.acc).to(torch.float64)
    limited = any_of(a.read(steps), beyond).cummax(dim).values
    made = steps.kept(call.out, error)
    return finished(
        call.out, made, torch.isfinite(carried), limited,
        nonnegative=a.shade.nonnegative,
    )  # fmt: skip


def _least(a: Operand) -> Tensor:
    """Return the least magnitude below 1 that each finite factor may have, or 1.

    Where their product vanishes before it meets an infinity, the result is NaN.
    """
    least = (a.value.abs() - a.error).clamp(min=0, max=1)
    return torch.where(torch.isfinite(a.value), least, 1.0)


@rule("cumprod")
def _cumprod(call: Call) -> Outcome:
    """The product of each prefix, in any order of its own; see `prod`."""
    a, steps = call.operand("self"), call.steps
    if not a.value.dim():
        return call.out, (a.shade,)
    dim = int(call.get("dim"))
    terms = finite_or_zero(a.value)
    n = terms.shape[dim]
    if not n:
        return call.out, (a.shade,)
    far = terms.abs() + a.error
    size = far.cumprod(dim)
    carried = size - terms.abs().cumprod(dim)
    above = far.clamp(min=1).cumprod(dim)
    below = (terms.abs() - a.error).clamp(min=0, max=1).cumprod(dim)
    c = _of_prefixes(call, terms, dim)
    lost = n * steps.lost(steps.compute)
    vanishing = torch.where(below < steps.compute.min_normal, lost * above, 0.0)
    # Behind an exact 0 all products are 0.
    gone = ((terms == 0) & (a.error == 0)).to(torch.int8).cummax(dim).values > 0
    vanishing = torch.where(gone, 0.0, vanishing)
    error = carried + torch.where(size == 0, 0.0, c * size) + vanishing
    beyond = (above > steps.limit).to(torch.float64)
    limited = any_of(a.read(steps), beyond).cummax(dim).values
    sure = ((a.error == 0) | (terms.abs() > a.error)) & known(a)
    certain = sure.to(torch.int8).cummin(dim).values > 0
    kept = _least(a).cumprod(dim) >= steps.compute.min_normal
    certain &= ~torch.isinf(call.out) | kept
    made = steps.kept(call.out, error)
    return finished(
        call.out, made, certain, limited, nonnegative=a.shade.nonnegative
    )  # fmt: skip


@rule("prod")
def _prod(call: Call) -> Outcome:
    """prod(|x| + e) - prod|x| and n - 1 roundings; each partial product may vanish.

    In every order a partial product lies between that of the factors below 1 and
    that of the factors above 1.
    """
    a, steps = call.operand("self"), call.steps
    terms = finite_or_zero(a.value)
    dim = call.get("dim")
    keep = bool(call.get("keepdim", False))

    def product(x: Tensor) -> Tensor:
        if dim is None or not x.dim():
            return x.prod()
        return x.prod(dim, keepdim=keep)

    n = a.value.numel() if dim is None else a.value.shape[dim]
    size = product(terms.abs() + a.error)
    carried = size - product(terms.abs())
    above = product((terms.abs() + a.error).clamp(min=1))
    below = product((terms.abs() - a.error).clamp(min=0, max=1))
    c = steps.acc.summation(n) + n * FORMATS["float64"].unit
    lost = n * steps.lost(steps.compute)
    vanishing = torch.where(below < steps.compute.min_normal, lost * above, 0.0)
    vanishing = torch.where((terms == 0).any() & (below == 0), 0.0, vanishing)
    error = carried + torch.where(size == 0, 0.0, c * size) + vanishing
    beyond = (above > steps.limit).to(torch.float64)
    read = a.read(steps)
    spread: Any = read.amax() if dim is None or not read.dim() else None
    if spread is None:
        spread = read.amax(dim, keepdim=keep) if n else torch.zeros_like(above)
    made = steps.kept(call.out, error)
    certain = (((a.error == 0) | (terms.abs() > a.error)) & known(a)).all()
    kept = product(_least(a)) >= steps.compute.min_normal
    certain = certain & (~torch.isinf(call.out) | kept)
    return finished(
        call.out, made, certain, any_of(spread, beyond),
        nonnegative=a.shade.nonnegative,
    )  # fmt: skip
