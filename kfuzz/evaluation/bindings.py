"""Whether what a user brought can judge a kernel, asked before anything is searched.

An operator of kfuzz's own is calibrated by witnesses; one that a user brought is tried
on a few small cases: its oracle, its error model and its relation. What fails here
would fail every case, in which nothing is compared.
"""

import inspect
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Final

import torch

from kfuzz.contracts.binding import BoundKernel, Derived, ordinary_cases
from kfuzz.contracts.evidence import Evidence
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.operators import OPERATORS
from kfuzz.contracts.oracle import compare_all
from kfuzz.core.errors import BindingError, message_of
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import outputs_of
from kfuzz.evaluation.calling import broken, defined, posed, raised
from kfuzz.execution.values.fills import logical_values
from kfuzz.numerics.acceptance import Acceptance
from kfuzz.numerics.models.functions import Elementwise
from kfuzz.strategies.parameters import DtypeParameter

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
    parts = ("oracle", "error_model", "relation", "within")
    same = all(getattr(operator, part) is getattr(ours, part) for part in parts)
    return not same or operator.outputs != ours.outputs


def examine(
    kernel: BoundKernel, cases: Sequence[Case], *, on_host: bool = True
) -> None:
    """Try what judges a kernel.

    Args:
        kernel: bound to an operator that a user brought.
        cases: small ones of its domain; their values are not used, but where ordinary
            ones give nothing.
        on_host: whether the kernel runs on the CPU too: else what speaks of a device
            is no fault here.

    Raises:
        BindingError: if no case can be judged by it.
    """
    operator = kernel.operator
    _check_order(kernel)
    try:
        tried = list(_on_ordinary(kernel, cases, time.monotonic() + SECONDS))
        accepted = [t.acceptance for t in tried if t.acceptance is not None]
        if not any(map(_is_finite, accepted)):
            tried += (_try(kernel, case) for case in cases)
        accepted = [t.acceptance for t in tried if t.acceptance is not None]
    except BindingError as error:
        what = f"{error.what} ({defined(operator.oracle)})"
        outputs = ", ".join(operator.outputs)
        fix = error.fix or f"Return a tensor for each of its outputs: {outputs}"
        raise broken(kernel, what, fix) from error
    failed = [t.refused for t in tried if t.refused is not None]
    if not on_host and any(_OF_A_DEVICE.search(str(e)) for e in failed):
        return
    if failed and not accepted:
        why, fix = _raised(operator, failed[0]), _remedy(operator, failed[0])
        what = f"{_judging(operator)} raises on every small case: {why}"
        raise broken(kernel, what, fix)
    for each in accepted:
        if sorted(outputs_of(each)) != sorted(operator.outputs):
            raise broken(
                kernel,
                f"the error model gives {', '.join(map(repr, each))} "
                f"for the outputs {', '.join(map(repr, operator.outputs))}",
                "Return a mapping with the names of outputs=",
            )
    if accepted and not any(map(_is_finite, accepted)):
        raise broken(
            kernel,
            f"{_judging(operator)} gives no finite number on {len(accepted)} small "
            f"cases of ordinary data ({defined(operator.oracle)})",
            "Nothing could be compared with it: mend it, or the inputs= that the "
            "operator declares",
        )
    if operator.relation is not None or _has_own_model(operator):
        _check_itself(kernel, accepted)


def _on_ordinary(
    kernel: BoundKernel, cases: Sequence[Case], end: float
) -> Iterator[Evidence]:
    """Yield what ordinary data give in each data type, of a case until one counts."""
    operator = kernel.operator
    for dtype, case in product(kernel.declaration.dtypes, cases):
        for variant in ordinary_cases(operator, in_dtype(operator, case, dtype)):
            if time.monotonic() > end:
                return
            if operator.admits(variant, kernel.declaration):
                yield (tried := _try(kernel, variant))
                if tried.acceptance is not None:
                    break


def _try(kernel: BoundKernel, case: Case) -> Evidence:
    values = {name: logical_values(case, name, _HOST) for name in case.tensors}
    return posed(kernel.operator, kernel.declaration, Derived(case, values))


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


def _check_itself(
    kernel: BoundKernel, given: Sequence[Mapping[str, Acceptance]]
) -> None:
    """Refuse an error model or relation that the reference itself never meets."""
    errors, met = [], not given
    for accepted in given:
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


def _is_finite(accepted: Mapping[str, Acceptance]) -> bool:
    """Whether an output has a finite element, or none, and no output is NaN alone.

    Infinities are compared as they are beside it. NaN may be a slip of the oracle's,
    for which a kernel that gives numbers would be reported.
    """
    every = [a.reference for a in accepted.values()]
    finite = [not r.numel() or bool(r.isfinite().any()) for r in every]
    return any(finite) and not any(r.numel() and bool(r.isnan().all()) for r in every)


def _has_own_model(operator: Operator) -> bool:
    """Whether a function of the user's, not the oracle, says what is accepted."""
    model = operator.error_model
    return model is not None and not isinstance(model, Elementwise)


def _judging(operator: Operator) -> str:
    return "the error model" if _has_own_model(operator) else "the oracle"


def _raised(operator: Operator, error: Exception) -> str:
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
