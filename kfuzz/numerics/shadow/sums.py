"""Error rules of sums of products: matrix products, convolutions."""

import math
from dataclasses import replace

import torch
from torch import Tensor

from kfuzz.numerics.accumulation import (
    can_overflow,
    exactly_summable,
    finite_or_zero,
    fits_exactly,
    growth,
    products_exactly,
)
from kfuzz.numerics.formats import FORMATS, lowest_bit_exponent
from kfuzz.numerics.models.dots import classes_of_products, meets
from kfuzz.numerics.shadow.functions import finished, known
from kfuzz.numerics.shadow.shade import (
    Call,
    Operand,
    Outcome,
    Shade,
    Steps,
    any_of,
    rule,
    sound,
)


def _coefficient(steps: Steps, terms: int) -> float:
    """Return c of so many products, of arguments or of intermediate results."""
    narrow = steps.acc.products(terms, steps.data)
    wide = steps.acc.products(terms, steps.compute)
    return max(narrow, wide) + growth(terms, FORMATS["float64"].unit)


def _read(x: Operand, steps: Steps) -> Operand:
    """Return an operand as matrix units read it: what is too small is lost."""
    own = x.shade.given or steps.stored is not None
    fmt = steps.data if own else steps.compute
    floor = steps.acc.operand_floor(fmt, flush=steps.flush)
    size = finite_or_zero(x.value).abs()
    lost = torch.where(size < floor, size, torch.zeros_like(size))
    shade = replace(x.shade, error=torch.maximum(x.error, lost))
    return Operand(x.value, shade, x.number)


def _special(a: Operand, b: Operand, steps: Steps) -> tuple[Tensor, Tensor]:
    """Return NaN, infinities or 0 that special terms make, and where that is sure."""
    x, y = a.value, b.value
    inf_x, inf_y = torch.isinf(x), torch.isinf(y)
    # What is no number times a 0 that masks it; a tile of such zeros is left out. An
    # infinity times a number that may be 0 or of the other sign.
    unsure = meets(
        (~torch.isfinite(x), a.left_out(steps), inf_x, _open_sign(a)),
        (b.left_out(steps), ~torch.isfinite(y), _open_sign(b), inf_y),
    )
    made, _ = classes_of_products(x, y, None, None, torch.zeros_like(unsure))
    return made.reference, ~unsure


def _open_sign(x: Operand) -> Tensor:
    return (x.error > 0) & (x.value.abs() <= x.error)


def _product(call: Call, a: Operand, b: Operand, addend: Operand | None) -> Outcome:
    """Return the outcome of a b, or of a b + addend summed in any order.

    |a| e_b + e_a |b| + e_a e_b + c (|a| + e_a)(|b| + e_b), the addend one more term.
    """
    steps = call.steps.multiplying("matmul")
    a, b = _read(a, steps), _read(b, steps)
    x, y = finite_or_zero(a.value), finite_or_zero(b.value)
    inner = x.shape[-1]
    value, magnitude = x @ y, (x.abs() + a.error) @ (y.abs() + b.error)
    carried = x.abs() @ b.error + a.error @ y.abs() + a.error @ b.error
    extra = torch.zeros((), dtype=torch.float64, device=x.device)
    terms = inner + (addend is not None)
    alone = torch.zeros_like(value)
    if addend is not None:
        # Where intermediate results are stored, so may be the product without it.
        alone = value if steps.stored is not None else alone
        carried = steps.kept(alone, carried)
        extra = finite_or_zero(addend.value)
        value, magnitude = value + extra, magnitude + extra.abs() + addend.error
        carried = carried + addend.error
    # An infinite error spares no product that has a term of 0.
    carried, magnitude = sound(carried), sound(magnitude)
    rounding = _coefficient(steps, terms) * magnitude
    rounding = torch.where(magnitude == 0, torch.zeros_like(rounding), rounding)
    if inner:
        rounding = rounding + steps.acc.lost(terms + 1, flush=steps.flush)
    if steps.own or steps.form:
        rounding = torch.where(
            _exact(a, b, extra, magnitude, steps) & (carried == 0), 0.0, rounding
        )
    error = steps.kept(value, carried + rounding)

    positive = (magnitude + value).clamp(min=0) / 2
    negative = (magnitude - value).clamp(min=0) / 2
    beyond = can_overflow(positive, negative, max(terms, 1), steps.acc)
    limited = (beyond | (alone.abs() > steps.limit)).to(torch.float64)
    if inner:
        rows = a.read(steps).amax(-1).unsqueeze(-1)
        columns = b.read(steps).amax(-2).unsqueeze(-2)
        limited = any_of(limited, rows, columns)
    if addend is not None:
        limited = any_of(limited, addend.read(steps))
    sure: Tensor | bool = True
    if not bool(torch.isfinite(a.value).all() & torch.isfinite(b.value).all()):
        special, sure = _special(a, b, steps)
        value = torch.where(special == 0, value, special)
    if addend is not None:
        rest = torch.where(torch.isfinite(addend.value), 0.0, addend.value)
        value = torch.where(torch.isfinite(addend.value), value, value + rest)
    sure = torch.isfinite(carried) & torch.as_tensor(sure)
    signs = a.shade.nonnegative and b.shade.nonnegative
    signs = signs and (addend is None or addend.shade.nonnegative)
    return finished(value, error, sure, limited, nonnegative=signs, terms=terms)


