"""The order of additions, at several numbers of terms."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from kfuzz.core.dtypes import unpack_numbers
from kfuzz.core.recipe import Case
from kfuzz.features.lab.probe.sums import (
    ONES,
    Claim,
    Inapplicable,
    Outcome,
    Reading,
    Row,
    Subject,
    Tree,
    Unobserved,
    number,
    rounded,
    spread,
)
from kfuzz.numerics.formats import FORMATS

# The order of additions: found from sums, and what it is like.
#
# FPRev (Xie et al., 2025): of the terms i gets a number M so great that it swallows
# every other one, j gets -M, the others are 1. What was added before both meet is lost,
# what comes after is kept; the result shows how many terms the smallest subtree has
# that holds both.

Pair = tuple[int, int]
Sizes = Mapping[Pair, int]
Ask = Callable[[Sequence[Pair]], Sequence[int]]

WIDE: Final = 3
"""A node that adds so many at once rounds once for all of them."""


class Inconsistent(Exception):
    """No order of additions explains what was seen."""


def discover(n: int, ask: Ask, *, limit: int) -> dict[Pair, int]:
    """Ask for the pairs that the order of n terms follows from.

    Between n - 1 pairs, of serial sums, and all of them, where one node adds all.

    Args:
        n: terms.
        ask: returns for each pair the terms of the smallest subtree with both.
        limit: most pairs.

    Raises:
        Inconsistent: if it takes more.
    """
    known: dict[Pair, int] = {}
    pending = [list(range(n))]
    while pending:
        pairs = [(g[0], j) for g in pending for j in g[1:]]
        if len(known) + len(pairs) > limit:
            raise Inconsistent(f"it takes more than {limit} sums")
        known.update(zip(pairs, ask(pairs), strict=True))
        pending = [
            group for g in pending for _, group in _grouped(g, known) if len(group) > 1
        ]
    return known


def build(n: int, sizes: Sizes) -> Tree:
    """Return the order of n terms.

    Raises:
        Inconsistent: if none fits.
    """
    [tree, *others] = _tree_split(list(range(n)), sizes, n + 1)
    if others or size_of(tree) != n:
        raise Inconsistent("the terms form no one tree")
    return tree


def _grouped(group: list[int], sizes: Sizes) -> list[tuple[int, list[int]]]:
    """Return the terms but the first by the subtree that they share with it."""
    first, found = group[0], {}  # type: int, dict[int, list[int]]
    for j in group[1:]:
        found.setdefault(sizes[first, j], []).append(j)
    return sorted(found.items())


def _tree_split(group: list[int], sizes: Sizes, above: int) -> list[Tree]:
    """Return the subtrees that terms fall into below a node of `above` terms."""
    trees: list[Tree] = []
    rest = group
    while rest:
        first, own = rest[0], [rest[0]]
        others: list[int] = []
        for j in rest[1:]:
            (own if sizes[first, j] < above else others).append(j)
        trees.append(_rooted(own, sizes))
        rest = others
    return trees


def _rooted(group: list[int], sizes: Sizes) -> Tree:
    tree: Tree = group[0]
    for size, members in _grouped(group, sizes):
        tree = (tree, *_tree_split(members, sizes, size))
        if size_of(tree) != size:
            raise Inconsistent(
                f"{size} terms share a subtree in which only {size_of(tree)} lie"
            )
    return tree


def nodes(tree: Tree) -> Iterator[tuple[Tree, int]]:
    """Yield a tree and what it is made of, terms from left to right, by depth."""
    pending = [(tree, 0)]
    while pending:
        node, depth = pending.pop()
        yield node, depth
        if not isinstance(node, int):
            pending += [(child, depth + 1) for child in reversed(node)]


def leaves(tree: Tree) -> list[int]:
    """Return the terms of a tree, from left to right."""
    return [node for node, _ in nodes(tree) if isinstance(node, int)]


def size_of(tree: Tree) -> int:
    """Return how many terms a tree has."""
    return len(leaves(tree))


def height(tree: Tree) -> int:
    """Return the most additions that a term passes."""
    return max(depth for _, depth in nodes(tree))


def width(tree: Tree) -> int:
    """Return how many the widest node adds at once; 0 for a single term."""
    widths = (len(node) for node, _ in nodes(tree) if not isinstance(node, int))
    return max(widths, default=0)


def parts(tree: Tree) -> tuple[int, int]:
    """Return into how many equal parts the sum falls that are added in turn.

    Returns:
        How many, and the terms of each; (1, n) where it falls into none.
    """
    aside, node = [], tree
    while not isinstance(node, int) and len(node) == 2:
        first, second = sorted(node, key=size_of, reverse=True)
        aside.append(size_of(second))
        node = first
        if aside[-1] != aside[0]:
            break
        if aside[0] > 1 and size_of(node) == aside[0]:
            return len(aside) + 1, aside[0]
    return 1, size_of(tree)


def described(tree: Tree) -> str:
    """Return what an order is like, in words."""
    n, high = size_of(tree), height(tree)
    count, size = parts(tree)
    if width(tree) >= WIDE:
        return f"fused: up to {width(tree)} terms at once, height {high}"
    if high == n - 1:
        return f"serial, height {high}"
    if high == (n - 1).bit_length():
        return f"balanced tree, height {high}"
    if count == 1:
        return f"tree of height {high}"
    for _ in range(count - 1):
        assert not isinstance(tree, int)
        tree = max(tree, key=size_of)
    each = described(tree) if parts(tree)[0] == 1 else f"height {height(tree)}"
    return f"{count} parts of {size} ({each}), height {high}"


def summed(
    tree: Tree, terms: Sequence[float], add: Callable[[float, float], float]
) -> float:
    """Return the sum of terms in the order of a tree of additions of two."""
    done: list[float] = []
    pending: list[Tree | None] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, int):
            done.append(terms[node])
        elif node is None:
            right, left = done.pop(), done.pop()
            done.append(add(left, right))
        else:
            pending += [None, *reversed(node)]
    return done[0]


ORDER: Final = "order"

_LADDER: Final = (16, 32, 64, 128, 256, 512, 1024, 2048)
# A second look at the order with so many rows in a call: the grid is another one.
_FEW_ROWS: Final = 4
# Rows on which an order must give the kernel's very bits, and their spread.
_REPLAYED, _OCTAVES = 4, 11
_PASSES: Final = 3
# Pairs that are asked for again, spread over all: to rebuild a tree takes more.
_AGAIN: Final = 1024


class _Exact(Exception):
    """No term is lost beside one that is so many times as great."""

    def __init__(self, ratio: float) -> None:
        self.ratio = ratio
        super().__init__(f"terms are kept beside ones {number(ratio)} times as great")


# Factors of a great term, and of a small one that it swallows.
_Terms = tuple[float, float, float, float]


def _rows(terms: _Terms, at: Sequence[int] = ()) -> tuple[Row, Row]:
    """Return the factors of a row of small terms, but M and -M at two places."""
    great, great_right, small, small_right = terms
    left = {p: s * great for p, s in zip(at, (1.0, -1.0), strict=False)}
    apart = small_right != 1.0  # each row needs right factors of its own
    right = dict.fromkeys(at, great_right) if apart else {}
    return Row(small, left), Row(small_right, right)


def _terms(subject: Subject, n: int) -> _Terms | None:
    """Return terms for sums of n; None where the format has none far enough apart."""
    if n > 2 ** FORMATS[subject.adder.output].precision:
        return None  # their number would be rounded
    dtype, divisor = subject.dtype, subject.adder.divisor(n)
    found: dict[str, _Terms] = {
        "float64": (2.0**1000, 1.0, 1.0, 1.0),
        "float32": (2.0**126, 1.0, 1.0, 1.0),
        "bfloat16": (2.0**126, 1.0, 1.0, 1.0),
    }
    if n * divisor <= 1 << 13:
        # 35 fractional bits of a matrix unit are fewer than lie between them.
        found["float16"] = (2.0**15, 1.0, 2.0**-24 * divisor, 1.0)
    if subject.adder.products:
        found["float8_e4m3fn"] = (2.0**8, 2.0**8, 2.0**-9, 2.0**-9)
        found["float8_e5m2"] = (2.0**15, 2.0**15, 2.0**-16, 2.0**-16)
    return found.get(dtype)


def ladder(subject: Subject) -> list[int]:
    """Return the numbers of terms at which the order is looked for: three at most.

    Raises:
        Unobserved: if there is none.
    """
    subject.adder  # noqa: B018 - it says why there is none
    fit = [
        n
        for n in _LADDER
        if n <= subject.most_terms and _terms(subject, n) and subject.accepts(n)
    ]
    if not fit:
        raise Inapplicable(f"no sums of {subject.dtype} in its domain show their order")
    return sorted({fit[0], fit[len(fit) // 2], fit[-1]})


def order(subject: Subject) -> Iterator[Reading]:
    """Yield the order at each number of terms."""
    highest, broken = 0, False
    sizes = ladder(subject)
    few = None
    with suppress(Inconsistent, Unobserved, _Exact):  # where it does not show
        few = _found(subject, sizes[0], most=_FEW_ROWS)
    for n in sizes:
        try:
            made, formats = _found(subject, n), ""
            formats = _replays(subject, n, made)
        except (Inconsistent, Unobserved) as why:
            broken = True
            yield subject.reading(
                ORDER, "", _declared(subject), Outcome.UNDECIDED, reason=str(why),
                terms=n,
            )  # fmt: skip
            continue
        except _Exact as exact:
            yield _exact(subject, n, exact)
            return
        highest = max(highest, height(made))
        broken = broken or formats != "float32" or (n == sizes[0] and few != made)
        # A serial sum is what any order may be.
        last = n == sizes[-1] and not broken and highest < n - 1
        claims: dict[str, Claim] = {}
        if last:  # if rows have the same bits in smaller calls, down to one row
            rows = _spread(subject, n)
            whole = subject.values(n, rows)
            fewer = range(1, len(rows))
            if all(subject.values(n, rows, most=most) == whole for most in fewer):
                claims = _claims(subject, n, highest)
        apart = ""
        if n == sizes[0] and few not in (None, made):
            apart = f"; in calls of {_FEW_ROWS} rows {described(few)}"
        yield _reading(subject, n, made, formats, claims, apart)


def meeting(subject: Subject, n: int) -> str:
    """Return how the first three of n terms meet: "at once", "in turn" or "in a tree".

    Raises:
        Unobserved: if that does not show.
    """
    try:
        first, later, others = _asker(subject, n)([(0, 1), (0, 2), (1, 2)])
    except Inconsistent as why:
        raise Unobserved(str(why)) from None
    if first == later == others > 2:
        return "at once"
    return "in turn" if (first, later, others) == (2, 3, 3) else "in a tree"


def _asker(subject: Subject, n: int, *, most: int | None = None) -> Ask:
    """Return what says how many terms the least subtree of a pair has.

    Raises:
        Unobserved: if the format has no terms for that, or small ones do not add up.
    """
    terms = _terms(subject, n)
    if terms is None:
        what = f"no sums of {n} terms of {subject.dtype} show their order"
        raise Inapplicable(what)
    (left, right), grain = _rows(terms), terms[2] * terms[3]
    [total] = subject.values(n, [left], [right])
    kept = total / grain
    if kept != n:
        raise Unobserved(f"{n} terms of {number(grain)} sum to {number(total)}")
    rows = most or subject.rows_per_call

    def ask(pairs: Sequence[Pair]) -> list[int]:
        # Each call has equally many rows: the order may follow their number.
        made = [_rows(terms, pair) for pair in pairs]
        made += [_rows(terms)] * (-len(made) % rows)
        rights = [right for _, right in made] if terms[3] != 1.0 else ONES
        sums = subject.values(n, [left for left, _ in made], rights, most=rows)
        sizes = []
        for pair, total in zip(pairs, sums, strict=False):
            kept = total / grain
            if not math.isfinite(kept) or kept != int(kept) or not 0 <= kept <= n - 2:
                raise Inconsistent(
                    f"with M at {pair[0]} and -M at {pair[1]} the sum of {n - 2} small "
                    f"terms is {number(kept)} of them"
                )
            sizes.append(n - int(kept))
        return sizes

    return ask


def _found(subject: Subject, n: int, *, most: int | None = None) -> Tree:
    """Return the order of n terms, seen three times alike.

    Raises:
        Unobserved: if small terms do not add up.
        trees.Inconsistent: if no order explains the sums.
    """
    ask = _asker(subject, n, most=most)
    if n > 2 and all(size == 2 for size in ask([(0, j) for j in range(1, n)])):
        terms = _terms(subject, n)
        assert terms is not None
        raise _Exact(math.prod(terms[:2]) / math.prod(terms[2:]))
    sizes = discover(n, ask, limit=subject.most_pairs)
    pairs = list(sizes)[:: -(-len(sizes) // _AGAIN)]
    for turn in range(1, _PASSES):
        # Once in other rows: those of a call need not be added alike.
        asked = pairs[::-1] if turn % 2 else pairs
        again = dict(zip(asked, ask(asked), strict=True))
        for pair in pairs:
            if sizes[pair] != again[pair]:
                raise Inconsistent(
                    f"the order changes from call to call, or from row to row: {pair} "
                    f"shared {sizes[pair]} terms, then {again[pair]}"
                )
    return build(n, sizes)


def _replays(subject: Subject, n: int, tree: Tree) -> str:
    """Return the format in which additions in that order give the kernel's bits.

    "" where none does, or nodes add more than two at once.
    """
    if width(tree) >= WIDE or n & (n - 1):
        return ""
    rows = _spread(subject, n)
    got = subject.values(n, rows)
    divisor, output = subject.adder.divisor(n), subject.adder.output
    for name in dict.fromkeys(("float32", "float64", subject.dtype)):
        # Of two float32 numbers float64 rounds the sum so that rounding it again is
        # right.
        sums = (
            summed(
                tree, unpack_numbers(row.raw, subject.dtype),
                lambda a, b: rounded(a + b, name),  # noqa: B023 - called at once
            )
            for row in rows
        )  # fmt: skip
        if [rounded(s / divisor, output) for s in sums] == [v / divisor for v in got]:
            return name
    return ""


def _spread(subject: Subject, n: int) -> list[Row]:
    seeds, dtype = range(_REPLAYED), subject.dtype
    return [
        Row(raw=spread(n, dtype, seed=s, octaves=_OCTAVES, cancelling=s % 2 == 0))
        for s in seeds
    ]


def _declared(subject: Subject) -> str:
    claim = subject.accumulator
    if claim.model == "blocked":
        return f"height {claim.count} at most"
    return "any order"


def _reading(
    subject: Subject, n: int, tree: Tree, formats: str, claims: dict[str, Claim],
    apart: str,
) -> Reading:  # fmt: skip
    claim, high = subject.accumulator, height(tree)
    outcome = Outcome.AS_DECLARED
    if claim.model == "blocked" and high != claim.count:
        outcome = Outcome.BETTER if high < claim.count else Outcome.DIFFERS
    differs = outcome is Outcome.DIFFERS
    how = f"; its bits are those of additions in {formats}" if formats else ""
    return subject.reading(
        ORDER, described(tree) + how + apart, _declared(subject), outcome,
        terms=n, tree=tree, claims=claims, adopts=claims,
        witnesses=(_along(subject, n, tree),) if differs else (),
    )  # fmt: skip


def _exact(subject: Subject, n: int, exact: _Exact) -> Reading:
    compensates = subject.accumulator.model in ("compensated", "float64")
    wide = exact.ratio < 2.0 ** FORMATS["float64"].precision
    other = "kept in float64" if wide else "wider than any format"
    return subject.reading(
        ORDER, f"sums are compensated, or {other}", _declared(subject),
        Outcome.AS_DECLARED if compensates else Outcome.BETTER,
        reason=str(exact), terms=n,
    )  # fmt: skip


def _along(subject: Subject, n: int, tree: Tree) -> Case:
    """Return the case that loses half a unit with each addition of the deepest term.

    The deepest is 1; what is added to it is 2^-24, and 0 elsewhere.
    """
    terms = [(depth, node) for node, depth in nodes(tree) if isinstance(node, int)]
    _, deepest = max(terms[::-1], key=lambda term: term[0])
    one = 2.0**10  # in float16 2^-24 of it is a normal number
    at = {deepest: one}
    node = tree
    while not isinstance(node, int):
        inside = next(c for c in node if deepest in leaves(c))
        for other in node:
            if other is not inside:
                at[leaves(other)[0]] = one * 2.0**-24
        node = inside
    return subject.case(n, [Row(0.0, at)])


def _claims(subject: Subject, n: int, high: int) -> dict[str, Claim]:
    """Return what declares a height, up to the number of terms that showed it."""
    operator, claims = subject.kernel.operator, subject.claims
    size = operator.reduced if isinstance(operator.reduced, str) else "N"
    bound = f"{size} <= {n}"
    if claims.shape_class is not None:
        bound = f"({claims.shape_class.expression}) and {bound}"
    return {"accumulator": f"blocked({high})", "shape_class": bound}
