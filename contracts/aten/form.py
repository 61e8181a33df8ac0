"""A kernel of the dispatcher's as a function that kfuzz calls."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from kfuzz.contracts.aten.arguments import Argument, packed
from kfuzz.contracts.aten.making import first, known_of, tensors_of
from kfuzz.contracts.aten.overloads import Overload
from kfuzz.contracts.forms import Form
from kfuzz.contracts.operator import Operator
from kfuzz.core.declaration import Declaration


class AtenForm(Form):
    """An implementation of an overload, called as torch's dispatcher calls it.

    It may take fewer scalars than the schema has: they then keep their defaults. A
    kernel that is registered with the dispatcher is given them all.
    """

    def __init__(
        self, overload: Overload, given: Callable[..., Any], *, registered: bool
    ) -> None:
        self.overload = overload
        self.__name__ = str(getattr(given, "__name__", ""))
        self.__wrapped__ = given
        self._registered = registered

    def fitted(
        self, operator: Operator, declaration: Declaration, where: str
    ) -> Callable[..., Any]:
        """Return the function that an operator's tensors and scalars are passed to."""
        takes = self.overload.arguments
        if not self._registered:
            takes = taken(self.__wrapped__, takes)
        return _Function(self, operator, takes)


def taken(
    function: Callable[..., Any], arguments: Sequence[Argument]
) -> tuple[Argument, ...]:
    """Return the arguments that a function takes; tensors count as taken."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):
        return tuple(arguments)
    kinds = inspect.Parameter
    if any(p.kind is kinds.VAR_KEYWORD for p in parameters):
        return tuple(arguments)
    named = {p.name for p in parameters if p.kind is not kinds.POSITIONAL_ONLY}
    plain = (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)
    room = sum(p.kind in plain for p in parameters)
    if any(p.kind is kinds.VAR_POSITIONAL for p in parameters):
        room = len(arguments)
    made, place = [], 0
    for argument in arguments:
        if argument.keyword:
            takes = argument.name in named
        else:
            takes, place = place < room, place + 1
        if takes or argument.of_tensors:
            made.append(argument)
    return tuple(made)


class _Function:
    """The function; its parameters are the operator's."""

    def __init__(
        self, form: AtenForm, operator: Operator, arguments: tuple[Argument, ...]
    ) -> None:
        self.overload = form.overload
        self.arguments = arguments
        self.implementation = form.__wrapped__
        self.__name__ = form.__name__
        self.__module__ = str(getattr(form.__wrapped__, "__module__", ""))
        self.__doc__ = getattr(form.__wrapped__, "__doc__", None)
        self.__wrapped__ = form.__wrapped__
        self._parameters = tensors_of(operator.inputs)
        self._outputs = operator.outputs
        self.__signature__ = self._signature(operator)
        named = self.__signature__.parameters
        self._tensors = [name for name in operator.tensors if name in named]

    def _signature(self, operator: Operator) -> inspect.Signature:
        """Return the operator's parameters that the implementation takes.

        A tensor that the schema lets be None may be left out of a case.
        """
        kinds = inspect.Parameter
        used = {name for a in self.arguments for name in a.parameters}
        texts = [a.constant for a in self.arguments if isinstance(a.constant, str)]
        used |= {name for text in texts for name in text.split(",")}
        absent = {
            name
            for a in self.arguments
            for name in a.parameters
            if a.kind == "Optional[Tensor]"
        }
        made = [
            kinds(
                name,
                kinds.POSITIONAL_OR_KEYWORD,
                **({"default": None} if name in absent and p.optional else {}),
            )
            for name, p in operator.tensors.items()
            if name in used
        ]
        made += [
            kinds(name, kinds.KEYWORD_ONLY)
            for target in self.overload.out
            for name in target.parameters
        ]
        made += [
            kinds(name, kinds.KEYWORD_ONLY, default=operator.default_of(name))
            for name in operator.scalars
            if name in used
        ]
        return inspect.Signature(made)

    def __call__(self, /, *tensors: Any, **keywords: Any) -> Any:
        """Call the implementation as the dispatcher does."""
        given = dict(zip(self._tensors, tensors, strict=False))
        positional, named = packed(
            (*self.arguments, *self.overload.out),
            known_of(given, keywords, self._parameters),
        )
        returned = self.implementation(*positional, **named)
        if self.overload.out or self.overload.inplace:
            return returned
        results = first(returned, self._outputs)
        if not self.overload.is_view:
            return results
        # A view is what the schema declares; kernels that copy are judged alike.
        if isinstance(results, tuple | list):
            return tuple(map(_copied, results))
        return _copied(results)


def _copied(x: Any) -> Any:
    """Return a copy of a tensor, and anything else as it is."""
    return x.clone() if hasattr(x, "clone") else x
