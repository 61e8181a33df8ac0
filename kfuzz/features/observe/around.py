"""A call of a test's own as a binding, so that a search begins where the test is."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from kfuzz.contracts.binding import BoundKernel, kernel
from kfuzz.contracts.gradients.operators import operator_named
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.operators import OPERATORS
from kfuzz.core.errors import UsageError
from kfuzz.features.observe.watching import Callee, note, shape_of
from kfuzz.features.observe.writing import (
    Guess,
    guess,
    seen_dtypes,
    seen_sizes,
)


def bound_around(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    operator: "str | Operator | None" = None,
    name: str = "",
    **claims: Any,
) -> tuple[Any, BoundKernel]:
    """Call a function, and bind it to the operator that the call agrees with.

    The kernel has the arguments of the call that are no operator's as they were given,
    its data types, and its sizes among those that are drawn.

    Args:
        function: the implementation.
        args: of the call.
        kwargs: likewise.
        operator: what it computes; by default what the call agrees with.
        name: of the kernel; the function's own by default.
        claims: its declaration, as for `kfuzz.kernel`.

    Returns:
        What the call returned, and the kernel.

    Raises:
        UsageError: if the operator is unknown, or the call agrees with none.
    """
    where = f"kfuzz_around({getattr(function, '__name__', function)!s})"
    known = operator_named(operator, where) if isinstance(operator, str) else operator
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        raise UsageError(
            "the parameters of the function are not known",
            where=where,
            fix="wrap it in a function of Python",
        ) from None
    call = signature.bind(*args, **kwargs)
    call.apply_defaults()
    given = dict(call.arguments)
    if not any(isinstance(v, Tensor) for v in given.values()):
        raise UsageError("the call has no tensor by name", where=where)
    # Before the call, which may write to them.
    kept = {
        n: shape_of(v, with_values=True) if isinstance(v, Tensor) else v
        for n, v in given.items()
    }
    result = function(*args, **kwargs)
    callee = Callee("", name or getattr(function, "__name__", "kernel"))
    note(callee, kept, result)
    made = guess(callee, known)
    if made is None:
        whom = "with no operator" if known is None else f"not with {known.name}"
        raise UsageError(
            f"the call agrees {whom}",
            where=where,
            fix="name what it computes: operator=…, or declare what the kernel claims; "
            "the call's tensors may be too large to compare",
        )
    claims = {"dtypes": tuple(sorted(seen_dtypes(callee, made))), **made.claims,
              **claims}  # fmt: skip
    sizes = sorted(seen_sizes(callee))
    binder = kernel(known or OPERATORS[made.operator], name=callee.name,
                    sizes=tuple(sizes), **claims)  # fmt: skip
    return result, binder(
        _calling(function, call, made, len(callee.calls[0].results or ()))
    )


def _calling(
    function: Callable[..., Any],
    call: inspect.BoundArguments,
    made: Guess,
    results: int,
) -> Callable[..., Any]:
    """Return a function of the operator's parameters that makes the call."""
    order = list(made.given)

    def run(*args: Any, **kwargs: Any) -> Any:
        values = dict(zip(order, args, strict=False)) | kwargs
        changed = {made.given[p]: v for p, v in values.items()}
        again = inspect.BoundArguments(call.signature, {**call.arguments, **changed})
        returned = function(*again.args, **again.kwargs)
        return returned[made.result] if results > 1 else returned

    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(p, inspect.Parameter.POSITIONAL_OR_KEYWORD) for p in order]
    )
    run.__module__ = function.__module__
    return run
