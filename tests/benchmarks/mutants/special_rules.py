"""Rules about special values, ties, and programs that meet at one element."""

import ast
from collections.abc import Iterator
from typing import Final

from tests.benchmarks.mutants.rules import (
    Book,
    Edit,
    Site,
    is_call,
    is_number,
    kernel_call,
    owner,
)

specials: Final = Book("special values and ties")
order: Final = Book("order of programs")
BOOKS: Final = (specials, order)

_WIDENED: Final = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}


def _compared(site: Site, signs: dict[type[ast.cmpop], str]) -> Iterator[Edit]:
    """Yield a comparison of values by another sign."""
    node = site.node
    if not site.kernel or not isinstance(node, ast.Compare) or site.is_mask:
        return
    if sign := signs.get(type(node.ops[0])):
        left, right = site.of(node.left), site.of(node.comparators[0])
        yield ((node, f"{left} {sign} {right}"),)


@specials.rule("tie-policy", "a comparison of values admits equality, or no more")
def _tie(site: Site) -> Iterator[Edit]:
    yield from _compared(site, _WIDENED)


@specials.rule("nan-swallowed", "a NaN is not seen, or passed over")
def _swallowed(site: Site) -> Iterator[Edit]:
    match site.node:
        case ast.Compare(left=x, ops=[ast.NotEq()], comparators=[y]) if site.kernel:
            if site.of(x) == site.of(y):
                yield ((site.node, f"{site.of(x)} > {site.of(y)}"),)
        case ast.Call(args=[ast.Compare() as compare, one, two]) as node:
            if not site.kernel or not is_call(node, "tl.where"):
                return
            x, bound = compare.left, compare.comparators[0]
            limit = "0.0" if is_number(bound, 0) else site.of(bound)
            if {site.of(one), site.of(two)} == {site.of(x), limit}:
                lower = isinstance(compare.ops[0], ast.Lt | ast.LtE)
                at_least = lower == (site.of(one) == limit)
                function = "maximum" if at_least else "minimum"
                yield ((node, f"tl.{function}({site.of(x)}, {limit})"),)


@specials.rule("nan-from-infinities", "a guard against Inf - Inf or 0 / 0 is missing")
def _minted(site: Site) -> Iterator[Edit]:
    node = kernel_call(site, "tl.where")
    if node and is_number(node.args[1], 0, 1):
        match node.args[0]:
            case ast.Compare(left=left, ops=[ast.Eq()]) as test:
                yield ((test, f"{site.of(left)} != {site.of(left)}"),)


def _stored(site: Site, text: str) -> Iterator[Edit]:
    """Yield a store of something else, in which {y} is what was stored."""
    node = kernel_call(site, "tl.store")
    if node and len(node.args) == 2 and is_call(node.args[1], ".to"):
        value = node.args[1]
        changed = text.format(y=site.within(owner(value)))
        yield ((value, f"{changed}.to({site.of(value.args[0])})"),)


@specials.rule("non-finite-zeroed", "what is not finite is stored as 0")
def _zeroed(site: Site) -> Iterator[Edit]:
    yield from _stored(site, "tl.where(tl.abs({y}) < float('inf'), {y}, 0.0)")


@specials.rule("subnormals-flushed", "subnormal numbers of float32 are stored as 0")
def _flushed(site: Site) -> Iterator[Edit]:
    yield from _stored(site, "tl.where(tl.abs({y}) < 1.1754944e-38, 0.0, {y})")


@order.rule("atomic-removed", "programs that add to one element store to it")
def _plain_store(site: Site) -> Iterator[Edit]:
    if node := kernel_call(site, "tl.atomic_add"):
        yield ((node.func, "tl.store"),)
