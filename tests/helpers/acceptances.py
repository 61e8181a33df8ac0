"""Acceptances made by hand."""

import torch
from torch import Tensor

from kfuzz.numerics.acceptance import FINITE, Acceptance
from kfuzz.numerics.formats import FORMATS


def within_one(like: Tensor) -> Acceptance:
    """Return what admits all of [-1, 1] in a tensor of some shape, of one member."""
    zero = torch.zeros_like(like, dtype=torch.float64).unsqueeze(0)
    nowhere = torch.zeros_like(zero, dtype=torch.bool)
    classes = torch.full_like(zero, FINITE, dtype=torch.uint8)
    return Acceptance(
        zero, zero - 1, zero + 1, classes, nowhere, nowhere, FORMATS["float64"]
    )
