"""`kfuzz.reference`: any function or module in plain torch as an operator."""

import copy
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, overload

import torch
from torch import Tensor

from kfuzz.contracts.operator import Operator
from kfuzz.contracts.oracle import open_to_wider
from kfuzz.core.declaration import Declaration
from kfuzz.core.errors import BindingError, suggestion
from kfuzz.numerics.acceptance import Acceptance, Problem
from kfuzz.numerics.formats import FORMATS
from kfuzz.numerics.shadow import shadowed
from kfuzz.strategies import scalar, tensors
from kfuzz.strategies.parameters import ListParameter, Parameter, TensorParameter


@overload
def reference(
    function: Callable[..., Any],
    inputs: Mapping[str, Parameter] | None = None,
    *,
    name: str = "",
    eager: bool = False,
    **parts: Any,
) -> Operator: ...


@overload
def reference(
    function: None = None,
    inputs: Mapping[str, Parameter] | None = None,
    *,
    name: str = "",
    eager: bool = False,
    **parts: Any,
) -> Callable[[Callable[..., Any]], Operator]: ...


def reference(
    function: Callable[..., Any] | None = None,
    inputs: Mapping[str, Parameter] | None = None,
    *,
    name: str = "",
    eager: bool = False,
    **parts: Any,
) -> Operator | Callable[[Callable[..., Any]], Operator]:
    """Return the operator that a function or module in plain torch computes.

    The function itself, run in float64, is the oracle; integers and truth values it is
    given, and returns, exactly. The running-error shadow bounds how much a kernel of
    the same steps may differ. Without a function it returns a decorator.

    Args:
        function: takes tensors by position, and scalars by keyword.
        inputs: its parameters in order, by `kfuzz.strategies`. By default every
            parameter without a default is a tensor, all of one shape; parameters whose
            default is a number or a text are scalars.
        name: the operator's name; the function's own by default.
        eager: whether kernels may store each intermediate result as torch's eager mode
            does: they start from `intermediates="output"`, and a value that the steps
            could not give then violates C-CMP-01.
        parts: further fields of `kfuzz.Operator`: `outputs=`, `results=`,
            `shape_class=`, ….

    Raises:
        BindingError: if a parameter cannot be inferred or is not the function's, or a
            part is no field.
    """
    if function is None:
        return lambda f: reference(f, inputs, name=name, eager=eager, **parts)
    if not callable(function):
        raise BindingError(f"{function!r:.60} is not callable", where="kfuzz.reference")
    label = name or name_of(function)
    is_module = isinstance(function, torch.nn.Module)
    forward = function.forward if isinstance(function, torch.nn.Module) else function
    try:
        signature = inspect.signature(forward)
    except ValueError:  # of a builtin nothing is known
        signature = inspect.signature(lambda *tensors, **scalars: None)
    given = _inferred(signature, label) if inputs is None else dict(inputs)
    _check_names(signature, given, label)
    own: dict[str, Any] = {"written": True}
    if eager:  # such kernels take its very steps
        stored = Declaration(intermediates="output")
        own = {"chain": (f"{label} in eager mode",), "defaults": stored}
    oracle = _Doubled(function) if is_module else function
    try:
        return Operator(label, inputs=given, oracle=oracle, **{**own, **parts})
    except TypeError as error:
        raise BindingError(str(error), where=f"reference {label}") from None


