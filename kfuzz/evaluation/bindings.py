"""Whether what a user brought can judge a kernel, asked before anything is searched.

An operator of kfuzz's own is calibrated by witnesses; one that a user brought is tried
on a few small cases: its oracle, its error model, its relation and `within`, and the
recipe of a launch. What fails here would fail every case, in which nothing is compared.
"""

import inspect
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch import Tensor

from kfuzz.contracts.binding import BoundKernel, Derived, ordinary_cases
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.operators import OPERATORS
from kfuzz.contracts.oracle import compare_all, expected_metadata, given
from kfuzz.core.errors import BindingError, message_of
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import outputs_of
from kfuzz.evaluation.calling import broken, defined, keywords_of, posed, raised
from kfuzz.evaluation.probes.calls import second_data
from kfuzz.execution.values.fills import logical_values
from kfuzz.numerics.acceptance import Acceptance
from kfuzz.numerics.models.functions import Elementwise
from kfuzz.strategies.parameters import DtypeParameter
from kfuzz.targets.forms import Launch

# An operator that a user brought, tried on small cases of ordinary data.

SECONDS: Final = 1.5
"""How long one operator is tried at most; a slow one is then taken as it is."""

_HOST: Final = torch.device("cpu")
# What an oracle that wants another device raises speaks of one.
_OF_A_DEVICE: Final = re.compile(r"cuda|gpu|hip|device|backend|driver", re.IGNORECASE)
_PLAIN: Final = (
    "Write it in plain torch: it is given float64 copies on the device of the run"
)


def is_brought(operator: Operator) -> bool:
    """Whether a user brought an operator, or changed what judges in one of kfuzz's."""
    ours = OPERATORS.get(operator.name)
    if ours is None or tuple(operator.inputs) != tuple(ours.inputs):
        return True
    parts = ("oracle", "error_model", "forms", "relation", "within")
    same = all(getattr(operator, part) is getattr(ours, part) for part in parts)
    return not same or operator.outputs != ours.outputs


@dataclass(frozen=True)
class _Tried:
    """What a case of ordinary data gave.

    Attributes:
        case: the case.
        structure: the number of the one that it was made of.
        dtype: the data type that it took.
        accepted: what is accepted, by output; None where the oracle raised.
        error: what it raised, else None.
    """

    case: Case
    structure: int
    dtype: str
    accepted: Mapping[str, Acceptance] | None
    error: Exception | None


def examine(
    kernel: BoundKernel, cases: Sequence[Case], *, on_host: bool = True
) -> tuple[tuple[Case, ...], bool]:
    """Try what judges a kernel, and return what was seen of it.

    Args:
        kernel: bound to an operator that a user brought.
        cases: small ones of its domain; their values are not used, but where ordinary
            ones give nothing.
        on_host: whether the kernel runs on the CPU too: else what speaks of a device
            is no fault here.

    Returns:
        Cases that it judges, of one kind each; where it was not tried, cases that it
        should. And whether its result never depended on its inputs: that is not wrong
        by itself, what is bound to it may be constant too.

    Raises:
        BindingError: if no case can be judged by it, or none of a data type.
    """
    operator = kernel.operator
    _check_order(kernel)
    end = time.monotonic() + SECONDS
    try:
        tried = list(_on_ordinary(kernel, cases, end))
        given = [t for t in tried if t.accepted is not None]
        if not given or not any(map(_is_finite, given)):
            drawn = (_try(kernel, case, i) for i, case in enumerate(cases))
            tried += drawn
        given = [t for t in tried if t.accepted is not None]
    except BindingError as error:
        what = f"{error.what} ({defined(operator.oracle)})"
        outputs = ", ".join(operator.outputs)
        fix = error.fix or f"Return a tensor for each of its outputs: {outputs}"
        raise broken(kernel, what, fix) from error
    failed = [t.error for t in tried if t.error is not None]
    if not on_host and any(_OF_A_DEVICE.search(str(e)) for e in failed):
        return tuple({t.structure: t.case for t in tried}.values()), False
    if failed and not given:
        told, fix = _told(operator, failed[0]), _remedy(operator, failed[0])
        what = f"{_judging(operator)} raises on every small case: {told}"
        raise broken(kernel, what, fix)
    _check_dtypes(kernel, tried)
    for each in given:
        if sorted(outputs_of(each.accepted or {})) != sorted(operator.outputs):
            raise broken(
                kernel,
                f"the error model gives {', '.join(map(repr, each.accepted or {}))} "
                f"for the outputs {', '.join(map(repr, operator.outputs))}",
                "Return a mapping with the names of outputs=",
            )
    if given and not any(map(_is_finite, given)):
        raise broken(
            kernel,
            f"{_judging(operator)} gives no finite number on {len(given)} small cases "
            f"of ordinary data ({defined(operator.oracle)})",
            "Nothing could be compared with it: mend it, or the inputs= that the "
            "operator declares",
        )
    if operator.relation is not None or _has_own_model(operator):
        _check_itself(kernel, given)
    if operator.within is not None:
        _check_within(kernel, cases)
    judged = {t.structure: t.case for t in reversed(given)}
    plainest = tuple(judged[structure] for structure in sorted(judged))
    return plainest, _is_constant(given)


