"""The order of additions, and into how many parts sums fall at which shapes."""

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from kfuzz.core.arithmetic_facts import Claim, Outcome, Reading, Tree
from kfuzz.core.dtypes import unpack_numbers
from kfuzz.core.recipe import Case
from kfuzz.probe import tree as trees
from kfuzz.probe.formats import precision, rounded
from kfuzz.probe.rows import Row, spread
from kfuzz.probe.subject import ONES, Inapplicable, Subject, Unobserved, number

ORDER: Final = "order"
SPLIT: Final = "split"

_LADDER: Final = (16, 32, 64, 128, 256, 512, 1024, 2048)
# A second look at the order with so many rows in a call: the grid is another one.
_FEW_ROWS: Final = 4
# Rows on which an order must give the kernel's very bits, and their spread.
_REPLAYED, _OCTAVES = 4, 11
_PASSES: Final = 3
# Pairs that are asked for again, spread over all: to rebuild a tree takes more.
_AGAIN: Final = 1024
_NEAR: Final = 0.1


class _Exact(Exception):
    """No term is lost beside one that is so many times as great."""

    def __init__(self, ratio: float) -> None:
        self.ratio = ratio
        super().__init__(f"terms are kept beside ones {number(ratio)} times as great")


@dataclass(frozen=True)
class _Terms:
    """The factors of a great term and of a small one that it swallows."""

    great: tuple[float, float]
    small: tuple[float, float]

    @property
    def grain(self) -> float:
        """The small term."""
        return self.small[0] * self.small[1]

    @property
    def apart(self) -> bool:
        """Whether each row needs right factors of its own."""
        return self.small[1] != 1.0

    def row(self, at: Sequence[int] = ()) -> tuple[Row, Row]:
        """Return the factors of a row of small terms, but M and -M at two places."""
        signs = (1.0, -1.0)
        left = {p: s * self.great[0] for p, s in zip(at, signs, strict=False)}
        right = dict.fromkeys(at, self.great[1]) if self.apart else {}
        return Row(self.small[0], left), Row(self.small[1], right)


def _terms(subject: Subject, n: int) -> _Terms | None:
    """Return terms for sums of n; None where the format has none far enough apart."""
    if n > 2 ** precision(subject.adder.output):
        return None  # their number would be rounded
    divisor = subject.adder.divisor(n)
    match subject.dtype:
        case "float64":
            return _Terms((2.0**1000, 1.0), (1.0, 1.0))
        case "float32" | "bfloat16":
            return _Terms((2.0**126, 1.0), (1.0, 1.0))
        case "float16" if n * divisor <= 1 << 13:
            # 35 fractional bits of a matrix unit are fewer than lie between them.
            return _Terms((2.0**15, 1.0), (2.0**-24 * divisor, 1.0))
        case "float8_e4m3fn" if subject.adder.products:
            return _Terms((2.0**8, 2.0**8), (2.0**-9, 2.0**-9))
        case "float8_e5m2" if subject.adder.products:
            return _Terms((2.0**15, 2.0**15), (2.0**-16, 2.0**-16))
    return None


