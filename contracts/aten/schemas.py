"""Torch's own schemas: names of overloads, and which one another one writes.

`add_.Tensor` writes to its first argument what `add.Tensor` gives, `add.out` to `out`.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

from kfuzz.core.errors import BindingError, suggestion
from kfuzz.core.finding import ATEN as NAMESPACE


def plain(name: str) -> str:
    """Return an overload's name as the table has it.

    "aten::add.Tensor", "torch.ops.aten.add.Tensor" and "add.Tensor" are one;
    "relu.default" is "relu".
    """
    text = name.removeprefix("torch.ops.")
    text = text.removeprefix(NAMESPACE).removeprefix("aten.")
    return text.removesuffix(".default")


@cache
def overload(name: str) -> Any:
    """Return the `torch._ops.OpOverload` of a plain name.

    Raises:
        BindingError: if torch has none of that name, with the overloads it has.
    """
    found = lookup(name)
    if found is not None:
        return found
    base = name.partition(".")[0]
    every = list(overloads(base))
    raise BindingError(
        f"torch has no overload aten::{name}",
        fix=f"those of {base}: {', '.join(every)}" if every else "check the name",
    )


@cache
def lookup(name: str) -> Any:
    """Return the overload of a plain name, None if there is none."""
    import torch

    base, _, which = name.partition(".")
    packet = getattr(torch.ops.aten, base, None) if base.isidentifier() else None
    if packet is None or (which or "default") not in packet.overloads():
        return None
    return getattr(packet, which or "default")


def overloads(base: str) -> Iterator[str]:
    """Yield the plain names of all overloads of one operator."""
    import torch

    packet = getattr(torch.ops.aten, base, None) if base.isidentifier() else None
    for which in packet.overloads() if packet is not None else ():
        yield base if which == "default" else f"{base}.{which}"


def written(given: Any) -> tuple[Any, ...]:
    """Return the arguments of the schema that an overload writes to."""
    arguments = given._schema.arguments
    return tuple(
        a for a in arguments if a.alias_info is not None and a.alias_info.is_write
    )


def is_view(given: Any) -> bool:
    """Whether results share the memory of an argument that is only read."""
    returns = given._schema.returns
    shared = any(r.alias_info is not None for r in returns)
    return shared and not written(given)


def name_of(given: Any) -> str:
    """Return the plain name of an overload."""
    return plain(given._schema.name + _behind(given._schema.overload_name))


def _behind(overload_name: str) -> str:
    return f".{overload_name}" if overload_name else ""


def base_of(name: str) -> str | None:
    """Return the overload that gives what another one writes; None if there is none.

    Args:
        name: of an in-place overload or one with `out`, plain.
    """
    from kfuzz.numerics.shadow.mode import functional

    found = lookup(name)
    if found is None or not written(found):
        return None
    base = functional(found)
    return None if base is None else name_of(base)


def missing(name: str, known: Iterator[str]) -> BindingError:
    """Return what is raised of an overload that the table lacks."""
    return BindingError(
        f"the table has no row for aten::{name}",
        fix=f"{suggestion(name, list(known))}; a row is one line in contracts/aten/",
    )
