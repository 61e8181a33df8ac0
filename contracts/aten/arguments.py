"""From an operator's tensors and scalars to the arguments of a schema.

Kernels of torch's dispatcher are called as their schema says: positional arguments in
order, those behind `*` by name, and what equals its default is left out at the end.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kfuzz.core.errors import BindingError


class _NoDefault:
    """Says that an argument has no default."""


NO_DEFAULT: Final = _NoDefault()


@dataclass(frozen=True)
class Argument:
    """One argument of a schema and where its value comes from.

    Attributes:
        name: in the schema.
        kind: its type as torch prints it, "Tensor", "List[int]", "number".
        keyword: whether it is passed by name.
        parameters: the operator's parameters that it consists of: one tensor, the
            tensors of a list, one scalar; none for a constant.
        constant: its value where there is no parameter.
        default: of the schema, else `NO_DEFAULT`.
    """

    name: str
    kind: str
    keyword: bool
    parameters: tuple[str, ...]
    constant: Any
    default: Any

    @property
    def of_tensors(self) -> bool:
        """Whether it is a tensor or a list of them."""
        return "Tensor" in self.kind

    @property
    def listed(self) -> bool:
        """Whether it is a list."""
        return "List[" in self.kind

    def value(self, known: Mapping[str, Any]) -> Any:
        """Return its value.

        Args:
            known: tensors, scalars and sizes of dimensions, by name; what is absent
                is None.
        """
        if self.of_tensors:
            given = [known.get(name) for name in self.parameters]
            if self.listed:
                return given if self.parameters else self.constant
            return given[0] if given else self.constant
        value = known.get(self.parameters[0]) if self.parameters else self.constant
        if self.listed:
            return _numbers(value, known)
        if isinstance(value, str) and "str" not in self.kind:
            return _number(value, known)
        return value


def _numbers(value: Any, known: Mapping[str, Any]) -> Any:
    """Return a list of numbers: "A,-1" is [size of A, -1], 3 is [3]."""
    if value is None or isinstance(value, list):
        return value
    if isinstance(value, str):
        return [_number(part, known) for part in value.split(",") if part]
    return list(value) if isinstance(value, tuple) else [value]


def _number(text: str, known: Mapping[str, Any]) -> Any:
    if text in known:
        return known[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise BindingError(
        f"{text!r} is neither a number nor a name",
        where="contracts/aten",
        fix=f"names: {', '.join(sorted(known))}",
    )


def packed(
    arguments: Sequence[Argument], known: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Return positional and named arguments as torch's dispatcher passes them.

    Arguments that equal their defaults are left out where nothing follows them.

    Args:
        arguments: of the schema, in order, without destinations.
        known: as of `Argument.value`.
    """
    positional: list[Any] = []
    kept, named = 0, {}
    for argument in arguments:
        value = argument.value(known)
        usual = _equal(value, argument.default)
        if argument.keyword:
            if not usual:
                named[argument.name] = value
            continue
        positional.append(value)
        if not usual:
            kept = len(positional)
    return positional[:kept], named


def _equal(value: Any, default: Any) -> bool:
    """Whether a value is the default; tensors never are."""
    if default is NO_DEFAULT or type(value).__module__.startswith("torch"):
        return False
    if value is None or default is None:
        return value is default
    if isinstance(value, list):
        return bool(isinstance(default, list) and value == default)
    return bool(value == default)
