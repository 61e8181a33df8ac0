"""Orders of additions, drawn: as an outline in text, and as a tree in SVG."""

from collections.abc import Sequence
from html import escape
from itertools import pairwise
from typing import Final

from kfuzz.core.arithmetic_facts import Tree
from kfuzz.probe.tree import height, leaves, size_of

# Steps of a sum that are told one by one; longer ones are cut in the middle.
_STEPS: Final = 6
_INDENT: Final = "  "
# Of a drawing, in pixels: a term, a level, and what all levels may take.
_TERM: Final = 14.0
_LEVEL: Final = 18.0
_HIGHEST: Final = 480.0
_WIDEST: Final = 4000.0
_MARGIN: Final = 16.0
_TITLE: Final = 22.0


def outline(tree: Tree, *, indent: str = "") -> list[str]:
    """Return an order as lines: what is added at once, in pairs, in turn."""
    if isinstance(tree, int):
        return [f"{indent}{tree}"]
    terms = leaves(tree)
    named = ranged(terms)
    steps = _steps(tree)
    if all(isinstance(child, int) for child in tree):
        return [f"{indent}{named} at once" if len(tree) > 2 else f"{indent}{named}"]
    if all(len(s) == 1 and isinstance(s[0], int) for s in steps):
        return [f"{indent}{named} in turn"]
    if _is_paired(tree):
        return [f"{indent}{named} in pairs"]
    lines = [f"{indent}{len(terms)} terms, in turn:"]
    shown: list[Sequence[Tree] | None] = list(steps)
    if len(shown) > _STEPS:
        shown = [*shown[: _STEPS - 2], None, shown[-1]]
    for step in shown:
        inner = indent + _INDENT
        if step is None:
            lines.append(f"{inner}… ({len(steps)} steps)")
        elif len(step) == 1:
            lines += outline(step[0], indent=inner)
        elif all(isinstance(part, int) for part in step):
            found = [part for part in step if isinstance(part, int)]
            lines.append(f"{inner}{ranged(found)} at once")
        else:
            lines.append(f"{inner}at once:")
            for part in step:
                lines += outline(part, indent=inner + _INDENT)
    return lines


def ranged(terms: Sequence[int]) -> str:
    """Return numbers of terms, evenly spaced ones as a range."""
    if len(terms) < 3:
        return " + ".join(map(str, terms))
    gaps = {b - a for a, b in pairwise(terms)}
    if gaps == {1}:
        return f"{terms[0]} to {terms[-1]}"
    if len(gaps) == 1 and terms[1] > terms[0]:
        return f"{terms[0]}, {terms[1]}, … {terms[-1]}"
    shown = ", ".join(map(str, terms[:4]))
    return f"{shown}, … ({len(terms)} terms)" if len(terms) > 4 else shown


def _steps(tree: Tree) -> list[Sequence[Tree]]:
    """Return what is added in turn: the first part, then what each step adds to it."""
    found: list[Sequence[Tree]] = []
    node = tree
    while not isinstance(node, int):
        if found and len(node) > 2 and all(isinstance(part, int) for part in node):
            break  # all at once
        first = max(node, key=size_of)
        place = node.index(first)
        found.append(node[:place] + node[place + 1 :])
        node = first
        # It goes on in a sum of more such steps, no equal of what is added.
        if any(size_of(part) >= size_of(node) for part in found[-1]):
            break
    return [[node], *found[::-1]]


def _is_paired(tree: Tree) -> bool:
    """Whether every node adds two halves."""
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, int):
            continue
        if len(node) != 2 or abs(size_of(node[0]) - size_of(node[1])) > 1:
            return False
        pending += node
    return True


def svg(drawn: Sequence[tuple[str, Tree]]) -> str:
    """Return trees with their titles, one below the other, as a document of SVG.

    Terms stand at the bottom in the order of the drawing; a node that adds more than
    two at once is filled.
    """
    bodies, top, wide = [], _MARGIN, 0.0
    for title, tree in drawn:
        body, width, high = _drawing(title, tree, top)
        bodies.append(body)
        wide, top = max(wide, width), top + high + 2 * _MARGIN
    size = f'width="{wide:.0f}" height="{top:.0f}" viewBox="0 0 {wide:.0f} {top:.0f}"'
    style = (
        "text{font:12px sans-serif;fill:#222}path{stroke:#555;fill:none}"
        "circle{fill:#fff;stroke:#555}circle.fused{fill:#c60}"
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>{escape('; '.join(title for title, _ in drawn))}</title>",
        f"<style>{style}</style>",
        '<rect width="100%" height="100%" fill="#fff"/>',
        *bodies,
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _drawing(title: str, tree: Tree, top: float) -> tuple[str, float, float]:
    """Return the elements of one tree, its width and its height."""
    order = leaves(tree)
    step = min(_TERM, _WIDEST / max(len(order), 1))
    levels = max(height(tree), 1)
    level = min(_LEVEL, _HIGHEST / levels)
    base = top + _TITLE + levels * level
    at = {leaf: _MARGIN + (i + 0.5) * step for i, leaf in enumerate(order)}
    lines, nodes = [], []
    places: dict[int, tuple[float, float]] = {}
    # Each node lies one level above its highest child.
    every, pending = [], [tree]
    while pending:
        node = pending.pop()
        every.append(node)
        pending += () if isinstance(node, int) else node
    for node in reversed(every):  # children before their parents
        if isinstance(node, int):
            places[id(node)] = (at[node], base)
            continue
        below = [(at[c], base) if isinstance(c, int) else places[id(c)] for c in node]
        x = sum(px for px, _ in below) / len(below)
        y = min(py for _, py in below) - level
        places[id(node)] = (x, y)
        lines += [f"M{x:.1f} {y:.1f}H{px:.1f}V{py:.1f}" for px, py in below]
        kind = ' class="fused"' if len(node) > 2 else ""
        nodes.append(f'<circle{kind} cx="{x:.1f}" cy="{y:.1f}" r="3"/>')
    labels = []
    if step >= _TERM:
        labels = [
            f'<text x="{x:.1f}" y="{base + 13:.1f}" text-anchor="middle" '
            f'style="font-size:8px">{leaf}</text>'
            for leaf, x in at.items()
        ]
    body = "\n".join(
        [
            f'<text x="{_MARGIN}" y="{top + 12:.1f}">{escape(title)}</text>',
            f'<path d="{"".join(lines)}"/>',
            *nodes,
            *labels,
        ]
    )
    width = max(2 * _MARGIN + len(order) * step, 2 * _MARGIN + 7.0 * len(title))
    return body, width, _TITLE + levels * level
