"""Error rules of what chooses among values: comparisons, selections, maxima.

A choice rounds nothing. Where operands in error leave open what is chosen, a kernel
may hold either: then the distance between them is its error, and a truth value or an
index is in doubt.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map

from kfuzz.numerics.shadow.functions import finished, gap
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
    either = torch.maximum(a.error, b.error) + gap(a.value, b.value)
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
    error = torch.maximum(gap(high, call.out), gap(low, call.out))
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
    error = torch.maximum(gap(high, exact), gap(low, exact))
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
        gap(ranked(a.value + a.error), exact), gap(ranked(a.value - a.error), exact)
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


# Operators that move elements: the same move of the errors.
#
# A view of a tensor has the same view of its error, so that writing through one is
# seen through the other.

# Every tensor argument is moved.
PLAIN: Final = (
    "_reshape_alias", "_reshape_copy", "_unsafe_view", "alias", "alias_copy",
    "as_strided", "broadcast_to", "cat", "clone", "constant_pad_nd", "contiguous",
    "detach", "diag_embed", "diagonal", "diagonal_copy", "expand", "expand_copy",
    "flip", "im2col", "lift", "lift_fresh", "movedim", "narrow", "permute",
    "permute_copy", "pixel_shuffle", "pixel_unshuffle", "reflection_pad1d",
    "reflection_pad2d", "repeat", "replication_pad1d", "replication_pad2d", "reshape",
    "resolve_conj", "resolve_neg", "roll", "rot90", "select", "select_copy",
    "select_scatter", "slice", "slice_copy", "slice_scatter", "split",
    "split_with_sizes", "squeeze", "squeeze_copy", "stack", "t", "t_copy",
    "transpose", "transpose_copy", "tril", "triu", "unbind", "unfold", "unfold_copy",
    "unsafe_split", "unsafe_split_with_sizes", "unsqueeze", "unsqueeze_copy",
    "upsample_nearest1d", "upsample_nearest2d", "view",
    "view_copy", "channel_shuffle", "diagonal_scatter", "_unsafe_index",
)  # fmt: skip
# Of these, what puts zeros where no element is.
FILLING: Final = frozenset({"constant_pad_nd", "diag_embed", "tril", "triu"})
# The named arguments are moved, the others say whence or whither.
INDEXED: Final[dict[str, tuple[str, ...]]] = {
    "index": ("self",),
    "gather": ("self",),
    "index_select": ("self",),
    "take": ("self",),
    "embedding": ("weight",),
    "repeat_interleave": ("self",),
    "masked_select": ("self",),
    "index_put": ("self", "values"),
    "scatter": ("self", "src", "value"),
    "index_copy": ("self", "source"),
    "index_fill": ("self", "value"),
    "fill": ("self", "value"),
    "copy": ("self", "src"),
}


def moved(call: Call) -> Outcome:
    """Return the outcome of a move."""
    name = call.name.removeprefix("aten.")
    data = INDEXED.get(name)
    if call.get("accumulate"):
        return _accumulated(call, "self", "values")
    if call.get("reduce") is not None:
        raise NoRule(call.name)
    if name in ("view", "view_copy") and "dtype" in call.named:
        raise NoRule(call.name)  # bits of a number are no move of its error
    shades: list[Shade] = []
    overwritten = ("self",) if name in ("fill", "copy") else ()

    def companion(part: str) -> dict[str, Any]:
        return {
            key: _parts(call, key, value, part, data, shades, overwritten)
            for key, value in call.named.items()
        }

    error = _rerun(call, companion("error"))
    seen = tuple(shades)
    limited = _rerun(call, companion("limited"))
    reach = None
    if any(s.reach is not None for s in seen):
        reach = _rerun(call, companion("reach"))
    out = call.out
    nonnegative = all(s.nonnegative for s in seen)
    # Zeros and constants that fill up are no arguments of the kernel's, but exact.
    given = bool(seen) and all(s.given for s in seen)
    filled = name in FILLING or any(s.filled for s in seen)
    terms = max((s.terms for s in seen), default=0)
    is_open = data is not None and _doubtful(call, data)
    reached = _reached(call, name) if is_open else None
    results = out if isinstance(out, tuple | list) else (out,)
    errors = error if isinstance(error, tuple | list) else (error,)
    limits = limited if isinstance(limited, tuple | list) else (limited,)
    reaches = reach if isinstance(reach, tuple | list) else (reach,) * len(errors)
    made = []
    for e, limit, far in zip(errors, limits, reaches, strict=True):
        shade = Shade(e, limit, nonnegative, given, terms, filled, far)
        if reached is not None:
            shade = replace(shade, error=torch.where(reached, float("inf"), e))
        made.append(shade)
    assert len(made) == len(results)
    return out, tuple(made)


def _parts(
    call: Call,
    key: str,
    value: Any,
    part: str,
    data: tuple[str, ...] | None,
    shades: list[Shade],
    overwritten: tuple[str, ...],
) -> Any:
    """Return an argument with its tensors replaced by a part of their shades."""
    if data is not None and key not in data:
        return value
    if key == "value" and isinstance(value, int | float):
        constant = call.operand_of(value)
        shades.append(constant.shade)
        found = constant.reach if part == "reach" else getattr(constant.shade, part)
        return found.item()

    def of(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        shade = call.shade_of(leaf)
        if key not in overwritten:
            shades.append(shade)
        if part == "reach":
            return call.operand_of(leaf).reach
        return getattr(shade, part)

    return tree_map(of, value)


def _rerun(call: Call, named: dict[str, Any]) -> Any:
    """Return the same move of other tensors."""
    try:
        return call.again(named)
    except RuntimeError as failed:
        # A companion with other strides: copies have no views to keep.
        if call.name in ("aten.view", "aten._unsafe_view"):
            return named["self"].reshape(named["size"])
        raise NoRule(call.name) from failed


def _doubtful(call: Call, data: tuple[str, ...]) -> bool:
    """Whether an index or mask is in doubt."""
    others = [v for k, v in call.named.items() if k not in data]
    leaves = [x for x in tree_flatten(others)[0] if isinstance(x, Tensor)]
    return any(bool(_in_doubt(call, x).any()) for x in leaves)


def _reached(call: Call, name: str) -> Tensor:
    """Return which elements an index or mask in doubt may reach; all where unknown."""
    named = call.named
    if name in ("gather", "take"):  # an element for each index
        return _in_doubt(call, named["index"])
    if name == "index_put" and len(named["indices"]) == 1:
        [mask] = named["indices"]
        one = named["values"].numel() == 1  # else places of the others follow, too
        if one and mask.dtype is torch.bool and mask.shape == call.out.shape:
            return _in_doubt(call, mask)
    if name == "scatter" and call.out.dim():
        dim, index = named["dim"] % call.out.dim(), named["index"]
        reached = torch.zeros_like(call.out, dtype=torch.bool)
        part = reached
        for axis in range(index.dim()):
            if axis != dim:
                part = part.narrow(axis, 0, index.shape[axis])
        part.copy_(_in_doubt(call, index).any(dim, keepdim=True).expand(part.shape))
        return reached
    return torch.tensor(True)


def _in_doubt(call: Call, index: Tensor) -> Tensor:
    """Return where an index or a truth value may be another one in a kernel."""
    shade = call.shade_of(index)
    return (shade.error > 0) | (shade.limited > 0)


for _name in (*PLAIN, *INDEXED):
    rule(_name)(moved)


@rule("scatter_add", "index_add")
def _scatter_add(call: Call) -> Outcome:
    if call.get("alpha", 1) != 1:
        raise NoRule(call.name)
    source = "src" if call.name.endswith("scatter_add") else "source"
    return _accumulated(call, "self", source)


def _accumulated(call: Call, base: str, source: str) -> Outcome:
    """Return the outcome of adding in colliding places, in any order."""
    steps = call.steps
    a, b = call.operand(base), call.operand(source)
    if _doubtful(call, (base, source)):
        raise NoRule(f"{call.name} where an index is in doubt")

    def total(x: Tensor, y: Tensor) -> Tensor:
        made = call.again({**call.named, base: x, source: y})
        assert isinstance(made, Tensor)
        return made

    size = total(a.value.abs() + a.error, b.value.abs() + b.error)
    carried = total(a.error, b.error)
    count = total(torch.zeros_like(a.value), torch.ones_like(b.value))
    most = int(count.max()) if count.numel() else 0
    c = steps.acc.summation(most + 1) + (most + 1) * 2.0**-53
    rounding = torch.where(count > 0, c * size, 0.0)
    lost = torch.where(count > 0, steps.acc.lost(most + 1, flush=steps.flush), 0.0)
    out = call.out
    special = torch.where(torch.isfinite(carried), 0.0, carried)
    error = torch.where(torch.isfinite(out), carried + rounding + lost, special)
    error = torch.where(count > 0, steps.kept(out, error), error)
    reads = (total(a.read(steps), b.read(steps)) > 0).to(torch.float64)
    beyond = torch.isfinite(size) & (size > steps.acc.limit)
    limited = any_of(reads, beyond.to(torch.float64))
    return out, (Shade(torch.nan_to_num(error, nan=float("inf")), limited),)


@rule("_to_copy", "to")
def _cast(call: Call) -> Outcome:
    """A cast that the reference asks for: a kernel may round there too, or not."""
    a, out, steps = call.operand("self"), call.out, call.steps
    if not out.is_floating_point():
        if out.dtype is torch.bool:
            doubt = (a.error >= a.value.abs()) & (a.error > 0)
        else:
            ends = [torch.trunc(a.value + s * a.error) for s in (-1, 1)]
            doubt = ~(ends[0] == ends[1])
            if call.named["self"].is_floating_point():
                # What an integer cannot hold, NaN included, converts to anything: a
                # CPU gives its least integer, a GPU its nearest one or 0.
                range_ = torch.iinfo(out.dtype)
                held = (ends[0] >= range_.min) & (ends[1] < float(range_.max) + 1)
                doubt = doubt | ~(held & torch.isfinite(a.value))
        error = torch.where(doubt, 1.0 if out.dtype is torch.bool else float("inf"), 0)
        return out, (Shade(error.to(torch.float64), a.shade.limited),)
    error, limited = a.error, a.shade.limited
    if not call.named["self"].is_floating_point():
        error = error + steps.given(a.value)
    fmt = call.narrow
    if fmt is not None and fmt.unit > steps.held.unit:
        size = torch.where(torch.isfinite(out), out.abs(), 0.0) + error
        error = error + fmt.unit * size + steps.lost(fmt)
        beyond = torch.isfinite(out) & (out.abs() + error > fmt.max_finite)
        limited = any_of(limited, beyond.to(torch.float64))
        error = torch.where(torch.isfinite(out), error, a.error)
    return out, (replace(a.shade, error=error, limited=limited),)
