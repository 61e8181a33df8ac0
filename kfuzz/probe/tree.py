"""The order of additions: found from sums, and what it is like.

FPRev (Xie et al., 2025): of the terms i gets a number M so great that it swallows every
other one, j gets -M, the others are 1. What was added before both meet is lost, what
comes after is kept; the result tells how many terms the smallest subtree has that holds
both.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kfuzz.core.arithmetic_facts import Tree

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
    [tree, *others] = _split(list(range(n)), sizes, n + 1)
    if others or size_of(tree) != n:
        raise Inconsistent("the terms form no one tree")
    return tree


def _grouped(group: list[int], sizes: Sizes) -> list[tuple[int, list[int]]]:
    """Return the terms but the first by the subtree that they share with it."""
    first, found = group[0], {}  # type: int, dict[int, list[int]]
    for j in group[1:]:
        found.setdefault(sizes[first, j], []).append(j)
    return sorted(found.items())


def _split(group: list[int], sizes: Sizes, above: int) -> list[Tree]:
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
        tree = (tree, *_split(members, sizes, size))
        if size_of(tree) != size:
            raise Inconsistent(
                f"{size} terms share a subtree in which only {size_of(tree)} lie"
            )
    return tree


def leaves(tree: Tree) -> list[int]:
    """Return the terms of a tree, from left to right."""
    found, pending = [], [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, int):
            found.append(node)
        else:
            pending += reversed(node)
    return found


def size_of(tree: Tree) -> int:
    """Return how many terms a tree has."""
    return len(leaves(tree))


def depths(tree: Tree) -> dict[int, int]:
    """Return how many additions each term passes."""
    found, pending = {}, [(tree, 0)]
    while pending:
        node, depth = pending.pop()
        if isinstance(node, int):
            found[node] = depth
        else:
            pending += [(child, depth + 1) for child in node]
    return found


def height(tree: Tree) -> int:
    """Return the most additions that a term passes."""
    return max(depths(tree).values())


def width(tree: Tree) -> int:
    """Return how many the widest node adds at once; 0 for a single term."""
    widest, pending = 0, [tree]
    while pending:
        node = pending.pop()
        if not isinstance(node, int):
            widest = max(widest, len(node))
            pending += node
    return widest


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
    if n == 1:
        return "one term"
    if width(tree) >= WIDE:
        return f"fused: up to {width(tree)} terms at once, height {high}"
    if high == n - 1:
        return f"serial, height {high}"
    if high == (n - 1).bit_length():
        return f"balanced tree, height {high}"
    number, size = parts(tree)
    if number > 1:
        inner = tree
        for _ in range(number - 1):
            assert not isinstance(inner, int)
            inner = max(inner, key=size_of)
        each = described(inner) if parts(inner)[0] == 1 else f"height {height(inner)}"
        return f"{number} parts of {size} ({each}), height {high}"
    return f"tree of height {high}"


def summed(
    tree: Tree, terms: Sequence[float], add: Callable[[float, float], float]
) -> float:
    """Return the sum of terms in the order of a tree of additions of two."""
    done: list[float] = []
    pending: list[tuple[Tree, bool]] = [(tree, False)]
    while pending:
        node, ready = pending.pop()
        if isinstance(node, int):
            done.append(terms[node])
        elif ready:
            right, left = done.pop(), done.pop()
            done.append(add(left, right))
        else:
            left_tree, right_tree = node
            pending += [(node, True), (right_tree, False), (left_tree, False)]
    return done[0]
