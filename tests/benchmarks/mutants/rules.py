"""What a rule of the mutator is, and what rules are told of a place in the source."""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from typing import Final, TypeGuard

# Nodes of the source, each with the text that takes its place.
Edit = tuple[tuple[ast.AST, str], ...]
BOTH: Final = ("interpret", "cuda")
GPU: Final = ("cuda",)
INTERPRETER: Final = ("interpret",)

# Names that correct kernels have for which elements there are.
_MASKS: Final = frozenset(
    {"mask", "in_m", "in_n", "in_s", "in_d", "in_t", "kept", "picked", "within", "seen"}
)
# Names of places in memory and in tensors.
_PLACES: Final = frozenset(
    {
        "offs", "offs_m", "offs_n", "offs_k", "offs_s", "offs_t", "offs_d", "rows",
        "row", "lanes", "start", "pid", "tile_m", "tile_n", "batch", "head", "group",
        "channel", "i0", "i1", "i2", "i3", "index", "target", "at", "nan_at",
    }
)  # fmt: skip


@dataclass(frozen=True)
class Site:
    """A node of a correct kernel.

    Attributes:
        node: the node.
        above: what holds it, the nearest first.
        function: that it stands in.
        kernel: whether Triton compiles that function.
        text: of the file.
    """

    node: ast.AST
    above: tuple[ast.AST, ...]
    function: ast.FunctionDef
    kernel: bool
    text: str = field(repr=False)

    def of(self, node: ast.AST) -> str:
        """Return a node as it is written."""
        start, end = span(self.text, node)
        return self.text.encode()[start:end].decode()

    def within(self, node: ast.AST) -> str:
        """Return an expression as it is written, fit to stand as an operand."""
        text = self.of(node)
        simple = ast.Name | ast.Attribute | ast.Call | ast.Constant | ast.Subscript
        return text if isinstance(node, simple) else f"({text})"

    @property
    def parent(self) -> ast.AST:
        """What holds the node."""
        return self.above[0]

    @property
    def in_loop(self) -> bool:
        """Whether the node stands in a loop over tiles."""
        return any(isinstance(a, ast.For) for a in self.above)

    @property
    def is_mask(self) -> bool:
        """Whether the node is part of what says which elements there are."""
        for outer in self.above:
            if isinstance(outer, ast.keyword):
                return outer.arg == "mask"
            if isinstance(outer, ast.Assign):
                return bool(_MASKS & {n for t in outer.targets for n in names(t)})
        return False

    @property
    def is_place(self) -> bool:
        """Whether the node is arithmetic of places and addresses, not of values."""
        return any(
            n in _PLACES or n.startswith("stride_") or n.endswith(("_ptr", "_tile"))
            for n in _computed_with(self.node)
        )


def span(text: str, node: ast.AST) -> tuple[int, int]:
    """Return where a node begins and ends, in bytes of the file."""
    assert isinstance(node, ast.expr | ast.stmt | ast.keyword | ast.arg)
    starts = _starts(text)
    end_line, end = node.end_lineno or node.lineno, node.end_col_offset or 0
    return starts[node.lineno - 1] + node.col_offset, starts[end_line - 1] + end


@cache
def _starts(text: str) -> tuple[int, ...]:
    """Return where each line begins, in bytes."""
    return (0, *accumulate(len(line) for line in text.encode().splitlines(True)))


def _computed_with(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node computes with; from where it loads is none of it."""
    if is_call(node, "tl.load"):
        return
    if is_call(node, "tl.program_id", "tl.arange"):
        yield "offs"
    if isinstance(node, ast.Name):
        yield node.id
    for each in ast.iter_child_nodes(node):
        yield from _computed_with(each)


def names(node: ast.AST) -> set[str]:
    """Return the names in a node."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def is_call(node: ast.AST, *called: str) -> TypeGuard[ast.Call]:
    """Whether a node calls one of some functions, as "tl.load" or as ".to"."""
    if not isinstance(node, ast.Call):
        return False
    path = ast.unparse(node.func)
    attribute = f".{node.func.attr}" if isinstance(node.func, ast.Attribute) else ""
    return path in called or attribute in called


def is_number(node: ast.AST, *values: float) -> TypeGuard[ast.Constant]:
    """Whether a node is one of some numbers as they are written."""
    return (
        isinstance(node, ast.Constant)
        and type(node.value) in (int, float)
        and (not values or node.value in values)
    )


def is_infinity(node: ast.AST) -> bool:
    """Whether a node is float("inf") or float("-inf")."""
    if not is_call(node, "float") or not node.args:
        return False
    given = node.args[0]
    return isinstance(given, ast.Constant) and given.value in ("inf", "-inf")


def kernel_call(site: Site, *called: str) -> ast.Call | None:
    """Return the site's node if it is a call in a kernel of one of some functions."""
    node = site.node
    return node if site.kernel and is_call(node, *called) else None


def binary(site: Site, *operators: type[ast.operator]) -> ast.BinOp | None:
    """Return the site's node if it is in a kernel and has one of some operators."""
    node = site.node
    if site.kernel and isinstance(node, ast.BinOp) and isinstance(node.op, operators):
        return node
    return None


def cast(site: Site) -> tuple[ast.Call, ast.expr, str] | None:
    """Return a cast in a kernel, what it casts, and to what."""
    node = kernel_call(site, ".to")
    if node is None or len(node.args) != 1 or not isinstance(node.func, ast.Attribute):
        return None
    return node, node.func.value, site.of(node.args[0])


def owner(node: ast.Call) -> ast.expr:
    """Return that of which a method is called."""
    assert isinstance(node.func, ast.Attribute)
    return node.func.value


def keyword(node: ast.Call, name: str) -> ast.keyword | None:
    """Return an argument of a call that is given by name."""
    return next((k for k in node.keywords if k.arg == name), None)


def without(site: Site, node: ast.Call, *dropped: str) -> str:
    """Return a call without some arguments that are given by name."""
    kept = [site.of(a) for a in node.args]
    kept += [site.of(k) for k in node.keywords if k.arg not in dropped]
    return f"{site.of(node.func)}({', '.join(kept)})"


Rewrites = Callable[[Site], Iterator[Edit]]


@dataclass(frozen=True)
class Rule:
    """One way in which kernels go wrong.

    Attributes:
        name: of the rule.
        family: under which it is counted.
        says: what it does, in a line.
        rewrites: its edits of a site.
        backends: where what it changes can be seen at all.
    """

    name: str
    family: str
    says: str
    rewrites: Rewrites
    backends: tuple[str, ...] = BOTH


class Book:
    """Rules of one family, in the order in which they are written down.

    Args:
        family: its name.
    """

    def __init__(self, family: str) -> None:
        self.family = family
        self.rules: list[Rule] = []

    def rule(
        self, name: str, says: str, *, backends: tuple[str, ...] = BOTH
    ) -> Callable[[Rewrites], Rewrites]:
        """Return a decorator that adds a rule of that name."""

        def add(rewrites: Rewrites) -> Rewrites:
            self.rules.append(Rule(name, self.family, says, rewrites, backends))
            return rewrites

        return add