def _on_ordinary(
    kernel: BoundKernel, cases: Sequence[Case], end: float
) -> Iterator[_Tried]:
    """Yield what ordinary data of each data type give.

    The first data type is tried on every kind of data, so that results can be told
    from a constant; others until one is judged.
    """
    operator = kernel.operator
    for position, dtype in enumerate(kernel.declaration.dtypes):
        for number, case in enumerate(cases):
            made = in_dtype(operator, case, dtype)
            for variant in ordinary_cases(operator, made):
                if time.monotonic() > end:
                    return
                if not operator.accepts(variant, kernel.declaration):
                    continue
                tried = replace(_try(kernel, variant, number), dtype=dtype)
                yield tried
                if position and tried.accepted is not None:
                    break


def _try(kernel: BoundKernel, case: Case, number: int) -> _Tried:
    values = {name: logical_values(case, name, _HOST) for name in case.tensors}
    asked = posed(kernel.operator, kernel.declaration, Derived(case, values))
    dtype = kernel.operator.dtype_of(case)
    return _Tried(case, number, dtype, asked.acceptance, asked.refused)


def in_dtype(operator: Operator, case: Case, dtype: str) -> Case:
    """Return the case with its data, and the data types that it names, in another."""
    tensors = dict(case.tensors)
    for name, parameter in operator.tensors.items():
        if name in tensors and parameter.kind == "float" and not parameter.dtype:
            tensors[name] = replace(tensors[name], dtype=dtype)
    named = {
        name: dtype
        for name, p in operator.scalars.items()
        if isinstance(p, DtypeParameter)
        and name in case.scalars
        and dtype in (p.default, *p.domain)
    }
    return replace(case, tensors=tensors, scalars={**case.scalars, **named})


def _check_order(kernel: BoundKernel) -> None:
    """Refuse an oracle that names the operator's tensors in another order."""
    operator = kernel.operator
    if _has_own_model(operator):
        return
    try:
        parameters = inspect.signature(operator.oracle).parameters.values()
    except (TypeError, ValueError):
        return
    tensors = list(operator.tensors)
    named = [p.name for p in parameters if p.name in tensors]
    if sorted(named) == sorted(tensors) and named != tensors:
        raise broken(
            kernel,
            f"the oracle names its tensors {', '.join(named)}, the operator "
            f"{', '.join(tensors)} ({defined(operator.oracle)})",
            "It is given them by position: have both in one order",
        )


def _check_dtypes(kernel: BoundKernel, tried: Sequence[_Tried]) -> None:
    """Refuse what raises wherever data have one data type, and on no other."""
    judged = {t.structure for t in tried if t.accepted is not None}
    fine = {t.dtype for t in tried if t.accepted is not None}
    for dtype in kernel.declaration.dtypes:
        errors = [
            t.error
            for t in tried
            if t.dtype == dtype and t.structure in judged and t.error is not None
        ]
        if errors and dtype not in fine:
            kept = tuple(d for d in kernel.declaration.dtypes if d in fine)
            raise broken(
                kernel,
                f"{_judging(kernel.operator)} raises on every small case of {dtype}: "
                f"{_told(kernel.operator, errors[0])}",
                f"Mend it, or declare the data types it is for: dtypes={kept!r}",
            )


def _check_itself(kernel: BoundKernel, given: Sequence[_Tried]) -> None:
    """Refuse an error model or relation that the reference itself never meets."""
    errors, met = [], not given
    for each in given:
        accepted = each.accepted or {}
        outputs = {n: a.reference[0].to(a.output.dtype) for n, a in accepted.items()}
        try:
            made = compare_all(outputs, accepted).values()
        except BindingError as error:
            raise broken(kernel, error.what, error.fix) from error
        except Exception as error:
            errors.append(error)
            continue
        met = met or any(not c.missed.all() or not c.missed.numel() for c in made)
    part = "relation" if kernel.operator.relation is not None else "error_model"
    if errors and len(errors) == len(given):
        what = f"its {part} raises on every small case: {raised(errors[0])}"
        raise broken(kernel, what, f"Mend the {part}")
    if not met and not errors:
        what = f"its {part} rejects the oracle's own result in {len(given)} small cases"
        raise broken(kernel, what, f"Mend the {part}, or the oracle")


