"""Calls of a kernel whose results are told as they are, unjudged: what probes ask."""

from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor

from kfuzz.contracts.derive import Derived
from kfuzz.contracts.oracle import expected_metadata
from kfuzz.core.arithmetic_facts import Observed
from kfuzz.core.case_surroundings import poison_of
from kfuzz.core.recipe import Case, TensorSpec
from kfuzz.evaluation.evaluator import Evaluator
from kfuzz.execution.calls.run import Manner
from kfuzz.execution.device.backends import backend_of
from kfuzz.execution.device.surroundings import Company
from kfuzz.numerics.run import Run

# What else a GPU does beside equal calls: each needs another moment.
_COMPANY: Final = (Company.NONE, Company.HELD, Company.STIRRED)


def observe(evaluator: Evaluator, case: Case, times: int) -> Observed:
    """Return what equal calls in equal memory give.

    Args:
        evaluator: of the kernel; it can judge no more once a call lost the device.
        case: the case.
        times: calls; on a GPU other work runs beside some of them.

    Raises:
        BindingError: if the operator's oracle or error model is malformed.
        BuildError: if something cannot be built for a call.
    """
    caller = evaluator.caller(case)
    derived = Derived(case, evaluator.values(case))
    accepted = caller.accepted(derived)
    if accepted is None:
        return Observed(problem="no value is promised for these numbers")
    expected = expected_metadata(accepted)
    first: dict[str, TensorSpec] = {}
    other: dict[str, TensorSpec] = {}
    unlike = 0
    for number in range(times):
        company = Company.NONE
        if backend_of(evaluator.setting.device).has.asynchronous:
            company = _COMPANY[number % len(_COMPANY)]
        run = caller.run(
            derived, expected, poison_of(case), manner=Manner(company=company)
        )
        if run.unreliable and company is not Company.NONE:  # it cannot be had here
            run = caller.run(derived, expected, poison_of(case))
        evaluator.spent = caller.lost
        if not run.comparable or run.unreliable:
            return Observed(calls=number + 1, problem=_problem(run))
        made = _told(run.outputs)
        if not first:
            first = made
        elif made != first:
            unlike += 1
            other = other or made
    return Observed(first, other, times, unlike)


def _told(outputs: Mapping[str, Tensor]) -> dict[str, TensorSpec]:
    """Return results with their values, by name."""
    told = {}
    for name, x in outputs.items():
        data = x.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        axes = tuple(f"o{i}" for i in range(x.dim()))
        dtype = str(x.dtype).removeprefix("torch.")
        told[name] = TensorSpec(tuple(x.shape), axes, dtype, values=data)
    return told


def _problem(run: Run) -> str:
    """Return why a run has no results, in one line."""
    if run.unreliable:
        return run.unreliable
    if run.raised is not None:
        return f"the kernel raises {run.raised.type}: {run.raised.message}"
    return run.metadata.message if run.metadata is not None else "it has no results"
