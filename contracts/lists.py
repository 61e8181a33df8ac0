"""Parameters that are lists of tensors: oracle and kernel get a list of one to n.

A case has the tensors of a list as arguments of their own, `xs0`, `xs1`, …, of which
the last ones may be absent.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kfuzz.core.errors import BindingError
from kfuzz.strategies.parameters import ListParameter, Parameter, TensorParameter

Lists = Mapping[str, tuple[str, ...]]


def expanded(
    inputs: Mapping[str, Parameter], where: str
) -> tuple[dict[str, Parameter], dict[str, tuple[str, ...]]]:
    """Return parameters with every list as its tensors, and their names by list.

    Dimensions that no other parameter has are each tensor's own: they get its number.

    Raises:
        BindingError: if a name is taken.
    """
    others = {
        name
        for p in inputs.values()
        if isinstance(p, TensorParameter)
        for name in p.names
    }
    made: dict[str, Parameter] = {}
    lists: dict[str, tuple[str, ...]] = {}
    for name, p in inputs.items():
        if not isinstance(p, ListParameter):
            made[name] = p
            continue
        lists[name] = tuple(f"{name}{i}" for i in range(p.most))
        for i, item in enumerate(lists[name]):
            if item in inputs:
                raise BindingError(f"{item!r} is one of the list {name!r}", where=where)
            dims = (
                axis if axis in others or axis == "*" else f"{axis}{i}"
                for axis in p.of.dims.split()
            )
            made[item] = replace(p.of, dims=" ".join(dims), optional=i > 0)
    return made, lists


def places(tensors: Sequence[str], lists: Lists) -> list[str | tuple[str, ...]]:
    """Return what a function takes by position, in order: tensors, or lists."""
    first = {items[0]: items for items in lists.values()}
    inside = {item for items in lists.values() for item in items[1:]}
    return [first.get(name, name) for name in tensors if name not in inside]


def gathering(
    function: Callable[..., Any], tensors: Sequence[str], lists: Lists
) -> Callable[..., Any]:
    """Return a function of lists as one of their tensors, None where there is none.

    A call that has a list already is passed on as it is.

    Args:
        function: takes tensors and lists by position.
        tensors: all tensors, those of lists among them, in order.
        lists: their names by list.
    """
    if not lists:
        return function
    taken = places(tensors, lists)

    @functools.wraps(function)
    def call(*given: Any, **keywords: Any) -> Any:
        if any(isinstance(x, list | tuple) for x in given):
            return function(*given, **keywords)
        by_name = dict(zip(tensors, given, strict=False))
        rest = given[len(by_name) :]
        passed: list[Any] = []
        for place in taken:
            if isinstance(place, tuple):
                items = [by_name.get(item) for item in place]
                passed.append([x for x in items if x is not None])
            elif place in by_name:
                passed.append(by_name[place])
        return function(*passed, *rest, **keywords)

    if (signature := _signature(function, taken)) is not None:
        call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def _signature(
    function: Callable[..., Any], taken: Sequence[str | tuple[str, ...]]
) -> inspect.Signature | None:
    """Return the signature with the tensors of lists in their place."""
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        return None
    made: list[inspect.Parameter] = []
    left = list(taken)
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    for p in signature.parameters.values():
        positional = p.kind in (kind, inspect.Parameter.POSITIONAL_ONLY)
        place = left.pop(0) if left and positional else ""
        if isinstance(place, tuple):
            made.append(p.replace(name=place[0], kind=kind, default=p.empty))
            made += [inspect.Parameter(n, kind, default=None) for n in place[1:]]
        else:
            made.append(p)
    # Python's own rule on defaults does not hold between the tensors of lists.
    return inspect.Signature(made, __validate_parameters__=False)
