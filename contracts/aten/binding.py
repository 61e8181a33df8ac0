"""Binding implementations to overloads by name."""

from collections.abc import Callable
from typing import Any

from kfuzz.contracts.aten.form import AtenForm
from kfuzz.contracts.aten.overloads import Overload, find
from kfuzz.contracts.binding import BoundKernel, fit
from kfuzz.contracts.forms import Form


def bound(
    overload: str,
    given: Callable[..., Any],
    *,
    name: str,
    module: str = "",
    registered: bool = True,
    **claims: Any,
) -> BoundKernel:
    """Return an implementation of an overload as a kernel, registered nowhere.

    Args:
        overload: its name, "add.Tensor".
        given: the implementation, called as torch's dispatcher calls it.
        name: the kernel's.
        module: that bound it.
        registered: whether the dispatcher calls it: it is then given every scalar of
            the schema.
        claims: its declarations, besides those that the overload makes.

    Raises:
        BindingError: as `find` and `kfuzz.kernel`.
    """
    found = find(overload)
    return fit(
        found.operator,
        form(found, given, registered=registered),
        {**found.claims, **claims},
        name=name,
        module=module,
        line=0,
        top_level=True,
    )


def form(
    found: Overload, given: Callable[..., Any] | Form, *, registered: bool
) -> Callable[..., Any] | Form:
    """Return what is bound to an overload's operator in place of an implementation.

    Other forms than functions take the operator's parameters by themselves.
    """
    if isinstance(given, Form) or not callable(given):
        return given
    return AtenForm(found, given, registered=registered)
