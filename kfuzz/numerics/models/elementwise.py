"""Error model of elementwise operators: a budget in units in the last place."""

from dataclasses import dataclass

from torch import Tensor

from kfuzz.core.errors import BindingError
from kfuzz.numerics.acceptance import Acceptance, Problem, around
from kfuzz.numerics.specials import intermediate_unit


@dataclass(frozen=True)
class Elementwise:
    """Admits results within a number of ulps of the correctly rounded one.

    Attributes:
        ulps: k; the half-width is (2k + 1) u |reference|.
        absolute: further absolute half-width, for cancelling tails.
    """

    ulps: float
    absolute: float = 0.0

    def around(self, problem: Problem, reference: Tensor) -> Acceptance:
        """Return the acceptance around an oracle's float64 result."""
        unit = intermediate_unit(problem)
        error = (2 * self.ulps + 1) * unit * reference.abs() + self.absolute
        if problem.flushes:
            error = error + 2.0**-126
        return around(problem, reference, error)


def elementwise(*, ulps: float, absolute: float = 0.0) -> Elementwise:
    """Return an error model: `ulps` from correctly rounded, in float32 arithmetic.

    Args:
        ulps: budget of the whole expression, in units in the last place.
        absolute: further absolute half-width.

    Raises:
        BindingError: if a budget is negative or not a number.
    """
    if not (ulps >= 0 and absolute >= 0):
        raise BindingError(f"elementwise(ulps={ulps}, absolute={absolute}) is negative")
    return Elementwise(float(ulps), float(absolute))