def _exact(
    a: Operand, b: Operand, extra: Tensor, magnitude: Tensor, steps: Steps
) -> Tensor:
    """Return where no order of the sums rounds."""
    bits = steps.acc.exact_products(steps.data)
    if not bits or not a.value.shape[-1]:
        return magnitude == 0
    x, y = finite_or_zero(a.value), finite_or_zero(b.value)
    return products_exactly(
        magnitude, x, y, extra, steps.acc, flush=steps.flush, bits=bits
    )


@rule("mm", "bmm")
def _mm(call: Call) -> Outcome:
    other = "mat2"
    return _product(call, call.operand("self"), call.operand(other), None)


@rule("mv", "dot", "vdot")
def _vectors(call: Call) -> Outcome:
    a = call.operand("self")
    b = call.operand("vec" if call.name.endswith("mv") else "other" if
                     "other" in call.named else "tensor")  # fmt: skip
    out, (shade,) = _product(call, _rows(a), _column(b), None)
    assert shade is not None
    shape = a.value.shape[:-1]
    made = replace(
        shade, error=shade.error.reshape(shape), limited=shade.limited.reshape(shape)
    )
    return out.reshape(shape), (made,)


def _rows(x: Operand) -> Operand:
    return _reshaped(x, (-1, x.value.shape[-1]) if x.value.dim() > 1 else (1, -1))


def _column(x: Operand) -> Operand:
    return _reshaped(x, (-1, 1))


def _reshaped(x: Operand, shape: tuple[int, ...]) -> Operand:
    if 0 in x.value.shape:
        count = x.value.shape[0]
        shape = tuple(count if n == -1 else n for n in shape)
    shade = replace(
        x.shade, error=x.error.reshape(shape), limited=x.shade.limited.reshape(shape)
    )
    return Operand(x.value.reshape(shape), shade, x.number)


@rule("addmm", "baddbmm")
def _addmm(call: Call) -> Outcome:
    """`beta C + alpha A B`, the addend at any place of the sum."""
    alpha, beta = call.get("alpha", 1), call.get("beta", 1)
    names = ("mat1", "mat2") if call.name.endswith("addmm") else ("batch1", "batch2")
    names = names if names[0] in call.named else ("self", "mat2")
    a, b, c = call.operand(names[0]), call.operand(names[1]), call.operand("self")
    if beta == 0:
        c = call.operand_of(0.0)
    made = _product(call, _scaled(call, a, alpha), b, _scaled(call, c, beta))
    if alpha == 1:
        return made
    # Kernels scale the product too, which may leave the range that the result keeps.
    out, (shade,) = made
    (plain,) = _product(call, a, b, None)[1]
    assert shade is not None
    assert plain is not None
    limited = any_of(shade.limited, plain.limited)
    return out, (replace(shade, limited=limited),)


