"""Rules about which elements a kernel reads and writes, and what stands for others."""

import ast
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from tests.benchmarks.mutants.rules import (
    INTERPRETER,
    Book,
    Edit,
    Site,
    binary,
    cast,
    is_call,
    is_infinity,
    is_number,
    kernel_call,
    keyword,
    names,
    owner,
    without,
)

guards: Final = Book("guards")
tails: Final = Book("tails")
masks: Final = Book("masks")
fills: Final = Book("fills and identities")
strides: Final = Book("strides and indices")
host: Final = Book("launches")
BOOKS: Final = (guards, tails, masks, fills, strides, host)
# A size of the same tensor, for each size that stands between rows.
_OTHER_SIZE: Final = {
    "n": "m", "d": "m", "k": "n", "N": "M", "D": "S", "S": "D", "H": "G",
}  # fmt: skip


def _guard(site: Site) -> ast.Compare | None:
    """Return the comparison of a mask with a bound."""
    node = site.node
    if site.kernel and isinstance(node, ast.Compare) and site.is_mask:
        return node if isinstance(node.ops[0], ast.Lt | ast.LtE) else None
    return None


@guards.rule("guard-inclusive", "a guard says <= for <, or < for <=")
def _inclusive(site: Site) -> Iterator[Edit]:
    if node := _guard(site):
        sign = "<=" if isinstance(node.ops[0], ast.Lt) else "<"
        left, right = site.of(node.left), site.of(node.comparators[0])
        yield ((node, f"{left} {sign} {right}"),)


@guards.rule("guard-one-short", "a guard ends one element early")
def _one_short(site: Site) -> Iterator[Edit]:
    if node := _guard(site):
        yield ((node.comparators[0], f"{site.within(node.comparators[0])} - 1"),)


@guards.rule("guard-one-late", "a guard begins one element late")
def _one_late(site: Site) -> Iterator[Edit]:
    if node := _guard(site):
        left = site.within(node.left)
        yield ((node, f"({site.of(node)}) & ({left} > 0)"),)


def _tiles(site: Site) -> ast.Call | None:
    """Return the range of a loop over tiles."""
    node = kernel_call(site, "range")
    return node if node and len(node.args) == 3 else None


@tails.rule("last-tile-dropped", "a loop leaves out the last, partial tile")
def _last_dropped(site: Site) -> Iterator[Edit]:
    if node := _tiles(site):
        end, step = site.within(node.args[1]), site.of(node.args[2])
        yield ((node.args[1], f"{end} // {step} * {step}"),)


@tails.rule("last-column-dropped", "a loop ends where one column is left")
def _column_dropped(site: Site) -> Iterator[Edit]:
    if node := _tiles(site):
        yield ((node.args[1], f"{site.within(node.args[1])} - 1"),)


@tails.rule("first-tile-skipped", "a loop begins with the second tile")
def _first_skipped(site: Site) -> Iterator[Edit]:
    if node := _tiles(site):
        yield ((node.args[0], site.of(node.args[2])),)


@tails.rule("tile-counted-twice", "a loop steps by half a tile")
def _twice(site: Site) -> Iterator[Edit]:
    if node := _tiles(site):
        yield ((node.args[2], f"({site.of(node.args[2])} + 1) // 2"),)


@tails.rule("tile-overstepped", "a loop steps one element too far")
def _overstepped(site: Site) -> Iterator[Edit]:
    if node := _tiles(site):
        yield ((node.args[2], f"{site.of(node.args[2])} + 1"),)


@tails.rule("one-tile-only", "a loop is taken to have one tile")
def _one_tile(site: Site) -> Iterator[Edit]:
    if node := _tiles(site):
        step = site.of(node.args[2])
        yield ((node.args[1], f"min({site.of(node.args[1])}, {step})"),)


def _programs(site: Site) -> ast.Call | None:
    """Return what says how many programs there are."""
    node = site.node
    return node if not site.kernel and is_call(node, "triton.cdiv") else None


@tails.rule("ceil-to-floor", "a grid is rounded down, to one program at least")
def _floor(site: Site) -> Iterator[Edit]:
    if node := _programs(site):
        a, b = (site.within(each) for each in node.args)
        yield ((node, f"max({a} // {b}, 1)"),)


@tails.rule("grid-one-short", "a grid lacks its last program, unless there is one only")
def _grid_short(site: Site) -> Iterator[Edit]:
    if node := _programs(site):
        yield ((node, f"max({site.of(node)} - 1, 1)"),)


@masks.rule("mask-part-dropped", "a mask lacks one of its conditions")
def _part_dropped(site: Site) -> Iterator[Edit]:
    if site.is_mask and (node := binary(site, ast.BitAnd)):
        for kept in (node.left, node.right):
            yield ((node, site.within(kept)),)


