"""Overloads of torch's operators as what kernels compute, by name.

`find("softmax.int")` gives the operator, and how a kernel of the dispatcher's is called
in its place; of `add_.Tensor` and `add.out` those of `add.Tensor`, and what is written.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, wraps
from typing import Any

from kfuzz.contracts.aten import schemas, tables  # noqa: F401  (they enter rows)
from kfuzz.contracts.aten.arguments import Argument
from kfuzz.contracts.aten.making import made
from kfuzz.contracts.aten.rows import ROWS
from kfuzz.contracts.operator import Operator
from kfuzz.core.errors import BindingError


@dataclass(frozen=True)
class Overload:
    """An overload of torch's by name.

    Attributes:
        name: plain, "add_.Tensor".
        operator: what it computes.
        arguments: of the overload that gives new results, in order.
        inplace: the parameters that it writes its results to.
        out: the arguments that it writes its results to, as `arguments`; their
            parameters are outputs.
        is_view: whether its results may share the memory of an argument.
    """

    name: str
    operator: Operator
    arguments: tuple[Argument, ...]
    inplace: tuple[str, ...] = ()
    out: tuple[Argument, ...] = ()
    is_view: bool = False

    @property
    def claims(self) -> dict[str, Any]:
        """What every kernel of it declares."""
        if self.inplace:
            return {"inplace": self.inplace}
        return {"out": self.operator.outputs} if self.out else {}


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
    results = tuple(_target(a, arguments) for a in targets)
    outputs = tuple(name for a in results for name in a.parameters)
    if any(a.listed for a in results):  # their tensors are results by themselves
        if not outputs:
            raise BindingError(
                f"aten::{text} writes a list of no fixed length",
                fix=f"bind aten::{base}",
            )
        operator, _ = made(replace(ROWS[base], outputs=outputs))
    if len(outputs) != len(operator.outputs):
        raise BindingError(
            f"aten::{text} writes {len(outputs)} results, {len(operator.outputs)} are "
            "judged",
            fix=f"bind aten::{base}",
        )
    if not targets[0].is_out:
        operator = replace(operator, oracle=_in_format(operator.oracle))
        return Overload(text, operator, arguments, inplace=outputs)
    if clash := {*operator.outputs} & {*operator.inputs}:
        raise BindingError(
            f"aten::{text}: {clash.pop()!r} is an argument and a result",
            fix=f"bind aten::{base}",
        )
    each = iter(operator.outputs)
    out = (
        replace(a, parameters=tuple(next(each) for _ in a.parameters)) for a in results
    )
    return Overload(text, operator, arguments, out=tuple(out))


def _in_format(oracle: Callable[..., Any]) -> Callable[..., Any]:
    """Return an oracle whose truth values are numbers, as they are in place."""

    @wraps(oracle)
    def stored(written: Any, /, *tensors: Any, **scalars: Any) -> Any:
        y = oracle(written, *tensors, **scalars)
        truth = hasattr(y, "dtype") and str(y.dtype) == "torch.bool"
        return y.to(written.dtype) if truth else y

    return stored


def _target(argument: Any, arguments: tuple[Argument, ...]) -> Argument:
    """Return an argument of the schema that is written, and what is judged of it.

    A list that is written has a tensor for each one of the first list that is read;
    where none is, nothing says how many it has.
    """
    if not argument.is_out:
        return next(a for a in arguments if a.name == argument.name)
    made = Argument(argument.name, str(argument.type), True, (), None, None)
    read = next((a.parameters for a in arguments if a.of_tensors and a.listed), ())
    names = tuple(f"{made.name}_{i}" for i in range(len(read)))
    return replace(made, parameters=names if made.listed else (made.name,))


def writing() -> Iterator[str]:
    """Yield the in-place overloads and those with `out` of the table's rows."""
    for base in sorted({name.partition(".")[0] for name in ROWS}):
        for operator in (base, f"{base}_"):
            every = schemas.overloads(operator)
            yield from (n for n in every if schemas.base_of(n) in ROWS and known(n))


def known(name: str) -> bool:
    """Whether `find` finds an overload."""
    try:
        find(name)
    except BindingError:
        return False
    return True
