"""Kernels in Helion: generated Triton, or with HELION_INTERPRET=1 eagerly."""

import helion
import helion.language as hl
import torch

import kfuzz
from kfuzz.contracts import operators as ops

CONFIGS = [helion.Config(block_sizes=[4, n]) for n in (16, 64)]
claims = {"ranks": {2}, "dims": {-1}, "layouts": "contiguous"}


@kfuzz.kernel(ops.sum, **claims)
@helion.kernel(configs=CONFIGS, static_shapes=False)
def correct(x: torch.Tensor) -> torch.Tensor:
    m, n = x.size()
    y = torch.empty([m], dtype=x.dtype, device=x.device)
    for rows in hl.tile(m):
        total = hl.zeros([rows], dtype=torch.float32)
        for columns in hl.tile(n):
            total += x[rows, columns].to(torch.float32).sum(dim=1)
        y[rows] = total.to(x.dtype)
    return y


@kfuzz.kernel(ops.sum, **claims)
@helion.kernel(configs=CONFIGS, static_shapes=False)
def faulty(x: torch.Tensor) -> torch.Tensor:
    m, n = x.size()
    y = torch.empty([m], dtype=x.dtype, device=x.device)
    for rows in hl.tile(m):
        total = hl.zeros([rows], dtype=torch.float32)
        for columns in hl.tile(n):
            total = x[rows, columns].to(torch.float32).sum(dim=1)
        y[rows] = total.to(x.dtype)
    return y
