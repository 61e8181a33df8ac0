"""Normalisation of weights by another algorithm than torch's."""

import torch
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.witness import SQUARE, witness


@witness(SQUARE, (64,), backends=("cpu",))
@kernel(ops.weight_norm)
def scaled_weight_norm(v: Tensor, g: Tensor) -> Tensor:
    """Conforming: by the reciprocal root."""
    wide = v.float()
    scale = torch.rsqrt((wide * wide).sum(-1))
    return (wide * (g.float() * scale)[:, None]).to(v.dtype)