def reference_bounds(
    problem: Problem,
    oracle: Callable[..., Any],
    names: Sequence[str],
    *,
    name: str,
    formats: Sequence[str],
    tf32: frozenset[str] = frozenset(),
    narrowed: Callable[..., Any] | None = None,
    computed: Callable[..., Any] | None = None,
    dtypes: Sequence[torch.dtype] = (),
) -> dict[str, Acceptance]:
    """Return what is accepted of each result of a reference, by its shadow.

    What is NaN where all arguments are numbers is undecided: the reference is not
    defined there, 0 log 0 for one.

    Args:
        problem: the inputs of one item.
        oracle: the reference; its integers have their own data types.
        names: of its results.
        name: its own, for messages.
        formats: in which each result is stored.
        tf32: as of `shadowed`.
        narrowed: likewise.
        computed: the reference for integers as int64, where some are narrower.
        dtypes: of the results, as of `open_to_wider`.
    """
    bounds = {
        f: shadowed(
            oracle, replace(problem, output=FORMATS[f]), name=name, tf32=tf32,
            narrowed=narrowed,
        )
        for f in dict.fromkeys(formats)
    }  # fmt: skip
    found = [bounds[f][i] for i, f in enumerate(formats)]
    floats = (x for x in problem.tensors.values() if x.is_floating_point())
    if all(bool(torch.isfinite(x).all()) for x in floats):
        found = [
            replace(a, undecidable=a.undecidable | a.reference.isnan()) for a in found
        ]
    accepted = dict(zip(names, found, strict=True))
    if computed is None:
        return accepted
    return open_to_wider(accepted, computed, problem, dtypes)


def name_of(function: Any) -> str:
    """Return the name of a function, or of the class of a module."""
    name = getattr(function, "__name__", "") or type(function).__name__
    return "reference" if name == "<lambda>" else str(name)


def lead_of(arguments: tuple[Any, ...]) -> Tensor | None:
    """Return the first floating tensor."""
    floats = (a for a in arguments if isinstance(a, Tensor))
    return next((a for a in floats if a.is_floating_point()), None)


class _Doubled:
    """A module in float64, as an oracle."""

    def __init__(self, function: Any) -> None:
        self._module = function
        self._made: dict[object, Any] = {}
        self.__doc__ = f"{type(function).__name__}, a module in plain torch."

    def __call__(self, *arguments: Tensor, **keywords: Any) -> Any:
        lead = lead_of(arguments)
        device = "cpu" if lead is None else lead.device
        key = os.getpid(), device
        if key not in self._made:
            from torch.utils._python_dispatch import _disable_current_modes

            with _disable_current_modes():
                self._made[key] = copy.deepcopy(self._module).to(device).double()
        return self._made[key](*arguments, **keywords)


def _inferred(signature: inspect.Signature, label: str) -> dict[str, Parameter]:
    """Return the parameters of an elementwise function.

    Raises:
        BindingError: if one is neither a tensor nor a plain scalar.
    """
    made: dict[str, Parameter] = {}
    for p in signature.parameters.values():
        value: Any = p.default
        plain = value is p.empty or isinstance(value, bool | int | float | str)
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) or not plain:
            raise BindingError(
                f"what {p} stands for is not known",
                where=f"reference {label}",
                fix="give inputs=dict(...), of kfuzz.strategies",
            )
        made[p.name] = tensors("*") if value is p.empty else scalar(value)
    return made


def _check_names(
    signature: inspect.Signature, given: Mapping[str, Any], label: str
) -> None:
    """Check that a function takes what is declared, and nothing else.

    Tensors are passed by position: their names are not compared.

    Raises:
        BindingError: naming the parameter.
    """
    parameters = signature.parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return
    tensors = (TensorParameter, ListParameter)
    scalars = [n for n, p in given.items() if not isinstance(p, tensors)]
    for name in scalars:
        if name not in signature.parameters:
            raise BindingError(
                f"inputs= has a scalar {name!r}, and {label}{signature} takes none",
                where=f"reference {label}",
                fix=suggestion(name, signature.parameters),
            )
    count = len(given) - len(scalars)
    needed = [p for p in parameters if p.default is p.empty and p.name not in scalars]
    needed = [p for p in needed if p.kind is not p.VAR_POSITIONAL]
    if len(needed) > count:
        raise BindingError(
            f"inputs= has nothing for {needed[count].name!r} of {label}{signature}",
            where=f"reference {label}",
        )