def _check_within(kernel: BoundKernel, cases: Sequence[Case]) -> None:
    """Refuse a `within` that does not give the arguments that it was given."""
    operator, errors = kernel.operator, []
    assert operator.within is not None
    every = [v for case in cases for v in ordinary_cases(operator, case)]
    for case in every:
        values = {name: logical_values(case, name, _HOST) for name in case.tensors}
        try:
            made: Any = second_data(operator, case, values)
        except Exception as error:
            errors.append(error)
            continue
        alike = isinstance(made, Mapping) and sorted(made) == sorted(values)
        for name, x in values.items() if alike else ():
            y = made[name]
            alike = alike and isinstance(y, Tensor)
            alike = alike and (y.shape, y.dtype) == (x.shape, x.dtype)
        if not alike:
            raise broken(
                kernel,
                "within= does not return every argument in its shape and data type "
                f"({defined(operator.within)})",
                "Return a dict with the names that it was given",
            )
    if errors and len(errors) == len(every):
        what = f"within= raises on every small case: {raised(errors[0])}"
        raise broken(kernel, what, "It is given the arguments as a dict by name")


def _is_finite(tried: _Tried) -> bool:
    """Whether an output has a finite element, or none, and no output is NaN alone.

    Infinities are compared as they are beside it. NaN may be a slip of the oracle's,
    for which a kernel that gives numbers would be reported.
    """
    every = [a.reference for a in (tried.accepted or {}).values()]
    finite = [not r.numel() or bool(r.isfinite().any()) for r in every]
    return any(finite) and not any(r.numel() and bool(r.isnan().all()) for r in every)


def _is_constant(given: Sequence[_Tried]) -> bool:
    """Whether other data of the same shapes never gave another result."""
    found: dict[tuple[int, str], list[_Tried]] = {}
    for each in given:
        found.setdefault((each.structure, each.dtype), []).append(each)
    compared = False
    for first, *others in found.values():
        for other in others:
            for name, a in (first.accepted or {}).items():
                b = (other.accepted or {}).get(name)
                if b is None or not torch.equal(_bits(a.reference), _bits(b.reference)):
                    return False
                compared = compared or bool(a.reference.numel())
    return compared


def _bits(x: Tensor) -> Tensor:
    return x.contiguous().view(torch.int64) if x.dtype is torch.float64 else x


def _has_own_model(operator: Operator) -> bool:
    """Whether a function of the user's, not the oracle, says what is accepted."""
    model = operator.error_model
    return model is not None and not isinstance(model, Elementwise)


def _judging(operator: Operator) -> str:
    return "the error model" if _has_own_model(operator) else "the oracle"


def _told(operator: Operator, error: Exception) -> str:
    """Return an exception and its place, in the function of the user's at the least."""
    model = operator.error_model
    function = model if callable(model) else operator.oracle
    return raised(error, function)


def _remedy(operator: Operator, error: Exception) -> str:
    """Return the way out of what raises on every case."""
    if _OF_A_DEVICE.search(message_of(error)):
        return f"{_PLAIN}, so leave out .cuda() and device="
    if isinstance(error, TypeError) and not _has_own_model(operator):
        return (
            f"It is called as {operator.signature_text()}: tensors by position, "
            "scalars by keyword"
        )
    return _PLAIN


# The recipe of a launch, tried on small cases without launching anything.

# Cases of which one must do.
_MOST: Final = 3


def examine_recipe(kernel: BoundKernel, cases: Sequence[Case]) -> None:
    """Try the recipe of a kernel that is launched by one.

    What it raises on every case because there is no GPU here is no fault.

    Raises:
        BindingError: if what it gives fits no case, or it raises on every one.
    """
    launch = kernel.function
    if not isinstance(launch, Launch):
        return
    problems = []
    for case in cases[:_MOST]:
        problem = _problem(kernel, launch, next(ordinary_cases(kernel.operator, case)))
        if not problem:
            return
        problems.append(problem)
    if problems:
        raise broken(
            kernel,
            f"the recipe of the launch fits no small case: {problems[0]}",
            "args= returns what the kernel is passed, as a tuple in its order or as a "
            "mapping by its parameters; grid= one to three whole numbers",
        )


def _problem(kernel: BoundKernel, launch: Launch, case: Case) -> str:
    """Return what is wrong with the recipe on a case, "" if nothing is seen."""
    operator, claims = kernel.operator, kernel.declaration
    values = {name: logical_values(case, name, _HOST) for name in case.tensors}
    try:
        accepted = posed(operator, claims, Derived(case, values)).acceptance
    except BindingError:  # the oracle's, which is tried by itself
        return ""
    if accepted is None:
        return ""
    expected = expected_metadata(accepted)
    places = given(operator, case, values, claims, expected) or {}
    made = {
        name: torch.empty(place.shape, dtype=getattr(torch, place.dtype))
        for name, place in places.items()
    }
    named = {**values, **made}
    takes = kernel.arguments
    positional = [named.pop(name, None) for name in takes.positional]
    rest = {n: named[n] for n in (*takes.tensors, *takes.destinations) if n in named}
    try:
        passed, grid = launch.planned(
            *positional, **rest, **keywords_of(kernel, case, values, 0)
        )
    except Exception as error:
        return "" if _OF_A_DEVICE.search(message_of(error)) else raised(error)
    return launch.problem(passed, grid)