@masks.rule("load-unmasked", "a load has no mask")
def _load_unmasked(site: Site) -> Iterator[Edit]:
    if (node := kernel_call(site, "tl.load")) and keyword(node, "mask"):
        yield ((node, without(site, node, "mask", "other")),)


@masks.rule("store-unmasked", "a store has no mask")
def _store_unmasked(site: Site) -> Iterator[Edit]:
    if (node := kernel_call(site, "tl.store")) and keyword(node, "mask"):
        yield ((node, without(site, node, "mask")),)


@masks.rule("selection-dropped", "what tl.where puts in place of some elements is not")
def _selection(site: Site) -> Iterator[Edit]:
    if node := kernel_call(site, "tl.where"):
        for kept in node.args[1:]:
            if not is_number(kept) and not is_call(kept, "float"):
                yield ((node, site.within(kept)),)


@masks.rule("causal-mask-dropped", "scores to come are seen, or hidden in every call")
def _causal(site: Site) -> Iterator[Edit]:
    if node := binary(site, ast.BitOr):
        yield ((node, site.within(node.left)),)
        yield ((node, f"({site.of(node)}) | (offs_t[None, :] >= 0)"),)


@fills.rule("wrong-fill", "masked lanes load another value")
def _wrong_fill(site: Site) -> Iterator[Edit]:
    node = kernel_call(site, "tl.load")
    if node and (other := keyword(node, "other")):
        whole = isinstance(other.value, ast.Constant) and other.value.value == 0
        yield ((other.value, "1" if whole else "0.0"),)


@fills.rule("padding-of-zeros", "the padding is 0, whatever is reduced")
def _padding(site: Site) -> Iterator[Edit]:
    if site.kernel and is_infinity(site.node) and isinstance(site.parent, ast.IfExp):
        yield ((site.node, "0.0"),)


@fills.rule("fill-missing", "masked lanes load whatever there is")
def _no_fill(site: Site) -> Iterator[Edit]:
    if (node := kernel_call(site, "tl.load")) and keyword(node, "other"):
        yield ((node, without(site, node, "other")),)


@fills.rule("wrong-identity", "a reduction begins with another value")
def _identity(site: Site) -> Iterator[Edit]:
    if node := kernel_call(site, "tl.full"):
        value = node.args[1]
        yield ((value, "0.0" if is_infinity(value) else "1"),)
    elif node := kernel_call(site, "tl.zeros"):
        shape, dtype = (site.of(a) for a in node.args)
        yield ((node, f"tl.full({shape}, 1, {dtype})"),)


@fills.rule("identity-finite", "a maximum begins with -1e4 in place of -Inf")
def _finite_identity(site: Site) -> Iterator[Edit]:
    if not site.kernel or isinstance(site.parent, ast.Compare):
        return
    calls = (a for a in site.above if isinstance(a, ast.Call))
    outer = next(calls, site.node)
    if is_infinity(site.node) and is_call(outer, "tl.full", "tl.load", "tl.where"):
        yield ((site.node, "-10000.0"),)


@strides.rule("stride-ignored", "a stride is taken for 1")
def _ignored(site: Site) -> Iterator[Edit]:
    node, multiplied = site.node, isinstance(site.parent, ast.BinOp)
    if site.kernel and multiplied and isinstance(node, ast.Name) and _strides(node.id):
        yield ((node, "1"),)


def _strides(name: str) -> bool:
    return name.startswith("stride_") or name in ("s0", "s1", "s2", "s3")


@strides.rule("stride-dense", "a stride is taken for that of a contiguous tensor")
def _dense(site: Site) -> Iterator[Edit]:
    node = site.node
    if not site.kernel and is_call(node, ".stride") and node.args:
        sizes = f"{site.of(owner(node))}.shape[{site.of(node.args[0])} + 1:]"
        yield ((node, f"torch.Size({sizes}).numel()"),)


@strides.rule("strides-swapped", "two strides of an argument are swapped")
def _swapped(site: Site) -> Iterator[Edit]:
    node = site.node
    if isinstance(node, ast.Starred) and is_call(node.value, ".stride"):
        yield ((node, f"{site.of(node)}[::-1]"),)
    elif isinstance(node, ast.Call) and not site.kernel:
        taken = [a for a in node.args if is_call(a, ".stride") and a.args]
        for one, two in pairwise(taken):
            if names(one) == names(two):
                yield ((one, site.of(two)), (two, site.of(one)))


@strides.rule("offset-dropped", "an argument's batch or head is not stepped to")
def _no_offset(site: Site) -> Iterator[Edit]:
    match site.node:
        case ast.AugAssign(target=ast.Name(name)) if name.endswith("_tile"):
            yield ((site.node, "pass"),)


