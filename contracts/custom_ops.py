"""Operators in libraries of a user's own: `torch.library.custom_op`, `torch.ops.ns.op`.

Their signature is that of the schema. torch is looked up and not imported: who has such
an operator has done so.
"""

import inspect
import sys
from collections.abc import Sequence
from typing import Any, Final

from kfuzz.core.errors import BindingError

_DEFAULT: Final = "default"


class CustomOp:
    """An operator of a library as a function.

    Tensors are passed by position, everything else by keyword, whatever the order in
    the schema.
    """

    def __init__(self, overload: Any) -> None:
        self.overload = overload
        packet = overload.overloadpacket
        self.__name__ = str(packet.__name__)
        self.__qualname__ = str(overload)
        self.__module__ = "torch.ops"
        self.__doc__ = f"{overload._schema}"
        self.__signature__ = _signature(overload._schema.arguments, str(overload))
        defined = sys.modules.get("torch._library.custom_ops")
        known = getattr(defined, "OPDEFS", {}).get(overload._schema.name)
        if known is not None:
            self.__wrapped__ = known._init_fn  # its code in Python

    def __call__(self, *tensors: Any, **keywords: Any) -> Any:
        """Call the operator."""
        positional, named = self.packed(*tensors, **keywords)
        return self.overload(*positional, **named)

    def packed(
        self, *tensors: Any, **keywords: Any
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return arguments in the order of the schema, and those that need a name."""
        given = self.__signature__.bind(*tensors, **keywords)
        given.apply_defaults()
        positional, named = [], {}
        for argument in self.overload._schema.arguments:
            value = given.arguments[argument.name]
            if argument.kwarg_only:
                named[argument.name] = value
            else:
                positional.append(value)
        return tuple(positional), named


def custom_op(given: Any) -> CustomOp | None:
    """Return an operator of a library as a function; None if it is something else.

    Raises:
        BindingError: if it has several overloads and none is the default one, or
            takes lists of tensors.
    """
    overload = _overload(given)
    if overload is None:
        return None
    return CustomOp(overload)


def _overload(given: Any) -> Any:
    """Return the overload behind what torch gives people to call, None for others."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    defined = sys.modules.get("torch._library.custom_ops")
    if defined is not None and isinstance(given, defined.CustomOpDef):
        return given._opoverload
    if isinstance(given, torch._ops.OpOverload):
        return given
    if not isinstance(given, torch._ops.OpOverloadPacket):
        return None
    every = {name: getattr(given, name) for name in given.overloads()}
    of_tensors = [name for name, made in every.items() if _takes_tensors(made)]
    if len(of_tensors) == 1 or _DEFAULT in of_tensors:
        return every[_DEFAULT if _DEFAULT in of_tensors else of_tensors[0]]
    raise BindingError(
        f"{given} has the overloads {', '.join(every)}",
        fix=f"name one: torch.ops.{given}.{(of_tensors or list(every))[0]}",
    )


def _takes_tensors(overload: Any) -> bool:
    return any("Tensor" in str(a.type) for a in overload._schema.arguments)


def _signature(arguments: Sequence[Any], where: str) -> inspect.Signature:
    """Return the parameters of a schema: tensors first, then what has a name."""
    tensors: list[inspect.Parameter] = []
    others: list[inspect.Parameter] = []
    for argument in arguments:
        kind = str(argument.type)
        default = inspect.Parameter.empty
        if argument.has_default_value():
            default = argument.default_value
        if kind.startswith(("List[Tensor", "List[Optional[Tensor")):
            raise BindingError(
                f"{argument.name!r} is a list of tensors", where=where,
                fix="bind a function that calls it",
            )  # fmt: skip
        is_tensor = kind in ("Tensor", "Optional[Tensor]") and not argument.kwarg_only
        kinds = inspect.Parameter
        placed = kinds.POSITIONAL_OR_KEYWORD if is_tensor else kinds.KEYWORD_ONLY
        made = kinds(argument.name, placed, default=default)
        (tensors if is_tensor else others).append(made)
    return inspect.Signature([*tensors, *others])
