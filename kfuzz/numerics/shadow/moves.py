"""Operators that move elements: the same move of the errors.

A view of a tensor has the same view of its error, so that writing through one is
seen through the other.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map

from kfuzz.numerics.shadow.shade import Call, NoRule, Outcome, Shade, any_of, rule

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
    assert call.again is not None
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
        raise NoRule(call.name)
    again: Callable[[dict[str, Any]], Any] | None = call.again
    assert again is not None

    def total(x: Tensor, y: Tensor) -> Tensor:
        made = again({**call.named, base: x, source: y})
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
