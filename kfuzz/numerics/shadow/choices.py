"""Error rules of what chooses among values: comparisons, selections, maxima.

A choice rounds nothing. Where operands in error leave open what is chosen, a kernel
may hold either: then the distance between them is its error, and a truth value or an
index is in doubt.
"""

import math
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor

from kfuzz.numerics.shadow.elementwise import finished
from kfuzz.numerics.shadow.shade import (
    Call,
    NoRule,
    Operand,
    Outcome,
    Shade,
    any_of,
    rule,
    sound,
)


def _gap(a: Tensor, b: Tensor) -> Tensor:
    """Return |a - b|, 0 where both are the same infinity or NaN."""
    same = (a == b) | (torch.isnan(a) & torch.isnan(b))
    return torch.where(same, 0.0, (a - b).abs())


def _verdict(out: Tensor, doubt: Tensor, limited: Tensor) -> Outcome:
    """Return a truth value that some kernels may hold the other way round."""
    error = doubt.to(torch.float64).expand(out.shape)
    return out, (Shade(error, limited.expand(out.shape), nonnegative=True),)


@rule("eq", "ne", "lt", "le", "gt", "ge")
def _compare(call: Call) -> Outcome:
    """Certain where the operands lie further apart than their errors."""
    a, b = call.operand("self"), call.operand("other")
    error = a.error + b.error
    apart = (a.value - b.value).abs() > error
    numbers = ~(torch.isnan(a.value) | torch.isnan(b.value))
    doubt = numbers & ~apart & (error > 0)
    if call.steps.kinks:
        doubt = doubt | _at_kink(call, a, b)
    limited = any_of(a.read(call.steps), b.read(call.steps))
    return _verdict(call.out, doubt | torch.isinf(error), limited)


def _at_kink(call: Call, a: Operand, b: Operand) -> Tensor:
    """Return where equal numbers choose among one-sided derivatives.

    Not what is compared with one certain number for being equal to it, as for dividing
    by no 0; nor the one element of a row that equals the row's greatest.
    """
    named = call.named["self"], call.named["other"]
    floats = all(x.is_floating_point() for x in named if isinstance(x, Tensor))
    tied = (a.value == b.value) & torch.isfinite(a.value)
    if not floats:
        return torch.zeros_like(tied)
    if call.name not in ("aten.eq", "aten.ne"):
        return tied
    if a.number is not None or b.number is not None:
        return torch.zeros_like(tied)
    rows = [
        i
        for i in range(-tied.dim(), 0)
        if any(i < -x.value.dim() or x.value.shape[i] < tied.shape[i] for x in (a, b))
    ]
    return tied & (tied.sum(rows, keepdim=True) > 1) if rows else tied


@rule("isnan", "isinf", "isfinite", "signbit", "isposinf", "isneginf")
def _class(call: Call) -> Outcome:
    a = call.operand("self")
    doubt = torch.isinf(a.error)
    if call.name.endswith("signbit"):
        doubt = doubt | ((a.error > 0) & (a.value.abs() <= a.error))
    return _verdict(call.out, doubt, a.read(call.steps))


@rule("logical_and", "logical_or", "logical_xor", "logical_not", "bitwise_not",
      "bitwise_and", "bitwise_or", "bitwise_xor")  # fmt: skip
def _logic(call: Call) -> Outcome:
    operands = [call.operand("self")]
    if "other" in call.named:
        operands.append(call.operand("other"))
    doubt = torch.zeros_like(call.out, dtype=torch.bool)
    for x in operands:
        doubt = doubt | (x.error > 0)
    if call.out.dtype is not torch.bool and bool(doubt.any()):
        raise NoRule(call.name)
    limited = any_of(*(x.shade.limited for x in operands))
    # What a certain operand decides alone is certain.
    for x in operands if len(operands) == 2 else ():
        known = x.error == 0
        if call.name.endswith("and"):
            doubt = doubt & ~(known & (x.value == 0))
        elif call.name.endswith("_or"):
            doubt = doubt & ~(known & (x.value != 0))
    return _verdict(call.out, doubt, limited)


