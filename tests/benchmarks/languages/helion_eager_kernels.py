"""Kernels in Helion, run eagerly with HELION_INTERPRET=1."""

import helion
import helion.language as hl
import torch

import kfuzz
from kfuzz.contracts import operators as ops

claims = {"ranks": {2}, "dims": {-1}, "layouts": "contiguous"}


@kfuzz.kernel(ops.softmax, **claims)
@helion.kernel(static_shapes=False)
def correct(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        row = x[rows, :].to(torch.float32)
        e = torch.exp(row - torch.amax(row, dim=1, keepdim=True))
        y[rows, :] = (e / torch.sum(e, dim=1, keepdim=True)).to(x.dtype)
    return y


@kfuzz.kernel(ops.softmax, **claims)
@helion.kernel(static_shapes=False)
def faulty(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        e = torch.exp(x[rows, :].to(torch.float32))
        y[rows, :] = (e / torch.sum(e, dim=1, keepdim=True)).to(x.dtype)
    return y
