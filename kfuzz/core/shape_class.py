"""Restrictions on named dimensions: parsed to a whitelist, never evaluated as code."""

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from kfuzz.core.errors import BindingError

_ALLOWED: Final = (
    ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub,
    ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.Compare,
    ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Name, ast.Load,
    ast.Constant,
)  # fmt: skip
_OPERATIONS: Final[dict[type[ast.AST], Callable[[int, int], int]]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Eq: operator.eq,
    ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
# Longer than any sensible restriction; keeps a hostile one from deep recursion.
MAX_LENGTH: Final = 500


@dataclass(frozen=True)
class ShapeClass:
    """A predicate over dimension sizes, such as "N % 16 == 0 and N <= 4096".

    Attributes:
        expression: the source text.
    """

    expression: str

    @classmethod
    def parse(cls, expression: object, *, where: str = "") -> "ShapeClass":
        """Check and wrap an expression.

        Raises:
            BindingError: on anything but integers, dimension names, + − * // %,
                comparisons and and/or/not.
        """
        if not isinstance(expression, str) or len(expression) > MAX_LENGTH:
            raise BindingError(
                f"shape_class={expression!r:.60} is not a short expression",
                where=where,
                fix='write for example shape_class="N % 16 == 0 and N <= 4096"',
            )
        try:
            tree = ast.parse(expression.strip(), mode="eval")
        except (SyntaxError, ValueError, RecursionError) as error:
            raise BindingError(
                f"shape_class {expression!r} does not parse: {error}", where=where
            ) from None
        for node in ast.walk(tree):
            integer = not isinstance(node, ast.Constant) or type(node.value) is int
            if not isinstance(node, _ALLOWED) or not integer:
                # Operators alone have no text of their own.
                shown = ast.unparse(node) or type(node).__name__
                raise BindingError(
                    f"shape_class {expression!r} may not hold {shown!r}",
                    where=where,
                    fix="allowed: integers, dimension names, + - * // %, "
                    "comparisons, and, or, not",
                )
        if not isinstance(tree.body, ast.Compare | ast.BoolOp | ast.UnaryOp):
            raise BindingError(
                f"shape_class {expression!r} is no condition",
                where=where,
                fix='write for example shape_class="N % 16 == 0 and N <= 4096"',
            )
        return cls(expression.strip())

    def both(self, other: "ShapeClass | None") -> "ShapeClass":
        """Return the restriction that demands this one and, if given, another."""
        if other is None:
            return self
        return ShapeClass(f"({self.expression}) and ({other.expression})")

    @cached_property
    def _body(self) -> ast.expr:
        """The expression, parsed."""
        return ast.parse(self.expression, mode="eval").body

    @cached_property
    def names(self) -> frozenset[str]:
        """The dimension names that the expression speaks of."""
        return _names(self._body)

    def admits(self, dims: Mapping[str, int]) -> bool:
        """Whether the sizes satisfy the restriction.

        Raises:
            BindingError: if a named dimension is not among `dims`, or a
                division by zero occurs.
        """
        try:
            return bool(_evaluate(self._body, dims))
        except KeyError as error:
            raise BindingError(
                f"shape_class names the dimension {error.args[0]!r}",
                fix=f"the operator has: {', '.join(sorted(dims)) or 'none'}",
            ) from None
        except ZeroDivisionError:
            raise BindingError(
                f"shape_class {self.expression!r} divides by zero"
            ) from None

    @cached_property
    def _equalities(self) -> tuple[tuple[str, ast.expr], ...]:
        """The terms at the top that are a name, "==" and what it is to be."""
        found = []
        for term in _conjuncts(self._body):
            match term:
                case ast.Compare(ast.Name(name), [ast.Eq()], [right]):
                    found.append((name, right))
                case ast.Compare(left, [ast.Eq()], [ast.Name(name)]):
                    if not isinstance(left, ast.Constant):
                        found.append((name, left))
        return tuple(found)

    @property
    def computed(self) -> frozenset[str]:
        """The names that stand alone on a side of an equality: "E == D // 2"."""
        return frozenset(name for name, _ in self._equalities)

    @cached_property
    def multiples(self) -> tuple[tuple[str, str], ...]:
        """The pairs of names of which one must be a multiple of the other."""
        found = []
        for term in _conjuncts(self._body):
            match term:
                case ast.Compare(
                    ast.BinOp(ast.Name(name), ast.Mod(), ast.Name(divisor)),
                    [ast.Eq()],
                    [ast.Constant(0)],
                ):
                    found.append((name, divisor))
        return tuple(found)

    def settled(
        self, dims: Mapping[str, int], scalars: Mapping[str, int]
    ) -> dict[str, int]:
        """Return the sizes, those of `computed` names as they follow from the rest.

        Args:
            dims: sizes by name.
            scalars: what else the expression may name; never changed.
        """
        made = dict(dims)
        for name, right in self._equalities * 2:  # one may follow from another
            if name in made:
                try:
                    made[name] = max(_evaluate(right, {**scalars, **made}), 0)
                except (KeyError, ZeroDivisionError):
                    continue
        return made

    def contradicts(self, scalars: Mapping[str, int]) -> bool:
        """Whether no sizes satisfy it: a term at the top that is of scalars alone."""
        terms = (t for t in _conjuncts(self._body) if _names(t) <= set(scalars))
        try:
            return not all(_evaluate(term, scalars) for term in terms)
        except ZeroDivisionError:
            return True

    def bounds(
        self, name: str, scalars: Mapping[str, int] | None = None
    ) -> tuple[int, int | None, int, int]:
        """Return (least, greatest, modulus, remainder) demanded of one dimension.

        They are what the terms of the top-level conjunction say: sizes outside
        are never admitted, sizes inside need `admits`.

        Args:
            name: the dimension.
            scalars: values of scalars that may be a modulus.
        """
        least, greatest, modulus, remainder = 0, None, 1, 0
        for term in _conjuncts(self._body):
            if not isinstance(term, ast.Compare):
                continue
            operands = [term.left, *term.comparators]
            for left, op, right in zip(operands, term.ops, operands[1:], strict=False):
                mod = _modulus(left, name, scalars or {})
                if mod and isinstance(op, ast.Eq) and isinstance(right, ast.Constant):
                    modulus, remainder = mod, int(str(right.value)) % mod
                    continue
                low, high = _interval(left, op, right, name)
                least = max(least, low)
                if high is not None:
                    greatest = high if greatest is None else min(greatest, high)
        return least, greatest, modulus, remainder


def _names(node: ast.expr) -> frozenset[str]:
    return frozenset(n.id for n in ast.walk(node) if isinstance(n, ast.Name))


def _conjuncts(node: ast.expr) -> list[ast.expr]:
    """Return the terms that must all hold."""
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        return [term for value in node.values for term in _conjuncts(value)]
    return [node]


def _evaluate(node: ast.expr, dims: Mapping[str, int]) -> int:
    if isinstance(node, ast.Constant):
        return int(str(node.value))
    if isinstance(node, ast.Name):
        return dims[node.id]
    if isinstance(node, ast.UnaryOp):
        value = _evaluate(node.operand, dims)
        return -value if isinstance(node.op, ast.USub) else int(not value)
    if isinstance(node, ast.BoolOp):
        wanted = isinstance(node.op, ast.Or)
        for term in node.values:
            if bool(_evaluate(term, dims)) == wanted:
                return int(wanted)
        return int(not wanted)
    if isinstance(node, ast.BinOp):
        a, b = _evaluate(node.left, dims), _evaluate(node.right, dims)
        return _OPERATIONS[type(node.op)](a, b)
    assert isinstance(node, ast.Compare)
    values = [_evaluate(n, dims) for n in (node.left, *node.comparators)]
    pairs = zip(values, node.ops, values[1:], strict=False)
    return int(all(_OPERATIONS[type(op)](a, b) for a, op, b in pairs))


def _modulus(node: ast.expr, name: str, scalars: Mapping[str, int]) -> int:
    match node:
        case ast.BinOp(ast.Name(left), ast.Mod(), ast.Constant(value)) if left == name:
            return int(str(value))
        case ast.BinOp(ast.Name(left), ast.Mod(), ast.Name(right)) if left == name:
            return max(scalars.get(right, 0), 0)
    return 0


def _interval(
    left: ast.expr, op: ast.cmpop, right: ast.expr, name: str
) -> tuple[int, int | None]:
    """Return the (least, greatest) that `left op right` demands of `name`."""
    mirror: dict[type[ast.cmpop], ast.cmpop] = {
        ast.Lt: ast.Gt(), ast.LtE: ast.GtE(), ast.Gt: ast.Lt(), ast.GtE: ast.LtE(),
        ast.Eq: ast.Eq(),
    }  # fmt: skip
    if isinstance(right, ast.Name) and right.id == name and type(op) in mirror:
        left, right, op = right, left, mirror[type(op)]
    if not (isinstance(left, ast.Name) and left.id == name):
        return 0, None
    if not isinstance(right, ast.Constant):
        return 0, None
    bound = int(str(right.value))
    ends: dict[type[ast.cmpop], tuple[int, int | None]] = {
        ast.Lt: (0, bound - 1), ast.LtE: (0, bound), ast.Gt: (bound + 1, None),
        ast.GtE: (bound, None), ast.Eq: (bound, bound),
    }  # fmt: skip
    return ends.get(type(op), (0, None))
