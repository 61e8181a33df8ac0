"""Rows of the table: what is said of an overload beyond its schema.

A row names the overload and what its tensors look like. Everything else comes from the
schema: names, order and kinds of the arguments, defaults, and usual values of scalars
by their names (`USUAL`). Rows are plain data; no torch is needed to read them. Those of
operators of the suite stand with the operators.
"""

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kfuzz.core.errors import BindingError

if TYPE_CHECKING:
    from kfuzz.numerics.acceptance import Acceptance, Problem


class Special(Enum):
    """Values of a row that are no constants."""

    AXIS = "an axis of the first tensor, of either sign"


AXIS: Final = Special.AXIS

Tensors = str | tuple[str, ...] | None
"""What one tensor argument looks like.

Names of dimensions as of `kfuzz.strategies.tensors`, "* N". In front "bool:" for a
mask, "int64:" and the like for another dtype, "below V:" for indices below a dimension,
"[0, 1]:" for an interval of values, "weight:", "bias:", "variance:" for a role; "?"
behind for an optional tensor. A tuple is a list of tensors; None leaves an optional
argument out.
"""

# What scalars of a name are mostly given, the default first. An argument that is none
# of these, has no default and no value in its row is an error.
USUAL: Final[Mapping[str, Any]] = {
    "alpha": (1, 2, -0.5),
    "beta": (1, 0, 0.5),
    "descending": (False, True),
    "dim": AXIS,
    "exponent": (2, 3, 0.5, -1, 0, 1, 1.5, -2),
    "keepdim": (False, True),
    "largest": (True, False),
    "other": (0.75, -1.5, 2, 0, 1),
    "reduction": (1, 2, 0),
    "value": (1, 0.5, -2),
}


@dataclass(frozen=True)
class Row:
    """What is said of one overload.

    Attributes:
        name: as torch writes it, without "aten::": "add.Tensor", "relu".
        tensors: of each tensor argument, in order; the last one holds for those that
            follow, and every tensor is "*" where none is given.
        scalars: values of other arguments by name. A tuple is what is drawn, the
            default first; `AXIS` an axis; anything else a constant. Text stands for
            sizes and for lists: "A,-1" is [size of dimension A, -1].
        suite: the operator of the suite that it is, if any; then `tensors` is empty and
            `scalars` maps arguments to the operator's parameters.
        outputs: names of the results that are judged; those of the schema by default.
        integers: which of them hold integers.
        shape_class: what sizes and integer scalars must satisfy.
        unfolded: dimensions of the suite's operator that stand for others here, as of
            `Operator.unfolded`.
        ranks: ranks of "*" tensors; by default those from 0, from 1 with an axis, and
            those of the suite's operator.
        exact: whether elements are only moved: every bit is judged, where otherwise the
            running-error shadow or the suite's operator judges.
        wraps: whether negative indices count from the end: what is out of bounds is
            not judged.
        may_alias: whether results may be, or share the memory of, an argument though
            the schema does not say so.
    """

    name: str
    tensors: tuple[Tensors, ...] = ()
    scalars: Mapping[str, Any] = field(default_factory=dict)
    suite: str = ""
    outputs: tuple[str, ...] = ()
    integers: tuple[str, ...] = ()
    shape_class: str = ""
    unfolded: Mapping[str, str] = field(default_factory=dict)
    ranks: range | None = None
    may_alias: bool = False
    exact: bool = False
    wraps: bool = False


ROWS: Final[dict[str, Row]] = {}
"""Every row of `tables` by name."""


def _enter(row: Row) -> None:
    if row.name in ROWS:
        raise BindingError(f"the table has two rows for {row.name}")
    ROWS[row.name] = row


_FIELDS: Final = ("shape_class", "ranks", "may_alias", "wraps")


def shadowed(
    names: str, /, *tensors: Tensors, exact: bool = False, **said: Any
) -> None:
    """Enter overloads that the running-error shadow judges.

    Args:
        names: of the overloads, separated by spaces.
        tensors: see `Row`, as of all arguments.
        exact: whether they only move elements, and every bit is judged.
        said: `outputs`, `integers` (names in one text), `shape_class`, `ranks`, and
            scalars by name.
    """
    more: dict[str, Any] = {
        k: tuple(said.pop(k).split()) for k in ("outputs", "integers") if k in said
    }
    more |= {k: said.pop(k) for k in _FIELDS if k in said}
    for name in names.split():
        _enter(Row(name, tensors, said, exact=exact, **more))


moved: Final = partial(shadowed, exact=True)
"""Enter overloads that only move elements; arguments as of `shadowed`."""


def describes(names: str, arguments: str, /, **said: Any) -> tuple[Row, ...]:
    """Return the rows of overloads that an operator of the suite describes.

    Args:
        names: of the overloads.
        arguments: of the schema, each with the operator's parameter or a constant:
            "self=x dim reduction=1"; a name alone stands for both.
        said: `outputs`, the number of results judged being theirs, `unfolded`,
            `ranks`, and scalars that the operator lacks, as of `shadowed`. Where one
            has not its default, the shadow judges.
    """
    taken: dict[str, Any] = {}
    for word in arguments.split():
        name, _, value = word.partition("=")
        taken[name] = _literal(value or name)
    outputs = tuple(said.pop("outputs", "").split())
    more = {k: said.pop(k) for k in ("unfolded", "ranks") if k in said}
    scalars = {**taken, **said}
    return tuple(
        Row(name, scalars=scalars, outputs=outputs, **more) for name in names.split()
    )


class Named(str):
    """A parameter of the suite's operator, or a list of them and of sizes, by name."""

    __slots__ = ()


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return Named(text)


# Results with the places they come from: any of equal elements may be named.
#
# The values are judged by the shadow. An index must name an element that equals the
# value beside it.

NAMED: Final = ("values", "indices")
"""Outputs of such an overload, as schemas name them."""


def accepting(
    oracle: Callable[..., Any], name: str, first: str
) -> "Callable[[Problem], Mapping[str, Acceptance]]":
    """Return the error model: values by the shadow, indices within their range."""

    def accept(problem: "Problem") -> "Mapping[str, Acceptance]":
        """Return the shadow's acceptance of the values, and all indices in range."""
        import torch

        from kfuzz.numerics.acceptance import between
        from kfuzz.numerics.formats import INTEGERS
        from kfuzz.numerics.shadow import shadowed

        values, indices = shadowed(oracle, problem, name=name)
        low = torch.zeros_like(indices.reference)
        size = problem.tensors[first].shape[problem.axis()]
        high = torch.full_like(low, max(size - 1, 0))
        places = between(
            problem, indices.reference, low, high, output=INTEGERS["int64"]
        )
        return {"values": values, "indices": places}

    return accept


def naming(first: str) -> "Callable[[Problem, Mapping[str, Any]], Mapping[str, Any]]":
    """Return the relation of the indices to a tensor and to the values beside them."""

    def related(problem: "Problem", outputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Each index names an element equal to the value beside it."""
        import torch

        from kfuzz.numerics.models.ordering import picked, same

        x, axis = problem.tensors[first], problem.axis()
        values, index = outputs["values"].to(torch.float64), outputs["indices"]
        if index.dim() < x.dim():
            values, index = values.unsqueeze(axis), index.unsqueeze(axis)
        if problem.flushes:
            least = problem.format.min_normal
            x, values = (torch.where(t.abs() < least, 0.0, t) for t in (x, values))
        found, valid = picked(x, index, axis)
        fits = valid & same(found, values)
        return {"indices": fits.reshape(outputs["indices"].shape)}

    return related