@strides.rule("pitch-swapped", "rows of a contiguous result are as long as it is high")
def _pitch(site: Site) -> Iterator[Edit]:
    node = binary(site, ast.Mult)
    if node and site.is_place and isinstance(node.right, ast.Name):
        other = _OTHER_SIZE.get(node.right.id, "")
        if other in {a.arg for a in site.function.args.args}:
            yield ((node.right, other),)


@strides.rule("offset-off-by-one", "an index is one too great")
def _shifted(site: Site) -> Iterator[Edit]:
    if node := kernel_call(site, "tl.arange"):
        yield ((node, f"({site.of(node)} + 1)"),)


@strides.rule("program-shifted", "programs overlap by one element")
def _overlapping(site: Site) -> Iterator[Edit]:
    node = binary(site, ast.Mult)
    if node and isinstance(node.right, ast.Name) and len(node.right.id) > 1:
        block = node.right.id
        if block.isupper():
            yield ((node.right, f"({block} - 1)"),)


@strides.rule("program-order", "a program takes another one's tile")
def _order(site: Site) -> Iterator[Edit]:
    node = kernel_call(site, "tl.program_id")
    if node is None:
        return
    if sum(is_call(n, "tl.program_id") for n in ast.walk(site.function)) > 1:
        axis = site.of(node.args[0])
        yield ((node.args[0], "1" if axis == "0" else "0"),)
    else:
        yield ((node, f"(tl.num_programs(0) - 1 - {site.of(node)})"),)
        yield ((node, f"({site.of(node)} // 2 * 2)"),)


@strides.rule("division-for-remainder", "// and % are swapped")
def _divided(site: Site) -> Iterator[Edit]:
    if node := binary(site, ast.FloorDiv, ast.Mod):
        sign = "%" if isinstance(node.op, ast.FloorDiv) else "//"
        right = site.within(node.right)
        yield ((node, f"({site.of(node.left)} {sign} {right})"),)


@strides.rule("offset-32-bits", "an offset wraps from 2^31 on", backends=INTERPRETER)
def _narrow_offset(site: Site) -> Iterator[Edit]:
    if (found := cast(site)) and found[2] == "tl.int64":
        yield ((found[0], f"{site.within(found[1])}.to(tl.int32)"),)


@host.rule("contiguity-assumed", "a result of .contiguous() is not taken")
def _contiguous(site: Site) -> Iterator[Edit]:
    if not site.kernel and is_call(site.node, ".contiguous"):
        yield ((site.node, site.of(owner(site.node))),)


@host.rule("grid-swapped", "the dimensions of a grid are swapped")
def _grid(site: Site) -> Iterator[Edit]:
    match site.node:
        case ast.Tuple(elts=[one, two]) if not site.kernel:
            if is_call(one, "triton.cdiv") and is_call(two, "triton.cdiv"):
                yield ((one, site.of(two)), (two, site.of(one)))


@host.rule("empty-unhandled", "an empty result is launched for too")
def _empty(site: Site) -> Iterator[Edit]:
    match site.node:
        case ast.If(test=test, orelse=[]) if not site.kernel:
            if not isinstance(test, ast.UnaryOp):
                yield ((test, "True"),)


@host.rule("indices-unchecked", "indices out of bounds are not refused, or only some")
def _unchecked(site: Site) -> Iterator[Edit]:
    node = site.node
    if isinstance(node, ast.Expr) and is_call(node.value, "check_indices"):
        bound = node.value.args[1]
        yield ((node, "pass"),)
        yield ((bound, f"{site.of(bound)} + 1"),)


@host.rule("result-dtype", "the result is float32, whatever the input is")
def _dtype(site: Site) -> Iterator[Edit]:
    match site.node:
        case ast.keyword(arg="dtype", value=value) if not site.kernel:
            if site.of(value).endswith(".dtype"):
                yield ((value, "torch.float32"),)


@host.rule("input-returned", "an input is returned in place of the result")
def _returned(site: Site) -> Iterator[Edit]:
    match site.node:
        case ast.Return(value=ast.Name("y" | "c" | "out") as value) if not site.kernel:
            yield ((value, site.function.args.args[0].arg),)


@host.rule("result-shared", "all calls of a shape return one buffer")
def _shared(site: Site) -> Iterator[Edit]:
    match site.node:
        case ast.Assign(targets=[ast.Name()], value=value) if not site.kernel:
            if is_call(value, "torch.empty", "empty", ".new_empty"):
                first = site.function.args.args[0].arg
                key = f"({first}.shape, {first}.dtype, {first}.device)"
                kept = "globals().setdefault('kept', {})"
                yield ((value, f"{kept}.setdefault({key}, {site.of(value)})"),)
