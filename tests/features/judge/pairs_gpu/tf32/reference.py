"""A matrix product."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, A, B):
        return torch.matmul(A, B)


def get_inputs():
    return [torch.randn(256, 512), torch.randn(512, 384)]


def get_init_inputs():
    return []
