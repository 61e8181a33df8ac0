"""Honest: sums in another order."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, A, B):
        half = A.shape[1] // 2
        return A[:, :half] @ B[:half] + A[:, half:] @ B[half:]
