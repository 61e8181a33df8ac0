"""GELU."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.nn.functional.gelu(x)


def get_inputs():
    return [torch.randn(16, 64)]


def get_init_inputs():
    return []
