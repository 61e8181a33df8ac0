"""amax(x, dim): the greatest element along a dimension."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import EVERY_DTYPE, MOVES, Operator, Structure
from kfuzz.contracts.prose import bounded


def extremum(name: str, which: str) -> Operator:
    """Return the operator of a row's greatest, or least, element.

    Args:
        name: torch's name of it.
        which: "greatest" or "least".
    """

    def reference(x: Any, *, dim: int) -> Any:
        import torch

        return getattr(torch, name)(x, dim)

    def accept(problem: "nm.Problem") -> "nm.Acceptance":
        """Return the exact acceptance: a maximum, or minimum, only selects."""
        x = problem.tensors["x"]
        return nm.around(problem, reference(x, dim=problem.axis()), 0.0)

    reference.__doc__ = (
        f"torch.{name}(x, dim): the {which} element; NaN if the row holds one."
    )
    return Operator(
        name,
        inputs={"x": ks.tensors("*"), "dim": ks.dim(of="x")},
        oracle=reference,
        homogeneous={"x": 1},
        error_model=accept,
        defaults=MOVES,
        dtypes=EVERY_DTYPE,
        empty_reduction=False,
        **bounded(name, Structure.EXACT),
    )


amax = extremum("amax", "greatest")
