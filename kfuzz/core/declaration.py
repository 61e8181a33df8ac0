"""How long sums are kept: names and constructors of the accumulation models.

A declaration holds the canonical text, "float32" or "splitk(4, bfloat16)"; what the
models mean for an error bound is `kfuzz.numerics.accumulation.Accumulation`.
"""

import ast
import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, get_args, get_origin

from kfuzz.core.dtypes import DTYPES
from kfuzz.core.errors import BindingError, suggestion

if TYPE_CHECKING:
    import torch


NAMED: Final = (
    "float64", "float32", "tf32", "tf32x3", "float16", "bfloat16",
    "any_tensor_core", "compensated",
)  # fmt: skip
# Formats in which parts of a sum are stored and added.
AS_REFERENCE: Final = "as_reference"
"""The algorithm of a kernel that takes the very steps of its oracle."""
STORED: Final = ("float64", "float32", "float16", "bfloat16")
# No tree is higher, and no kernel splits a sum into more parts.
MOST: Final = 1 << 24
_SHAPES: Final = {
    "blocked": "blocked(h), h the height of the tree",
    "splitk": "splitk(n, dtype), n parts stored in dtype",
    "atomic": "atomic(dtype), terms added in dtype",
}
_CALL: Final = re.compile(r"\s*(\w+)\s*\(([^()]*)\)\s*\Z", re.ASCII)


@dataclass(frozen=True)
class Accumulator:
    """One accumulation model; `str` gives the canonical text.

    Attributes:
        model: one of `NAMED`, or "blocked", "splitk", "atomic".
        count: height of the tree, or number of parts; 0 where there is neither.
        dtype: format in which parts are stored; "" where none is.
    """

    model: str
    count: int = 0
    dtype: str = ""

    def __str__(self) -> str:
        """Return the text that a declaration holds."""
        arguments = ", ".join(filter(None, (str(self.count or ""), self.dtype)))
        return f"{self.model}({arguments})" if arguments else self.model

    @classmethod
    def parse(cls, claim: object, *, where: str = "") -> "Accumulator":
        """Return the model that a claim names.

        Args:
            claim: an `Accumulator`, or its text.
            where: the kernel concerned, for error messages.

        Raises:
            BindingError: if it names no model, or one with wrong arguments.
        """
        text = str(claim)
        if text in NAMED:
            return cls(text)
        call = _CALL.match(text)
        what = f"accumulator={claim!r:.60}"
        if call is None or call[1] not in _SHAPES:
            fix = _suggested(call[1] if call else text)
            raise BindingError(f"{what} is not a declaration", where=where, fix=fix)
        given = [a.strip() for a in call[2].split(",")]
        try:
            match call[1], given:
                case "blocked", [height]:
                    return blocked(int(height))
                case "splitk", [parts, dtype]:
                    return splitk(int(parts), dtype)
                case "atomic", [dtype]:
                    return atomic(dtype)
                case _:
                    raise ValueError
        except BindingError as error:
            raise BindingError(error.what, where=where, fix=error.fix) from None
        except ValueError:
            fix = f"write {_SHAPES[call[1]]}"
            raise BindingError(
                f"{what} has wrong arguments", where=where, fix=fix
            ) from None


def blocked(height: int) -> Accumulator:
    """Sums in float32 along a tree in which a term meets `height` additions at most.

    Serial in blocks of b, then a tree over K/b blocks: b + ceil(log2(K/b)).

    Raises:
        BindingError: if the height is no positive integer.
    """
    return Accumulator("blocked", _counted("blocked", height))


def splitk(parts: int, dtype: str) -> Accumulator:
    """Sums in float32 over `parts` parts, each stored in `dtype` and added there.

    Raises:
        BindingError: if the number is no positive integer, or no part is stored
            in such a format.
    """
    return Accumulator("splitk", _counted("splitk", parts), _stored("splitk", dtype))


def atomic(dtype: str) -> Accumulator:
    """Sums whose terms, or partial sums, are added to memory of `dtype`.

    Raises:
        BindingError: if nothing is added in such a format.
    """
    return Accumulator("atomic", dtype=_stored("atomic", dtype))


