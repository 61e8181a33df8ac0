"""Values of very large arguments, made a stretch at a time."""

import torch
from torch import Tensor

from kfuzz.core.errors import KfuzzError
from kfuzz.core.families import STRETCHED
from kfuzz.core.recipe import TensorSpec
from kfuzz.execution.values.families import EXACT, ROUNDED
from kfuzz.execution.values.generator import Stretch, narrow
from kfuzz.execution.values.patterns import INTEGERS, as_signed
from kfuzz.numerics.formats import FORMATS


def can_stretch(spec: TensorSpec) -> bool:
    """Whether an argument's values can be made a stretch at a time."""
    return (
        spec.fill is not None
        and spec.fill.family in STRETCHED
        and spec.fill.axis == -1
        and spec.dtype in FORMATS
        and not spec.below
        and spec.is_contiguous
        and spec.offset == 0
    )


def stretch(spec: TensorSpec, start: int, stop: int, device: torch.device) -> Tensor:
    """Return elements `start` to `stop` of an argument, in C order.

    They are the bits that `fills.logical_values` gives the same elements.

    Args:
        spec: see `can_stretch`.
        start: number of the first element.
        stop: one past the number of the last.
        device: where they are made.

    Returns:
        Shape (stop - start,), in the spec's dtype.

    Raises:
        KfuzzError: if the recipe does not allow it.
    """
    if not can_stretch(spec):
        raise KfuzzError("the values of this recipe cannot be made in parts")
    assert spec.fill is not None
    fmt, family = FORMATS[spec.dtype], spec.fill.family
    grid = Stretch(
        1, stop - start, fmt, spec.fill.seed, device, first=start, total=spec.numel
    )
    if family in EXACT:
        values = EXACT[family](grid).to(fmt.dtype)
    else:
        values = narrow(ROUNDED[family](grid), fmt)
    values = values.expand(1, stop - start).contiguous().view(-1)
    raw = values.view(INTEGERS[values.element_size()])
    for plant in spec.plants:
        at = 0
        for index, n in zip(plant.at, spec.shape, strict=True):
            at = at * n + index
        if start <= at < stop:
            raw[at - start] = as_signed(plant.bits, values.element_size())
    return values
