"""Implementations of torch's overloads as kernels that no module binds."""

from collections.abc import Callable
from typing import Any

from kfuzz.contracts.aten.making import find, form
from kfuzz.contracts.binding import BoundKernel, fit


def bound(
    overload: str, given: Callable[..., Any], *, name: str, **claims: Any
) -> BoundKernel:
    """Return an implementation of an overload, "add.Tensor", as a kernel."""
    found = find(overload)
    made = {**found.claims, **claims}
    return fit(
        found.operator, form(found, given), made, name=name, module="", top_level=True
    )