def _counted(model: str, count: object) -> int:
    if type(count) is not int or not 1 <= count <= MOST:
        what = f"{model}: {count!r:.40} is no number from 1 to {MOST}"
        raise BindingError(what, fix=f"write {_SHAPES[model]}")
    return count


def _stored(model: str, dtype: object) -> str:
    name = str(dtype).removeprefix("torch.")
    if name not in STORED:
        what = f"{model}: sums are not stored in {name!r:.40}"
        raise BindingError(what, fix=suggestion(name, STORED))
    return name


def _suggested(claim: str) -> str:
    short = re.fullmatch(r"(b?)(?:fp|f|float)(\d+)", claim.lower().replace("_", ""))
    if short is not None:
        claim = f"{'bfloat' if short[1] else 'float'}{short[2]}"
    near = suggestion(claim, (*NAMED, *_SHAPES))
    return near + "; with arguments: " + ", ".join(_SHAPES.values())


# Restrictions on named dimensions: parsed to a whitelist, never evaluated as code.

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
        example = 'write for example shape_class="N % 16 == 0 and N <= 4096"'
        if not isinstance(expression, str) or len(expression) > MAX_LENGTH:
            what = f"shape_class={expression!r:.60} is not a short expression"
            raise BindingError(what, where=where, fix=example)
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
                what = f"shape_class {expression!r} may not hold {shown!r}"
                fix = (
                    "allowed: integers, dimension names, + - * // %, comparisons, and, "
                    "or, not"
                )
                raise BindingError(what, where=where, fix=fix)
        if not isinstance(tree.body, ast.Compare | ast.BoolOp | ast.UnaryOp):
            what = f"shape_class {expression!r} is no condition"
            raise BindingError(what, where=where, fix=example)
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

    def accepts(self, dims: Mapping[str, int]) -> bool:
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
        are never admitted, sizes inside need `accepts`.

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


# What a kernel claims for itself; the judge holds it to nothing else.

# A page; no vector load or bulk copy asks for more.
MAX_ALIGNMENT: Final = 4096

INDEX_DTYPES: Final = ("int64", "int32")
INT32_ELEMENTS: Final = 1 << 31
"""From here on a 32-bit signed offset has wrapped."""
_LITERAL: Final[object] = Literal

Configuration = Mapping[str, bool | int | float | str]
"""Keywords of its own that an implementation is called with."""


class Claims(TypedDict, total=False):
    """The declarations as keywords of `kfuzz.kernel`: what may be written for each.

    What each means, and its default, stands in `Declaration`; several names are given
    as a sequence or a set, one also alone. A dtype may be torch's own.
    """

    dtypes: "str | torch.dtype | Collection[str | torch.dtype]"
    dims: int | Collection[int] | None
    ranks: int | Collection[int] | None
    layouts: Literal["any", "inner_contiguous", "contiguous"]
    offsets: Literal["int64", "int32"]
    alignment: int
    shape_class: str | ShapeClass | None
    accumulator: str | Accumulator
    intermediates: Literal["float32", "output"]
    algorithm: str
    approx: bool
    overflow: Literal["inf", "nan", "saturate"]
    store: Literal["rne", "rz", "stochastic"]
    subnormals: Literal["preserve", "flush", "any"]
    determinism: Literal["bitwise", "run_to_run", "none"]
    batch_invariant: bool
    configs: Sequence[Configuration]
    nonfinite: Literal["propagate", "mask", "raise", "undefined"]
    masked_row: Literal["zero", "nan", "either"]
    causal_alignment: Literal["top_left", "bottom_right"]
    ties: Literal["any", "first"]
    inplace: str | Collection[str]
    out: str | Collection[str]
    own_kernels_only: bool
    out_of_bounds: Literal["raise", "clamp", "zero", "undefined"]
    index_dtypes: "str | torch.dtype | Collection[str | torch.dtype]"


