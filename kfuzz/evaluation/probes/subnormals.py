"""Whether a miss is a matter of subnormal numbers: the case without them."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from kfuzz.contracts.derive import Derived
from kfuzz.numerics.formats import format_of, is_subnormal


def without_subnormals(given: Derived) -> Derived | None:
    """Return the case with zeros for subnormal arguments; None if there are none."""
    return _replaced(given, lambda size, least: torch.zeros_like(size))


def normalised(given: Derived) -> Derived | None:
    """Return the case with normal numbers for subnormal arguments.

    Magnitudes grow by the least normal number; the format holds the sums. None if
    there are none.
    """
    return _replaced(given, lambda size, least: size + least)


def _replaced(
    given: Derived, magnitude: Callable[[Tensor, float], Tensor]
) -> Derived | None:
    made, found = dict(given.values), False
    for name, values in given.values.items():
        if not values.is_floating_point():
            continue
        fmt, x = format_of(values.dtype), values.to(torch.float64)
        small = is_subnormal(x, fmt)
        if bool(small.any()):
            found = True
            other = torch.copysign(magnitude(x.abs(), fmt.min_normal), x)
            made[name] = torch.where(small, other, x).to(values.dtype)
    return replace(given, values=made) if found else None
