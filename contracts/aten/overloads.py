"""Overloads of torch's operators as what kernels compute, by name.

`find("softmax.int")` gives the operator, and how a kernel of the dispatcher's is called
in its place; of `add_.Tensor` and `add.out` those of `add.Tensor`, and what is written.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from kfuzz.contracts.aten import schemas, tables  # noqa: F401  (they enter rows)
from kfuzz.contracts.aten.arguments import Argument
from kfuzz.contracts.aten.making import made
from kfuzz.contracts.aten.rows import ROWS
from kfuzz.contracts.operator import Operator
from kfuzz.core.errors import BindingError
from kfuzz.core.results import LIST


@dataclass(frozen=True)
class Overload:
    """An overload of torch's by name.

    Attributes:
        name: plain, "add_.Tensor".
        operator: what it computes.
        arguments: of the overload that gives new results, in order.
        inplace: the parameter that it writes its result to; "" for none.
        out: of each output the name of the argument that it is written to; empty
            where results are new.
        is_view: whether its results may share the memory of an argument.
    """

    name: str
    operator: Operator
    arguments: tuple[Argument, ...]
    inplace: str = ""
    out: tuple[tuple[str, str], ...] = ()
    is_view: bool = False

    @property
    def claims(self) -> dict[str, Any]:
        """What every kernel of it declares."""
        if self.inplace:
            return {"inplace": (self.inplace,)}
        return {"out": tuple(output for output, _ in self.out)} if self.out else {}


def names() -> Iterator[str]:
    """Yield the plain names of the table's rows, sorted; needs no torch."""
    yield from sorted(ROWS)


@cache
def find(name: str) -> Overload:
    """Return an overload by name.

    Args:
        name: "aten::add.Tensor", "add.Tensor"; an in-place overload, or one with
            `out`, has the row of the one whose results it writes.

    Raises:
        BindingError: if torch has none of that name, or the table no row for it.
    """
    text = schemas.plain(name)
    given = schemas.overload(text)
    if text in ROWS:
        operator, arguments = made(ROWS[text])
        view = schemas.is_view(given) or ROWS[text].may_alias
        return Overload(text, operator, arguments, is_view=view)
    base = schemas.base_of(text)
    if base is None or base not in ROWS:
        raise schemas.missing(text, names())
    operator, arguments = made(ROWS[base])
    targets = schemas.written(given)
    if targets[0].is_out:
        if operator.outputs[0].endswith(LIST):
            raise BindingError(f"aten::{text} writes a list", fix=f"bind aten::{base}")
        if len(targets) != len(operator.outputs):
            raise BindingError(
                f"aten::{text} writes {len(targets)} results, "
                f"{len(operator.outputs)} are judged",
                fix=f"bind aten::{base}",
            )
        written = tuple(a.name for a in targets)
        return Overload(
            text, operator, arguments, out=tuple(zip(operator.outputs, written,
                                                     strict=True))
        )  # fmt: skip
    (target,) = targets
    parameters = next(a.parameters for a in arguments if a.name == target.name)
    if len(operator.outputs) > 1 or len(parameters) != 1:
        raise BindingError(f"aten::{text} writes what no declaration names")
    return Overload(text, operator, arguments, inplace=parameters[0])


def known(name: str) -> bool:
    """Whether `find` finds an overload."""
    try:
        find(name)
    except BindingError:
        return False
    return True