def ladder(subject: Subject) -> list[int]:
    """Return the numbers of terms at which the order is looked for: three at most.

    Raises:
        Unobserved: if there is none.
    """
    subject.adder  # noqa: B018 - it says why there is none
    fit = [
        n
        for n in _LADDER
        if n <= subject.most_terms and _terms(subject, n) and subject.admits(n)
    ]
    if not fit:
        what = (
            f"no sums of {_LADDER[0]} terms of {subject.dtype} or more, "
            f"{subject.most_terms} at most, show their order in its domain"
        )
        raise Inapplicable(what)
    return sorted({fit[0], fit[len(fit) // 2], fit[-1]})


def order(subject: Subject) -> Iterator[Reading]:
    """Yield the order at each number of terms, then what follows of the shape."""
    found: dict[str, Tree] = {}
    highest, broken = 0, False
    sizes = ladder(subject)
    few = None
    with suppress(trees.Inconsistent, Unobserved, _Exact):  # where it does not show
        few = _found(subject, sizes[0], most=_FEW_ROWS)
    for n in sizes:
        try:
            made, formats = _found(subject, n), ""
            formats = _replays(subject, n, made)
        except (trees.Inconsistent, Unobserved) as why:
            broken = True
            yield subject.reading(
                ORDER, "", _declared(subject), Outcome.UNDECIDED, reason=str(why),
                terms=n,
            )  # fmt: skip
            continue
        except _Exact as exact:
            yield _exact(subject, n, exact)
            return
        found[f"{n} terms"] = made
        highest = max(highest, trees.height(made))
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
        yield _reading(subject, n, made, formats, claims)
    if few is not None:
        found[f"{sizes[0]} terms, {_FEW_ROWS} rows"] = few
    if found:
        yield _split(subject, found)


def meeting(subject: Subject, n: int) -> str:
    """Return how the first three of n terms meet: "at once", "in turn" or "in a tree".

    Raises:
        Unobserved: if that does not show.
    """
    try:
        first, later, others = _asker(subject, n)([(0, 1), (0, 2), (1, 2)])
    except trees.Inconsistent as why:
        raise Unobserved(str(why)) from None
    if first == later == others > 2:
        return "at once"
    return "in turn" if (first, later, others) == (2, 3, 3) else "in a tree"


def _asker(subject: Subject, n: int, *, most: int | None = None) -> trees.Ask:
    """Return what says how many terms the least subtree of a pair has.

    Raises:
        Unobserved: if the format has no terms for that, or small ones do not add up.
    """
    terms = _terms(subject, n)
    if terms is None:
        what = f"no sums of {n} terms of {subject.dtype} show their order"
        raise Inapplicable(what)
    left, right = terms.row()
    [total] = subject.values(n, [left], [right])
    kept = total / terms.grain
    if kept != n and (subject.adder.exact or not abs(kept - n) < _NEAR):
        raise Unobserved(f"{n} terms of {number(terms.grain)} sum to {number(total)}")
    rows = most or subject.rows_per_call

    def ask(pairs: Sequence[trees.Pair]) -> list[int]:
        # Each call has equally many rows: the order may follow their number.
        made = [terms.row(pair) for pair in pairs]
        made += [terms.row()] * (-len(made) % rows)
        rights = [right for _, right in made] if terms.apart else ONES
        sums = subject.values(n, [left for left, _ in made], rights, most=rows)
        sizes = []
        for pair, total in zip(pairs, sums, strict=False):
            kept = total / terms.grain
            if not subject.adder.exact and abs(kept - round(kept)) < _NEAR:
                kept = float(round(kept))  # weights that are not quite 1 / n
            if not math.isfinite(kept) or kept != int(kept) or not 0 <= kept <= n - 2:
                raise trees.Inconsistent(
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
        raise _Exact(terms.great[0] * terms.great[1] / terms.grain)
    sizes = trees.discover(n, ask, limit=subject.most_pairs)
    pairs = list(sizes)[:: -(-len(sizes) // _AGAIN)]
    for turn in range(1, _PASSES):
        # Once in other rows: those of a call need not be added alike.
        asked = pairs[::-1] if turn % 2 else pairs
        again = dict(zip(asked, ask(asked), strict=True))
        changed = [p for p in pairs if sizes[p] != again[p]]
        if changed:
            pair = changed[0]
            raise trees.Inconsistent(
                f"the order changes from call to call, or from row to row: {pair} "
                f"shared {sizes[pair]} terms, then {again[pair]}"
            )
    try:
        return trees.build(n, sizes)
    except trees.Inconsistent as error:
        raw = ", ".join(f"{p}:{s}" for p, s in list(sizes.items())[:64])
        raise trees.Inconsistent(f"{error}; seen {raw}") from None


def _replays(subject: Subject, n: int, tree: Tree) -> str:
    """Return the format in which additions in that order give the kernel's bits.

    "" where none does, or nodes add more than two at once.
    """
    if trees.width(tree) >= trees.WIDE or n & (n - 1):
        return ""
    rows = _spread(subject, n)
    got = subject.values(n, rows)
    divisor, output = subject.adder.divisor(n), subject.adder.output
    for name in dict.fromkeys(("float32", "float64", subject.dtype)):
        # Of two float32 numbers float64 rounds the sum so that rounding it again is
        # right.
        sums = (
            trees.summed(
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
    subject: Subject, n: int, tree: Tree, formats: str, claims: dict[str, Claim]
) -> Reading:
    claim, high = subject.accumulator, trees.height(tree)
    outcome = Outcome.AS_DECLARED
    if claim.model == "blocked" and high != claim.count:
        outcome = Outcome.BETTER if high < claim.count else Outcome.DIFFERS
    differs = outcome is Outcome.DIFFERS
    witnesses = (_along(subject, n, tree),) if differs else ()
    how = f"; its bits are those of additions in {formats}" if formats else ""
    return subject.reading(
        ORDER, trees.described(tree) + how, _declared(subject), outcome,
        terms=n, tree=tree, claims=claims, witnesses=witnesses,
    )  # fmt: skip


def _exact(subject: Subject, n: int, exact: _Exact) -> Reading:
    compensates = subject.accumulator.model in ("compensated", "float64")
    wide = exact.ratio < 2.0 ** precision("float64")
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
    depth_of = trees.depths(tree)
    deepest = max(depth_of, key=lambda leaf: depth_of[leaf])
    one = 2.0**10  # in float16 2^-24 of it is a normal number
    at = {deepest: one}
    node = tree
    while not isinstance(node, int):
        inside = next(c for c in node if deepest in trees.leaves(c))
        for other in node:
            if other is not inside:
                at[trees.leaves(other)[0]] = one * 2.0**-24
        node = inside
    return subject.case(n, [Row(0.0, at)])


def _claims(subject: Subject, n: int, high: int) -> dict[str, Claim]:
    """Return what declares a height, up to the number of terms that showed it."""
    operator, claims = subject.kernel.operator, subject.claims
    size = operator.reduced if isinstance(operator.reduced, str) else "N"
    bound = f"{size} <= {n}"
    if claims.shape_class is not None:
        before = claims.shape_class.expression
        parts = [part.strip() for part in before.split(" and ")]
        known = bound in parts and not {"or", "not", "if"} & set(before.split())
        bound = before if known else f"({before}) and {bound}"
    return {"accumulator": f"blocked({high})", "shape_class": bound}


def _split(subject: Subject, found: dict[str, Tree]) -> Reading:
    """Return what follows of the shape: blocks of one size, or parts in one number."""
    seen = {where: trees.parts(tree) for where, tree in found.items()}
    told = "; ".join(
        f"{where}: {count} parts of {size}" if count > 1 else f"{where}: one part"
        for where, (count, size) in seen.items()
    )
    claim = subject.accumulator
    if claim.model != "splitk":
        return subject.undeclared(SPLIT, told)
    most = max(count for count, _ in seen.values())
    if most <= claim.count:
        outcome = Outcome.AS_DECLARED if most == claim.count else Outcome.BETTER
        return subject.reading(SPLIT, told, f"{claim.count} parts at most", outcome)
    why = "parts kept in float32 are like any other order"
    return subject.reading(
        SPLIT, told, f"{claim.count} parts at most", Outcome.UNDECIDED, reason=why
    )