@rule("any", "all")
def _some(call: Call) -> Outcome:
    a, out = call.operand("self"), call.out
    doubt = (a.error > 0).any().expand(out.shape)
    limited = (a.shade.limited > 0).any().to(torch.float64)
    return _verdict(out, doubt, limited.expand(out.shape))


@rule("where")
def _where(call: Call) -> Outcome:
    chosen = call.operand("condition")
    a, b = call.operand("self"), call.operand("other")
    holds = call.named["condition"]
    error = torch.where(holds, a.error, b.error)
    either = torch.maximum(a.error, b.error) + _gap(a.value, b.value)
    error = torch.where(chosen.error > 0, either, error)
    limited = torch.where(holds, a.shade.limited, b.shade.limited)
    limited = any_of(limited, chosen.shade.limited)
    both = a.shade.nonnegative and b.shade.nonnegative
    # An infinity that is chosen for certain is one in every kernel.
    certain = error == 0
    return finished(call.out, error, certain, limited, nonnegative=both)


def _between(
    call: Call, f: Callable[..., Tensor], operands: list[Operand], floor: bool
) -> Outcome:
    """Return the outcome of a choice that is monotone in each operand."""
    high = f(*(x.value + x.error for x in operands))
    low = f(*(x.value - x.error for x in operands))
    error = torch.maximum(_gap(high, call.out), _gap(low, call.out))
    limited = any_of(*(x.shade.limited for x in operands))
    return finished(
        call.out, error, error == 0, limited, nonnegative=floor
    )  # fmt: skip


_CLAMPS: Final = {
    "clamp": ("min", "max"), "clamp_min": ("min", None), "clamp_max": (None, "max"),
    "hardtanh": ("min_val", "max_val"),
}  # fmt: skip


@rule("relu", *_CLAMPS)
def _clamp(call: Call) -> Outcome:
    if call.name.endswith("relu"):
        return _between(call, torch.relu, [call.operand("self")], True)
    names = _CLAMPS[call.name.removeprefix("aten.")]
    ends = [None if n is None else call.get(n) for n in names]
    kept = [call.operand("self")]
    kept += [call.operand_of(e) for e in ends if e is not None]

    def clamped(x: Tensor, *rest: Tensor) -> Tensor:
        left = list(rest)
        if ends[0] is not None:
            x = torch.maximum(x, left.pop(0))
        return torch.minimum(x, left.pop(0)) if ends[1] is not None else x

    floor = kept[0].shade.nonnegative
    if ends[0] is not None:
        floor = floor or kept[1].shade.nonnegative
    return _between(call, clamped, kept, floor and ends[1] is None)


@rule("maximum", "minimum", "fmax", "fmin")
def _extreme(call: Call) -> Outcome:
    operands = [call.operand("self"), call.operand("other")]
    f = getattr(torch, call.name.removeprefix("aten."))
    return _between(call, f, operands, all(x.shade.nonnegative for x in operands))


def _along(call: Call) -> tuple[Any, bool]:
    """Return the dimensions and whether they are kept; None for all of them."""
    dim = call.get("dim")
    if isinstance(dim, list | tuple) and not dim:
        dim = None
    return dim, bool(call.get("keepdim", False))


def _reduced(x: Tensor, f: Callable[..., Tensor], dim: Any, keep: bool) -> Tensor:
    if dim is None:
        return f(x, tuple(range(x.dim())), keep)
    return f(x, dim, keep)


@rule("amax", "amin", "max", "min")
def _greatest(call: Call) -> Outcome:
    if "other" in call.named:
        name = {"aten.max": "aten.maximum", "aten.min": "aten.minimum"}[call.name]
        call.name = name
        return _extreme(call)
    a = call.operand("self")
    dim, keep = _along(call)
    top = call.name.endswith("max")
    f = torch.amax if top else torch.amin
    both = isinstance(call.out, tuple | list)
    values = call.out[0] if both else call.out
    exact = values.to(torch.float64)
    high = _reduced(a.value + a.error, f, dim, keep)
    low = _reduced(a.value - a.error, f, dim, keep)
    error = torch.maximum(_gap(high, exact), _gap(low, exact))
    limited = _reduced(a.shade.limited, torch.amax, dim, keep)
    made = finished(exact, error, error == 0, limited, nonnegative=a.shade.nonnegative)[
        1
    ]
    if not both:
        return call.out, made
    return call.out, (*made, _place(call, call.out[1], dim, keep, top=top))


