"""The keywords that a kernel takes: scalars, and its own configuration's."""

import torch

from kfuzz.contracts.binding import BoundKernel
from kfuzz.core.recipe import Case, Scalar, is_dtype


def keywords_of(kernel: BoundKernel, case: Case, config: int) -> dict[str, object]:
    """Return the scalars that the kernel takes, and those of a configuration."""
    named = kernel.arguments.scalars
    scalars = {name: as_argument(case.scalars[name]) for name in named}
    return {**scalars, **kernel.declaration.config(config)}


def as_argument(value: Scalar) -> object:
    """Return a scalar as kernels take it: a dtype's name as the dtype."""
    return getattr(torch, str(value)) if is_dtype(value) else value
