"""What benchmarks of generated kernels do: five normal inputs at one friendly shape."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tests.benchmarks.peers.budgeted import Trial
from tests.benchmarks.peers.subject import Budget, Found, Subject

INPUTS = 5
TOLERANCE = 1e-2


def compare(results: Sequence[Tensor], wanted: Sequence[Tensor]) -> None:
    """Compare by `torch.allclose`.

    Raises:
        AssertionError: if a result is not close.
    """
    for y, reference in zip(results, wanted, strict=True):
        pair = y.double(), reference.double()
        same = y.shape == reference.shape
        if not same or not torch.allclose(
            *pair, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True
        ):
            raise AssertionError("not close")


def search(subject: Subject, budget: Budget, seed: int) -> Found:
    """Try five inputs at the shape of the plain functional test."""
    trial = Trial(subject, budget, compare)
    random = torch.Generator().manual_seed(seed)
    sizes, dtype = subject.friendly(), subject.usual_dtype
    for _ in range(INPUTS):
        if trial.over:
            break
        tensors = list(subject.ordinary(sizes, dtype, random))
        trial.try_input(tensors, subject.dims(sizes)[-1])
    return trial.found()