_WHOLE: Final = {
    "dims": "for the last dim only: dims={-1}",
    "ranks": "for tensors of two and three dimensions: ranks={2, 3}",
}
_HINTS: Final[Mapping[str, Any]] = Claims.__annotations__
_CHOICES: Final[dict[str, tuple[str, ...]]] = {
    name: get_args(hint)
    for name, hint in _HINTS.items()
    if get_origin(hint) is _LITERAL
}


@dataclass(frozen=True)
class Declaration:
    """A kernel's claims, each with the default of DESIGN: see contracts/README.md.

    Attributes:
        dtypes: floating dtypes accepted for the data arguments.
        dims: values accepted for the operator's `dim`; None means every dim.
        ranks: ranks accepted of the tensors with "*", of those with most named
            dimensions; None means all that the operator has.
        layouts: "any", "inner_contiguous" (stride 1 in the last dim, no
            overlap) or "contiguous".
        offsets: "int64", or "int32" where no element of an argument lies more than
            2^31 - 1 elements from the first: such shapes and strides are not drawn.
        alignment: bytes to which an unsliced argument is aligned.
        shape_class: restriction on named dimensions, or None.
        accumulator: how long sums are kept, as `kfuzz.core.declaration`
            writes it.
        intermediates: "float32", or "output" where intermediate results are
            rounded to the output's format.
        algorithm: one of the operator's named algorithms; "" is its default class.
        approx: whether fast approximations of elementary functions are used.
        overflow: what a result beyond the output's range becomes.
        store: rounding of the final store; "stochastic" may give either neighbour.
        subnormals: whether subnormal numbers keep their value.
        determinism: what repeating a call promises.
        batch_invariant: whether rows have the same bits in every batch.
        configs: keywords of its own that the implementation is called with, a
            mapping for each configuration; none where it has no such keywords.
        nonfinite: "propagate" as IEEE 754 does; "mask", where NaN and infinities
            in the data count as 0; "raise" an exception; or "undefined".
        masked_row: what attention gives where every key is masked.
        causal_alignment: whether the causal mask leaves the first query the
            first key, or the last query all keys.
        ties: which of equal elements an index names: "any" of them, or the
            "first", and where several are named each in its turn.
        inplace: parameters that the kernel overwrites with its result; where there
            are several results, those that have the names of outputs.
        out: outputs whose memory the caller gives, each where the implementation
            has a parameter of that name; none, or all that are not written in place.
        own_kernels_only: whether none of torch's operators has a part in the
            result.
        out_of_bounds: what an index that is not below its bound does: "raise"
            an exception, "clamp" to the nearest valid one, give "zero", or
            "undefined".
        index_dtypes: integer dtypes accepted for the index arguments.
    """

    dtypes: tuple[str, ...] = ("float32", "float16", "bfloat16")
    dims: tuple[int, ...] | None = None
    layouts: str = "any"
    alignment: int = 16
    shape_class: ShapeClass | None = None
    accumulator: str = "float32"
    intermediates: str = "float32"
    algorithm: str = ""
    approx: bool = False
    overflow: str = "inf"
    store: str = "rne"
    subnormals: str = "any"
    determinism: str = "run_to_run"
    batch_invariant: bool = False
    configs: tuple[Mapping[str, bool | int | float | str], ...] = field(
        default=(), hash=False
    )
    nonfinite: str = "propagate"
    masked_row: str = "either"
    causal_alignment: str = "top_left"
    ties: str = "first"
    inplace: tuple[str, ...] = ()
    out: tuple[str, ...] = ()
    own_kernels_only: bool = False
    out_of_bounds: str = "raise"
    index_dtypes: tuple[str, ...] = ("int64",)
    offsets: str = "int64"
    ranks: tuple[int, ...] | None = None

    def reaches(self, span: int) -> bool:
        """Whether a view of so many elements, first to last, is within its offsets."""
        return self.offsets != "int32" or span <= INT32_ELEMENTS

    def config(self, number: int) -> Mapping[str, bool | int | float | str]:
        """Return the keywords of one configuration, modulo how many there are."""
        return self.configs[number % len(self.configs)] if self.configs else {}

    @property
    def promises_bits(self) -> bool:
        """Whether it says anything of the bits that equal calls give."""
        return self.determinism != "none" and self.store != "stochastic"

    def claims(self) -> dict[str, Any]:
        """Return what differs from the defaults, by name."""
        values, default = vars(self), Declaration()
        return {n: v for n, v in values.items() if v != getattr(default, n)}

    def declare(self, where: str, **claims: Any) -> "Declaration":
        """Return a copy with the given claims checked and applied.

        Args:
            where: the kernel concerned, for error messages.
            claims: keywords of `kfuzz.kernel`.

        Raises:
            BindingError: on an unknown keyword or value.
        """
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        for key, value in claims.items():
            if key not in values:
                what, fix = f"unknown declaration {key!r}", suggestion(key, values)
                raise BindingError(what, where=where, fix=fix)
            values[key] = _checked(key, value, where)
        return Declaration(**values)