def _scaled(call: Call, x: Operand, scale: float) -> Operand:
    """Return an operand times a number, with the roundings of doing so."""
    if scale == 1:
        return x
    constant = call.operand_of(scale)
    error = abs(scale) * x.error + constant.error * (x.value.abs() + x.error)
    value = scale * x.value
    error = call.steps.rounded(finite_or_zero(value), error, 2.0)
    positive = x.shade.nonnegative and scale >= 0
    return Operand(value, replace(x.shade, error=error, nonnegative=positive))


@rule("convolution")
def _convolution(call: Call) -> Outcome:
    """A matrix product with K = C/groups times the kernel's size; padding is nothing.

    Where an argument is not finite its whole reach is undecided.
    """
    steps, named = call.steps.multiplying("convolution"), call.named
    a, w = _read(call.operand("input"), steps), _read(call.operand("weight"), steps)
    bias = None if named["bias"] is None else call.operand("bias")
    keys = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
    shape = [named[k] for k in keys]

    def conv(x: Tensor, y: Tensor, z: Tensor | None = None) -> Tensor:
        return torch.convolution(x, y, z, *shape)

    x, y = finite_or_zero(a.value), finite_or_zero(w.value)
    extra = None if bias is None else finite_or_zero(bias.value)
    value = conv(x, y, extra)
    size = None if bias is None else bias.value.abs() + bias.error
    magnitude = sound(conv(x.abs() + a.error, y.abs() + w.error, size))
    own = None if bias is None else bias.error
    carried = conv(x.abs() + a.error, w.error) + conv(a.error, y.abs(), own)
    channels = y.shape[0] // max(named["groups"], 1) if named["transposed"] else 1
    inner = max(channels, 1) * math.prod(y.shape[2:])
    inner = inner if named["transposed"] else math.prod(y.shape[1:])
    terms = inner + (bias is not None)
    error = sound(carried) + _coefficient(steps, terms) * magnitude
    error = error + steps.acc.lost(terms + 1, flush=steps.flush)
    error = steps.kept(value, error)
    wild = conv((~torch.isfinite(a.value)).to(torch.float64), torch.ones_like(y))
    if not bool(torch.isfinite(w.value).all()):
        wild = torch.ones_like(value)
    if bias is not None and not bool(torch.isfinite(bias.value).all()):
        wild = torch.ones_like(value)
    error = torch.where(wild > 0, float("inf"), error)
    positive, negative = (magnitude + value) / 2, (magnitude - value) / 2
    beyond = can_overflow(positive, negative, max(terms, 1), steps.acc)
    reach = conv(a.read(steps), torch.ones_like(y)) + (w.read(steps) > 0).any()
    limited = any_of(beyond.to(torch.float64), (reach > 0).to(torch.float64))
    return finished(value, error, True, limited, terms=terms)


# Error rules of sums and products of many elements, in any order.


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
    if not extra:
        rounding = torch.where(_unrounded(call, a, terms, dims, size), 0.0, rounding)
    positive = _total((terms + a.error).clamp(min=0), dims, keep)
    negative = _total((a.error - terms).clamp(min=0), dims, keep)
    beyond = can_overflow(positive, negative, n, steps.acc).to(torch.float64)
    limited = any_of(_most(a.read(steps), dims, keep), beyond)
    return carried + rounding, limited, n


