"""The recipe of a launch, tried on small cases without launching anything."""

from collections.abc import Sequence
from typing import Final

import torch

from kfuzz.contracts.binding import BoundKernel
from kfuzz.contracts.derive import Derived, ordinary_cases
from kfuzz.contracts.destinations import given
from kfuzz.contracts.oracle import expected_metadata
from kfuzz.core.errors import BindingError, message_of
from kfuzz.core.recipe import Case
from kfuzz.evaluation.bindings.places import broken, raised
from kfuzz.evaluation.calling import keywords_of, posed
from kfuzz.execution.values.fills import logical_values
from kfuzz.targets.launching import Launch

_HOST: Final = torch.device("cpu")
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
        on_device = any(
            word in message_of(error).lower() for word in ("cuda", "device")
        )
        return "" if on_device else raised(error)
    return launch.problem(passed, grid)