def _checked(key: str, value: Any, where: str) -> Any:
    def wrong(what: str, fix: str = "") -> BindingError:
        return BindingError(f"{key}={value!r:.80} is not {what}", where=where, fix=fix)

    if key in _CHOICES:
        if value not in _CHOICES[key]:
            raise wrong("a declaration", suggestion(str(value), _CHOICES[key]))
        return value
    if key in _WHOLE:
        numbers = (value,) if isinstance(value, int) else value
        if numbers is None:
            return None
        if not numbers or not all(type(d) is int for d in numbers):
            raise wrong("a set of integers", _WHOLE[key])
        return tuple(sorted(set(numbers), reverse=key == "dims"))
    match key:
        case "accumulator":
            return str(Accumulator.parse(value, where=where))
        case "dtypes":
            floats = [n for n, d in DTYPES.items() if d.kind == "float"]
            return _dtypes(key, value, floats, "a floating dtype", where)
        case "index_dtypes":
            return _dtypes(key, value, INDEX_DTYPES, "a dtype of indices", where)
        case "shape_class":
            if value is None or isinstance(value, ShapeClass):
                return value
            return ShapeClass.parse(value, where=where)
        case "alignment":
            good = isinstance(value, int) and 1 <= value <= MAX_ALIGNMENT
            if not good or value & (value - 1):
                raise wrong(f"a power of two from 1 to {MAX_ALIGNMENT} bytes")
        case "configs":
            if not isinstance(value, list | tuple) or not all(map(_is_config, value)):
                fix = 'for example configs=({"BLOCK": 64}, {"BLOCK": 128})'
                raise wrong("a tuple of keyword mappings", fix)
            if any(c in value[:i] for i, c in enumerate(value)):
                raise BindingError("configs holds one configuration twice", where=where)
            return tuple(map(dict, value))
        case "approx" | "own_kernels_only" | "batch_invariant":
            if not isinstance(value, bool):
                raise wrong("True or False")
        case "inplace" | "out":
            names = tuple(value) if isinstance(value, list | tuple | set) else (value,)
            if not all(isinstance(n, str) for n in names):
                what = "parameter" if key == "inplace" else "output"
                raise wrong(f"a tuple of {what} names")
            return names
        case _ if not isinstance(value, str):
            raise wrong("a string")
    return value


def _is_config(config: Any) -> bool:
    plain = (bool, int, float, str)
    return (isinstance(config, Mapping) and bool(config)) and all(
        isinstance(k, str) and isinstance(v, plain) for k, v in config.items()
    )


def _dtypes(
    key: str, value: Any, valid: Sequence[str], what: str, where: str
) -> tuple[str, ...]:
    names = tuple(value) if isinstance(value, list | tuple | set) else (value,)
    names = tuple(str(n).removeprefix("torch.") for n in names)
    for name in names:
        if name not in valid:
            fix = suggestion(name, valid)
            raise BindingError(f"{key}: {name!r} is not {what}", where=where, fix=fix)
    if not names:
        raise BindingError(f"{key} is empty", where=where)
    return tuple(n for n in valid if n in names)
