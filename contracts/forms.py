"""Kernels in other forms than a function: they become one once they are bound."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from kfuzz.contracts.custom_ops import custom_op
from kfuzz.contracts.operator import Operator
from kfuzz.core.declaration import Declaration


class Form(ABC):
    """What `kfuzz.kernel(...)` takes in place of a function.

    `__name__` is the kernel's name unless another one is given, and `__wrapped__` the
    function that is its code, where it has one in Python.
    """

    __name__: str

    @abstractmethod
    def fitted(
        self, operator: Operator, declaration: Declaration, where: str
    ) -> Callable[..., Any]:
        """Return the function that an operator's tensors and scalars are passed to.

        Args:
            operator: what it computes.
            declaration: what it claims.
            where: the kernel, for error messages.

        Raises:
            BindingError: if it cannot be the operator's.
        """


def form_of(given: Any) -> Any:
    """Return a callable as it is, operators of a library of the user's as functions.

    Raises:
        BindingError: if one has several overloads, or takes what kernels do not get.
    """
    if isinstance(given, Form):
        return given
    return custom_op(given) or given


def fitted(
    form: Any, operator: Operator, declaration: Declaration, where: str
) -> Callable[..., Any]:
    """Return the function that a bound kernel calls.

    Raises:
        BindingError: if a form cannot be the operator's.
    """
    if isinstance(form, Form):
        return form.fitted(operator, declaration, where)
    function: Callable[..., Any] = form
    return function