@rule("argmax", "argmin")
def _argmax(call: Call) -> Outcome:
    dim, keep = call.get("dim"), bool(call.get("keepdim", False))
    top = call.name.endswith("max")
    return call.out, (_place(call, call.out, dim, keep, top=top),)


def _place(call: Call, index: Tensor, dim: Any, keep: bool, *, top: bool) -> Shade:
    """Return the doubt about the place of a maximum: another is within the errors.

    Numbers beyond a kernel's range are all infinity there, whichever is the greatest.
    """
    a = call.operand("self")
    value, error, limited = a.value, a.error, a.read(call.steps)
    at = index
    if dim is None:
        shape = index.shape
        value, error, limited = value.flatten(), error.flatten(), limited.flatten()
        at, dim = index.reshape(1), 0
    elif not keep and value.dim():
        at, shape = index.unsqueeze(dim), index.shape
    else:
        shape = index.shape
    if not value.dim():
        return Shade(torch.zeros_like(value), limited)
    value = value if top else -value
    others = torch.ones_like(value, dtype=torch.bool).scatter(dim, at, False)
    best, own = value.gather(dim, at), error.gather(dim, at)
    # Equal numbers free of error keep their order, but at a kink; a NaN is found by its
    # class.
    close = others & (value + error >= best - own)
    if not call.steps.kinks:
        close = close & (error + own > 0)
    doubt = (close & ~torch.isnan(best)).any(dim) | torch.isinf(error).any(dim)
    made = torch.where(doubt, float("inf"), 0.0).to(torch.float64)
    return Shade(made.reshape(shape), limited.amax(dim).reshape(shape))


@rule("sort", "topk")
def _sort(call: Call) -> Outcome:
    """The k-th greatest lies between the k-th greatest lower and upper ends."""
    a = call.operand("self")
    dim = int(call.get("dim", -1))
    values, places = call.out
    if not a.value.dim() or not a.value.shape[dim]:
        return call.out, (a.shade, None)
    down = bool(call.get("descending", False)) or bool(call.get("largest", False))
    n = values.shape[dim]

    def ranked(x: Tensor) -> Tensor:
        return x.sort(dim, descending=down).values.narrow(dim, 0, n)

    exact = values.to(torch.float64)
    error = torch.maximum(
        _gap(ranked(a.value + a.error), exact), _gap(ranked(a.value - a.error), exact)
    )
    limited = a.shade.limited.amax(dim, keepdim=True).expand(exact.shape)
    shade = finished(exact, error, error == 0, limited)[1][0]
    doubt = _misplaced(a, dim, n, down=down, ties=call.steps.kinks)
    place = torch.where(doubt, float("inf"), 0.0).to(torch.float64)
    beyond = a.read(call.steps).amax(dim, keepdim=True).expand(exact.shape)
    return (values, places), (shade, Shade(sound(place), beyond))


def _misplaced(a: Operand, dim: int, n: int, *, down: bool, ties: bool) -> Tensor:
    """Return which of the first n ranks another element may have, within the errors.

    Without errors the order is that of torch; of a row with some, and with `ties`,
    equal numbers may change places.
    """
    size = a.value.shape[dim]
    order = a.value.argsort(dim, descending=down)
    value, error = a.value.gather(dim, order), a.error.gather(dim, order)
    value = value.nan_to_num(nan=math.inf, posinf=math.inf, neginf=-math.inf)
    value = value if down else -value
    # All before a rank stay above all after it: between neighbours, then at both ends.
    above = torch.cummin(value - error, dim).values.narrow(dim, 0, size - 1)
    below = torch.cummax((value + error).flip(dim), dim).values.flip(dim)
    apart = above > below.narrow(dim, 1, size - 1)
    end = torch.ones_like(value.narrow(dim, 0, 1), dtype=torch.bool)
    sure = torch.cat((end, apart), dim) & torch.cat((apart, end), dim)
    unsure = ~sure
    if not ties:
        unsure = unsure & (a.error > 0).any(dim, keepdim=True)
    return (unsure | torch.isinf(a.error).any(dim, keepdim=True)).narrow(dim, 0, n)
