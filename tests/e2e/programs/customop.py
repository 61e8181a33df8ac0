"""A custom operator."""

import k
import torch


@torch.library.custom_op("san::add", mutates_args=(), device_types="cuda")
def op(x: torch.Tensor) -> torch.Tensor:
    return k.add(x, x)


assert op(torch.ones(70, device="cuda")).sum().item() == 140