def _unrounded(
    call: Call, a: Operand, terms: Tensor, dims: tuple[int, ...], size: Tensor
) -> Tensor:
    """Return where no order of a sum rounds, if its form is the declared one.

    Args:
        call: of the sum.
        a: what is summed.
        terms: the same, finite, and scaled.
        dims: the summed dimensions.
        size: of the sum's shape.
    """
    steps = call.steps
    if not (steps.own or steps.form) or len(dims) != 1 or not terms.dim():
        return torch.zeros_like(size, dtype=torch.bool)
    exact = exactly_summable(terms, dims[0], steps.acc, flush=steps.flush)
    known_all = (a.error == 0).all(dims[0])
    return (exact & known_all).reshape(size.shape)


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
    if n and n & (n - 1) == 0:  # reciprocals of powers of two are exact in every unit
        exact = _unrounded(call, a, finite_or_zero(a.value) / n, dims, made)
        made = torch.where(exact, call.steps.kept(call.out, 0 * made), made)
    # The sum may be stored before it is divided.
    held = n * finite_or_zero(call.out).abs() + error
    beyond = (held > call.steps.limit).to(torch.float64)
    certain = torch.isfinite(error)
    return finished(
        call.out, made, certain, any_of(limited, beyond),
        nonnegative=a.shade.nonnegative,
    )  # fmt: skip


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
    c = c + steps.acc.operand_error(steps.compute, operands=1)
    carried = a.error.cumsum(dim)
    size = terms.abs().cumsum(dim) + carried
    rounding = torch.where(size == 0, torch.zeros_like(size), c * size)
    if n > 1:
        rounding = rounding + steps.acc.lost(n, flush=steps.flush)
    if steps.own or steps.form:
        lowest = lowest_bit_exponent(terms).cummin(dim).values
        exact = fits_exactly(size, lowest, steps.acc, flush=steps.flush)
        rounding = torch.where(exact & (carried == 0), 0.0, rounding)
    error = carried + rounding
    positive = (terms + a.error).clamp(min=0).cumsum(dim)
    negative = (a.error - terms).clamp(min=0).cumsum(dim)
    beyond = can_overflow(positive, negative, n, steps.acc).to(torch.float64)
    limited = any_of(a.read(steps), beyond).cummax(dim).values
    made = steps.kept(call.out, error)
    return finished(
        call.out, made, torch.isfinite(carried), limited,
        nonnegative=a.shade.nonnegative,
    )  # fmt: skip


def _multiplied(call: Call, a: Operand, dim: int) -> tuple[Tensor, ...]:
    """Return error and range of the product of each prefix, in any order.

    And where its sign is certain, and where no part of it vanishes.

    prod(|x| + e) - prod|x| and n - 1 roundings; each partial product may vanish. In
    every order it lies between that of the factors below 1 and that of those above 1.
    """
    steps, terms = call.steps, finite_or_zero(a.value)
    far = terms.abs() + a.error
    size = far.cumprod(dim)
    carried = size - terms.abs().cumprod(dim)
    above = far.clamp(min=1).cumprod(dim)
    below = (terms.abs() - a.error).clamp(min=0, max=1).cumprod(dim)
    lost = terms.shape[dim] * steps.lost(steps.compute)
    vanishing = torch.where(below < steps.compute.min_normal, lost * above, 0.0)
    # Behind an exact 0 all products are 0.
    gone = ((terms == 0) & (a.error == 0)).to(torch.int8).cummax(dim).values > 0
    vanishing = torch.where(gone, 0.0, vanishing)
    rounding = torch.where(size == 0, 0.0, _of_prefixes(call, terms, dim) * size)
    beyond = (above > steps.limit).to(torch.float64)
    limited = any_of(a.read(steps), beyond).cummax(dim).values
    # Where the product may vanish before it meets an infinity, the result is NaN.
    least = (a.value.abs() - a.error).clamp(min=0, max=1)
    least = torch.where(torch.isfinite(a.value), least, 1.0).cumprod(dim)
    sure = ((a.error == 0) | (terms.abs() > a.error)) & known(a)
    certain = sure.to(torch.int8).cummin(dim).values > 0
    kept = least >= steps.compute.min_normal
    return carried + rounding + vanishing, limited, certain, kept


@rule("cumprod", "prod")
def _prod(call: Call) -> Outcome:
    """The product of each prefix along a dimension, or the last of them."""
    a, out, dim = call.operand("self"), call.out, call.get("dim")
    if dim is None:
        a, dim = _reshaped(a, (a.value.numel(),)), 0
    if not a.value.dim():
        return out, (a.shade,)
    if not a.value.shape[dim]:
        none = torch.zeros_like(out)
        return out, (Shade(none, none, nonnegative=True),)
    parts = _multiplied(call, a, dim)
    if call.name.endswith(".prod"):
        parts = tuple(x.select(dim, -1).reshape(out.shape) for x in parts)
    error, limited, certain, kept = parts
    certain = certain & (~torch.isinf(out) | kept)
    made = call.steps.kept(out, error)
    return finished(out, made, certain, limited, nonnegative=a.shade.nonnegative)
