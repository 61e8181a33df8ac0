"""Honest: on the stream that it is called on."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return 0.5 * x * torch.erfc(x * -0.7071067811865476)
